"""Runs the `ranvier` program that this package carries: `python -m ranvier`, and the command `ranvier`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    program = Path(__file__).with_name("bin") / "ranvier"
    if not program.exists():
        sys.exit(f"{program} is missing: this copy of ranvier was built without its command-line program")
    os.execv(program, ["ranvier", *sys.argv[1:]])


if __name__ == "__main__":
    main()
