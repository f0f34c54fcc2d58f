"""Runs the `ranvier` program that this package carries: `python -m ranvier`, and the command `ranvier`.

One subcommand is Python's own: `ranvier rebuild` compiles the part of the package that belongs to one version of torch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    if sys.argv[1:2] == ["rebuild"]:
        from ranvier._rebuild import main as rebuild

        return rebuild(sys.argv[2:])
    program = Path(__file__).with_name("bin") / "ranvier"
    if not program.exists():
        sys.exit(f"{program} is missing: this copy of ranvier was built without its command-line program")
    os.environ.setdefault("RANVIER_PYTHON", sys.executable)  # this one's torch is what doctor looks at
    os.execv(program, ["ranvier", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
