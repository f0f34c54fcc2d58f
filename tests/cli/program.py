"""Starts the program under test as users do. Every test file is called with its path: `bench_test.py PATH_OF_RANVIER`."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

RANVIER = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
BASELINES = "RANVIER_TEST_BASELINES" in os.environ

# What would change what the program does; tests say themselves what it is to find.
FOREIGN = ("RANVIER_", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_")
TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def clean_environment(**added: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and k not in TORCHRUN}
    # Leaks are looked for in the unit tests; children that are killed on purpose would be reported here.
    return kept | {"ASAN_OPTIONS": "detect_leaks=0"} | added


def start(*words: str, **options) -> subprocess.Popen:
    options.setdefault("env", clean_environment())
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([RANVIER, *words], stdout=subprocess.PIPE, text=True, encoding="utf-8", **options)


def run(*words: str, limit: float = 400, **options) -> subprocess.CompletedProcess:
    process = start(*words, **options)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def children_of(process: int) -> list[int]:
    try:
        return [int(each) for each in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:  # it has just ended
        return []


def wait_until(condition, seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def temporary_folder():
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


class ProgramTest(unittest.TestCase):
    def assert_sentence(self, result: subprocess.CompletedProcess, code: int, *parts: str) -> None:
        """The program ended with `code` and one line on stderr that has these parts."""
        self.assertEqual(result.returncode, code, result.stderr)
        lines = result.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("ranvier"), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])


def main() -> None:
    if RANVIER is None:
        sys.exit("usage: a test file and the path of ranvier")
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
