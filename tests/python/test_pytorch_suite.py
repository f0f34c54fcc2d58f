"""A quick part of PyTorch's own suite, run over ranvier; `make test-torch` runs all of it. See pytorch_suite/run.py."""

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "pytorch_suite"


@pytest.mark.parametrize("world", [2, 3, 4])
def test_what_gloo_passes_ranvier_passes(world):
    command = [sys.executable, SUITE / "run.py", "--quick", "--world", str(world)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 passed" not in done.stdout, done.stdout
