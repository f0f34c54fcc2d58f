"""The package keeps its type hints: mypy --strict has nothing to say, of the package and of a program that uses it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

USER = """
from datetime import timedelta

import ranvier
import torch
from torch.nn.parallel import DistributedDataParallel

model = torch.nn.Linear(2, 2)
ddp = DistributedDataParallel(model)
state, hook = ranvier.hook("powersgd:4")
ddp.register_comm_hook(state, hook)
momentum: float = state.momentum
sync = ranvier.attach(model, torch.optim.SGD(model.parameters()), sync="node:50")
sync.finish()
with ranvier.record(model, "workload.toml"):
    pass
options = ranvier.Options(transport="tcp", sockets=2, dead_after=timedelta(seconds=2))
ranvier.hook(4)  # wrong
ranvier.attach(model)  # wrong
ranvier.record()  # wrong
ranvier.Options(sockets="2")  # wrong
"""


def mypy(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--no-incremental", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_mypy_is_content():
    done = mypy(cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_sees_through_the_package_in_a_users_program(tmp_path):
    program = tmp_path / "user.py"
    program.write_text(USER)
    # torch itself, which takes a minute to read, is not what this is about.
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-torch.*]\nfollow_imports = skip\n")
    done = mypy(str(program), cwd=tmp_path)
    wrong = {number for number, line in enumerate(USER.splitlines(), 1) if line.endswith("# wrong")}
    errors = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert errors == wrong, done.stdout + done.stderr
