"""Installs ranvier, builds the project beside this file against it, and trains with 1 and 2 ranks: one result.

usage: consumer_test.py BUILD_FOLDER PYTHON
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BUILD, PYTHON = sys.argv[1], sys.argv[2]


def train(program: Path, folder: Path, world: int) -> list[str]:
    ranks = [
        subprocess.Popen([program, folder, str(rank), str(world)], stdout=subprocess.PIPE, text=True) for rank in range(world)
    ]
    lines = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world, lines
    return lines


def value(name: str, line: str) -> float:
    return float(re.search(rf"{name} (-?[\d.]+)", line).group(1))


def main() -> None:
    code = [line for line in (HERE / "train.cc").read_text().splitlines() if line.strip()]
    assert len(code) < 60, len(code)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install = ["cmake", "--install", BUILD, "--prefix", str(folder / "prefix"), "--component", "cpp"]
        configure = ["cmake", "-G", "Ninja", "-S", str(HERE), "-B", str(folder / "build"), f"-DRANVIER_PYTHON={PYTHON}"]
        configure += [f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}"]
        for command in (install, configure, ["cmake", "--build", str(folder / "build")]):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert done.returncode == 0, done.stdout
        program = folder / "build" / "train"
        (alone,) = train(program, folder / "one", 1)
        first, second = train(program, folder / "two", 2)
    assert first.split(":")[1] == second.split(":")[1], (first, second)
    assert abs(value("loss", alone) - value("loss", first)) < 1e-3, (alone, first)
    print(alone, first, second, sep="")


if __name__ == "__main__":
    main()
