"""A quick part of PyTorch's own suite, run over ranvier; `make test-torch` runs all of it. See pytorch_suite/run.py."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "pytorch_suite"


@pytest.mark.parametrize("world", [2, 3, 4] if "RANVIER_TEST_LONG" in os.environ else [3])
def test_what_gloo_passes_ranvier_passes(world):
    command = [sys.executable, SUITE / "run.py", "--quick", "--world", str(world)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 passed" not in done.stdout, done.stdout


def test_what_fails_a_run():
    faults = runpy.run_path(str(SUITE / "run.py"))["faults"]
    passed, skipped, failed = ("passed", ""), ("skipped", "no GPU"), ("failed", "0 != 1")
    assert not faults({"a": passed, "b": skipped}, {"b": skipped}, [], [])
    assert faults({"a": failed}, {"a": passed}, [], []) == ["a failed, and passes over gloo:\n0 != 1"]
    assert not faults({"a": failed}, {"a": passed}, ["a"], [])
    assert faults({"a": passed}, {}, ["a"], []) == ["a passed: take it out of exceptions.toml"]
    (line,) = faults({"a": skipped}, {"a": skipped}, [], ["a"])
    assert "a skipped, over gloo too" in line and "no GPU" in line
