"""Installs ranvier, builds the project beside this file against it, trains with 1 and 2 ranks: one result; has a c10d
backend add up tensors, and a step predicted.

usage: consumer_test.py BUILD_FOLDER PYTHON
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BUILD, PYTHON = sys.argv[1], sys.argv[2]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)


def train(program: Path, folder: Path, world: int) -> list[str]:
    ranks = [
        subprocess.Popen([program, folder, str(rank), str(world)], stdout=subprocess.PIPE, text=True) for rank in range(world)
    ]
    lines = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world, lines
    return lines


def python_with_another_torch(folder: Path) -> Path:
    """All of torch that CMake looks at, in a version that is not there yet."""
    torch = folder / "packages" / "torch"
    (torch / "share" / "cmake" / "Torch").mkdir(parents=True)
    (torch / "share" / "cmake" / "Torch" / "TorchConfig.cmake").touch()
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("__version__ = '9.14.1+cpu'\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={torch.parent} exec {PYTHON} "$@"\n')
    python.chmod(0o755)
    return python


def value(name: str, line: str) -> float:
    return float(re.search(rf"{name} (-?[\d.]+)", line).group(1))


def main() -> None:
    code = [line for line in (HERE / "train.cc").read_text().splitlines() if line.strip()]
    assert len(code) < 60, len(code)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install = ["cmake", "--install", BUILD, "--prefix", str(folder / "prefix"), "--component", "cpp"]
        configure = ["cmake", "-G", "Ninja", "-S", str(HERE), f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}"]
        mine = ["-B", str(folder / "build"), f"-DRANVIER_PYTHON={PYTHON}"]
        installed, configured, compiled = (
            run(command) for command in (install, [*configure, *mine], ["cmake", "--build", str(folder / "build")])
        )
        for done in (installed, configured, compiled):
            assert done.returncode == 0, done.stdout
        python = python_with_another_torch(folder)
        refused = run([*configure, "-B", str(folder / "other"), f"-DRANVIER_PYTHON={python}"])
        said = " ".join(refused.stdout.split())  # CMake breaks lines where it likes
        built = re.search(r"-- torch (\d+\.\d+)", configured.stdout).group(1)
        assert refused.returncode != 0 and (
            f"this ranvier was built for torch {built}, and {python} has 9.14.1: name a Python with torch {built} in "
            "RANVIER_PYTHON, or build ranvier again"
        ) in said, refused.stdout
        program = folder / "build" / "train"
        (alone,) = train(program, folder / "one", 1)
        first, second = train(program, folder / "two", 2)
        sums = run([str(folder / "build" / "sum")])
        workload = folder / "workload.toml"
        workload.write_text(
            '[[layer]]\nweight_gradient_ns = 1000000\ncommunications = '
            '[{ pass = "weight_gradient", collective = "all_reduce", bytes = 1000000, role = "data" }]\n'
        )
        predicted = run([str(folder / "build" / "predict"), str(workload)])
    assert first.split(":")[1] == second.split(":")[1], (first, second)
    assert abs(value("loss", alone) - value("loss", first)) < 1e-3, (alone, first)
    assert sums.returncode == 0 and sums.stdout.splitlines() == [
        "sums 6000 6000 6000",
        "rank 1 of a world of 2 did not come in time; start all of them, or allow more time "
        "(join_timeout, --join-timeout)",
    ], sums.stdout
    # 1 MB to the other rank by halves, twice, behind a ms of computing.
    assert predicted.stdout.splitlines() == ["step 2000 us", "no trace"], predicted.stdout
    print(alone, first, second, sums.stdout, sep="")


if __name__ == "__main__":
    main()
