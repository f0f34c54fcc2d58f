"""`python -m ranvier`: the programs in the package, and what belongs to Python."""

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from ranvier import _build, _parts

# An editable copy links its programs from the build tree, where they look for nothing.
PROGRAM = (_parts.PACKAGE / "bin" / "ranvier").resolve()
needs_wheel = pytest.mark.skipif(PROGRAM.parents[1] != _parts.PACKAGE, reason="the package is not installed by pip")


def command(*words, program=(sys.executable, "-m", "ranvier"), **environment):
    known = {name: value for name, value in os.environ.items() if name != "RANVIER_PYTHON"}
    return subprocess.run([*program, *words], env=known | environment, capture_output=True, text=True, timeout=90)


def test_the_command_loads_no_torch():
    program = "import sys, _ranvier_command; print({'torch', 'ranvier'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")
    commands = {each.value for each in metadata.entry_points(group="console_scripts", name="ranvier")}
    assert commands <= {"_ranvier_command:main"}, commands


def test_this_python_is_the_one_that_is_asked():
    done = command("doctor")
    assert f"for {sys.executable}" in done.stdout, done


@needs_wheel
def test_help_names_rebuild_and_rebuild_explains_itself():
    assert "  rebuild  compile the part" in command("--help").stdout
    for done in (command("rebuild", "--help"), command("rebuild", "--help", program=(str(PROGRAM),), RANVIER_PYTHON=sys.executable)):
        assert done.returncode == 0 and "usage: ranvier rebuild" in done.stdout, done
    assert command("rebuild", "everything").returncode == 2
    assert "did you mean 'rebuild'" in command("rebiuld").stderr


def test_bench_measures_ranvier_through_torch_beside_itself(tmp_path):
    file = tmp_path / "result.json"
    size = ("-b", "4", "-e", "4K", "-f", "32", "--samples", "2", "--iters", "3")
    done = command("bench", "--ranks", "2", "--baseline", "torch", "--json", str(file), *size)
    assert done.returncode == 0, done
    rows = json.loads(file.read_text())["rows"]
    assert [row["bytes"] for row in rows] == [4, 128, 4096]
    for row in rows:
        through_torch = row["baseline"]["torch"]
        assert through_torch["time_us"] > 0 and through_torch["ratio"] > 0 and through_torch["wrong"] == 0, row


@pytest.fixture
def other_torch(tmp_path):
    """The package beside a torch of another version."""
    packages = tmp_path / "packages"
    shutil.copytree(_parts.PACKAGE, packages / "ranvier", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text("__version__ = '9.14.1+cpu'\n")
    (packages / "torch" / "__init__.py").write_text("from .version import __version__\n")
    return packages


@needs_wheel
def test_another_torch_is_named_before_the_trainer_is_started(other_torch):
    done = command("train", "--workers", "1", program=(str(other_torch / "ranvier" / "bin" / "ranvier"),))
    built = ".".join(_build.TORCH_VERSION.split(".")[:2])
    assert (done.returncode, done.stderr) == (
        1,
        f"ranvier train: ranvier-train was built for torch {built}, and torch 9.14 is installed beside it: install "
        f"torch=={_build.TORCH_VERSION}, or ranvier again from its sources (pip install .)\n",
    )


@needs_wheel
def test_doctor_judges_torch_by_the_part_that_serves_it(other_torch):
    package = other_torch / "ranvier"
    (package / "__init__.py").write_text("__version__ = '9'\n")
    python = other_torch / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={other_torch} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    program = (str(package / "bin" / "ranvier"),)

    before = command("doctor", program=program, RANVIER_PYTHON=str(python))
    assert before.returncode == 1 and "-m ranvier rebuild' compiles the part" in before.stdout, before
    library = package / "native" / "torch-9.14" / _parts.LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    after = command("doctor", program=program, RANVIER_PYTHON=str(python))
    assert after.returncode == 0, after
    lines = after.stdout.splitlines()
    assert any(line.startswith("ok    torch ") and "9.14.1+cpu" in line for line in lines), after
    assert any(line.startswith("ok    torch part") and str(library) in line for line in lines), after
    trainer = next(index for index, line in enumerate(lines) if line.startswith("warn  trainer"))
    assert "install torch==" in lines[trainer + 1], after
