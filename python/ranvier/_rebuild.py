"""Compiles the part of the package that belongs to one minor version of torch for the torch that is installed now."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ranvier._parts import CORE, LIBRARY, folder_for, minor

PACKAGE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """`python -m ranvier rebuild`: some minutes of compiling; the core stays as it is. 1 if something is missing."""
    parser = argparse.ArgumentParser(
        prog="ranvier rebuild",
        description="Compile the part of ranvier that belongs to one minor version of torch for the torch that is "
        "installed now, beside the parts for others. It takes some minutes, and needs cmake and a C++20 compiler; "
        "'ranvier doctor' says which part is active.",
    )
    parser.parse_args(arguments)
    try:
        torch = version("torch")  # not imported: that takes seconds, and loads nothing that compiling needs
    except PackageNotFoundError:
        return _fail(f"needs torch, and {sys.executable} has none installed: pip install torch")
    native, folder = PACKAGE / "native", folder_for(torch)
    missing = [tool for tool in ("cmake", "c++") if not shutil.which(tool)]
    if missing:
        return _fail(f"needs {' and '.join(missing)}: apt install cmake g++")
    try:  # before minutes of compiling
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return _fail(f"cannot write to {folder} ({error.strerror}): run it as who installed ranvier")
    with tempfile.TemporaryDirectory() as build:
        configure = ["cmake", "-S", str(native), "-B", build]
        configure += [f"-DRANVIER_PYTHON={sys.executable}", f"-DRANVIER_CORE={PACKAGE / CORE}"]
        for command in (configure, ["cmake", "--build", build, "--parallel"]):
            if code := subprocess.run(command).returncode:
                return _fail(f"{command[0]} failed with {code}, see above")
        # Not over a library that a process may have mapped: a new file under the old name.
        fresh = folder / f".{LIBRARY}.new"
        shutil.copy(Path(build) / LIBRARY, fresh)
        fresh.replace(folder / LIBRARY)
    print(f"ranvier: {folder / LIBRARY} is built for torch {minor(torch)}")
    return 0


def _fail(sentence: str) -> int:
    print(f"ranvier rebuild: {sentence}", file=sys.stderr)
    return 1
