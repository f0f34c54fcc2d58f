"""Runs PyTorch's suite over ranvier and says where gloo does better.

    python tests/python/pytorch_suite/run.py                      # all of it, worlds 2, 3 and 4
    python tests/python/pytorch_suite/run.py --world 2 --quick    # the part in quick.txt
    python tests/python/pytorch_suite/run.py --world 3 test_all_reduce_sum test_barrier

A test that does not pass over ranvier is run over gloo in its place: if it passes there, and exceptions.toml does not
give a reason, the run fails. What gloo fails or skips on this machine too (CUDA, NCCL) does not count, but for the tests in
quick.txt: those have to pass. A test that passes and stands in exceptions.toml fails the run as well: the reason is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection
from pathlib import Path

HERE = Path(__file__).parent
WORLDS = [2, 3, 4]
Results = dict[str, tuple[str, str]]  # test: ("passed" | "skipped" | "failed", why)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="names of tests; none: all")
    parser.add_argument("--world", type=int, action="append", help="ranks; may be given several times (2, 3 and 4)")
    parser.add_argument("--quick", action="store_true", help="the tests in quick.txt")
    parser.add_argument("--json", type=Path, help="write every result here")
    arguments = parser.parse_args()
    wrong, everything = [], {}
    for world in arguments.world or WORLDS:
        start = time.monotonic()
        tests = arguments.tests or (quick_tests(world) if arguments.quick else [])
        mine = run_backend("ranvier", world, tests)
        behind = [test for test, (status, _) in mine.items() if status != "passed"]
        gloo = run_backend("gloo", world, behind) if behind else {}
        wrong += [f"\nworld {world}: {line}" for line in faults(mine, gloo, exceptions(), quick_tests(world))]
        everything[world] = {"ranvier": mine, "gloo": gloo}
        print(f"world {world}: {summary(mine, gloo)}, {time.monotonic() - start:.0f} s", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(everything, indent=1))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def faults(mine: Results, gloo: Results, excused: Collection[str], quick: Collection[str]) -> list[str]:
    """What fails the run, given the results over ranvier, and over gloo of the tests that do not pass over ranvier."""
    lines = []
    for test, (status, why) in mine.items():
        if status == "passed":
            if test in excused:
                lines.append(f"{test} passed: take it out of exceptions.toml")
        elif gloo[test][0] == "passed" and test not in excused:
            lines.append(f"{test} {status}, and passes over gloo:\n{why}")
        elif test in quick:
            lines.append(f"{test} {status}, over gloo too, and tests in quick.txt have to pass:\n{why}")
    return lines


def quick_tests(world: int) -> list[str]:
    """Those with this number of ranks behind their name."""
    lines = [line.split() for line in (HERE / "quick.txt").read_text().splitlines() if not line.startswith("#")]
    return [test for test, *worlds in lines if str(world) in worlds]


def exceptions() -> dict[str, str]:
    """Test: why it need not pass, though it passes for gloo."""
    return dict(tomllib.loads((HERE / "exceptions.toml").read_text()))


def run_backend(backend: str, world: int, tests: list[str]) -> Results:
    """Runs the tests in an interpreter of its own, since the suite reads its backend when it is imported."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "BACKEND": backend,
            "WORLD_SIZE": str(world),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
            "TEMP_DIR": folder,
        }
        results = Path(folder) / "results.json"
        command = [sys.executable, str(HERE / "worker.py"), str(results), *tests]
        subprocess.run(command, env=environment, check=True)
        return {test: (status, why) for test, (status, why) in json.loads(results.read_text()).items()}


def summary(mine: Results, gloo: Results) -> str:
    passed = sum(status == "passed" for status, _ in mine.values())
    shared = sum(status != "passed" for status, _ in gloo.values())
    excused = sum(status == "passed" and test in exceptions() for test, (status, _) in gloo.items())
    return f"{passed} passed, {shared} fail or are skipped for gloo too, {excused} exceptions, of {len(mine)}"


if __name__ == "__main__":
    sys.exit(main())
