"""The command `ranvier`: runs the program that the package carries. Apart from the package, which imports torch, and so takes a
second and answers no Ctrl-C meanwhile.

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
    program = Path(__file__).with_name("ranvier") / "bin" / "ranvier"
    if not program.exists():
        sys.exit(f"{program} is missing: this copy of ranvier was built without its command-line program")
    os.environ.setdefault("RANVIER_PYTHON", sys.executable)  # this one's torch is what doctor looks at
    os.execv(program, ["ranvier", *sys.argv[1:]])
