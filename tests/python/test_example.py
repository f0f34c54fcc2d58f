"""examples/ddp.py, which knows nothing of ranvier, runs over it under torchrun; and the benchmark of its model."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ddp.py"
DATA = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.skipif(not DATA.exists(), reason="needs the Debian package dataset-fashion-mnist")
def test_the_example_trains_under_torchrun():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, EXAMPLE, "--backend=ranvier", "--steps=30", "--batch=32"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    accuracy = float(done.stdout.split("test accuracy ")[1].split(" %")[0])
    assert accuracy > 40, done.stdout  # 30 steps; guessing gives 10


def test_the_benchmark_of_a_step_runs_both_backends():
    command = [sys.executable, ROOT / "benchmarks" / "torch" / "ddp_step.py", "--samples", "2", "--batch", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"ranvier +[\d.]+ ms a step\ngloo +[\d.]+ ms a step\n"
        r"gloo / ranvier: [\d.]+ \([\d.]+ to [\d.]+\), 2 steps each\n",
        done.stdout,
    ), done.stdout
