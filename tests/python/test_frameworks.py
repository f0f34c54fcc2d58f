"""The programs of docs/frameworks.md, each as it stands there."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run(folder: Path, name: str, *launcher: str) -> str:
    program = folder / name
    program.write_text(PROGRAMS[name])
    done = subprocess.run(
        [sys.executable, *launcher, program],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require(framework: str) -> None:
    """Skips the test where the framework is not installed; `make test-torch`, which installs it, fails there."""
    if "RANVIER_TEST_LONG" in os.environ:
        importlib.import_module(framework)
    else:
        pytest.importorskip(framework)


def test_every_program_of_the_page_is_run():
    assert set(PROGRAMS) == {
        "elastic.py",
        "rejoin.py",
        "compressed.py",
        "lightning_ddp.py",
        "accelerate_ddp.py",
        "ray_train.py",
    }


def test_a_rank_that_comes_back_joins_those_that_stayed(tmp_path):
    said = run(tmp_path, "rejoin.py")
    ends = re.findall(r"rank (\d), attempt 1: 3 ranks in groups (\[.*?\]), error (\d\.\d{4})", said)
    assert sorted(rank for rank, _, _ in ends) == ["0", "1", "2"], said
    assert len({(groups, error) for _, groups, error in ends}) == 1, said
    assert float(ends[0][2]) < 0.1, said


@pytest.mark.skipif("RANVIER_TEST_LONG" not in os.environ, reason="takes half a minute; make test-torch runs it")
def test_torchrun_restarts_after_a_fault(tmp_path):
    assert "attempt 1: 10 steps, sum 10" in run(tmp_path, "elastic.py", *TORCHRUN, "--max-restarts=2")


def test_a_compressed_training_resumes(tmp_path):
    assert "the same after a checkpoint: True" in run(tmp_path, "compressed.py", *TORCHRUN)


def test_lightning(tmp_path):
    require("lightning")
    assert "ranvier: 8 steps" in run(tmp_path, "lightning_ddp.py")


def test_accelerate(tmp_path):
    require("accelerate")
    assert "ranvier: 4 steps on each of 2 processes" in run(tmp_path, "accelerate_ddp.py", *TORCHRUN)


def test_ray_train(tmp_path):
    require("ray.train.torch")
    assert "ranvier: sum 3" in run(tmp_path, "ray_train.py")
