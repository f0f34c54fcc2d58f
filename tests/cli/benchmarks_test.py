"""The scripts of benchmarks/collectives, each as short as it can be: that they run, and print what they promise."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from program import BASELINES, RANVIER, ProgramTest, clean_environment, main, temporary_folder

SCRIPTS = pathlib.Path(__file__).parents[2] / "benchmarks" / "collectives"
MEMORY_LIMIT = RANVIER.parent / "memory_limit"
OPEN_MPI = BASELINES and (RANVIER.parent / "ranvier-bench-mpi").exists()


def script(name: str, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPTS / name), str(RANVIER), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean_environment())


class Scripts(ProgramTest):
    def test_auto_is_put_beside_the_best(self):
        words = ("--ranks", "2", "--transport", "shm", "--collective", "broadcast", "--samples", "4", "-e", "64")
        result = script("auto_against_best.py", *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertTrue(lines[1].startswith("broadcast, 2 ranks, shm"), result.stdout)
        self.assertIn("| bytes | the best fixed | us | auto, us | auto / best |", lines)
        self.assertRegex(result.stdout, r"\n\| 4 \| `\w+` \|")
        self.assertRegex(result.stdout, r"\n[01] of 1 choices are more than 10% slower")

    @unittest.skipUnless(MEMORY_LIMIT.exists(), "needs the benchmarks, which this build leaves out")
    @unittest.skipUnless(len(os.sched_getaffinity(0)) > 1, "needs a core for each of two ranks")
    def test_all_reduce_is_put_beside_what_memory_allows(self):
        words = [str(MEMORY_LIMIT), "--samples", "3", "4M", "1M"]
        result = subprocess.run(words, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.stdout.splitlines()]
        self.assertEqual([row[0] for row in rows], ["bytes", "---", "4 MiB", "1 MiB"], result.stdout)
        for row in rows[2:]:
            self.assertEqual(len(row), 7, result.stdout)
            for share in (row[4], row[6]):
                self.assertRegex(share, r"^\d+ % \(\d+ to \d+\)$")
        wrong = subprocess.run([str(MEMORY_LIMIT), "some"], capture_output=True, text=True, timeout=120)
        self.assertEqual((wrong.returncode, wrong.stderr[:20]), (2, "usage: memory_limit "))

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI, which sanitizers dislike")
    def test_all_reduce_is_put_beside_open_mpi(self):
        with temporary_folder() as folder:
            words = ("--folder", str(folder), "--samples", "2", "-e", "64", "-f", "16", "--only", "shm-2")
            result = script("all_reduce.py", sys.executable, *words)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual((folder / "tables.md").read_text(), result.stdout.removesuffix("\n"))
        lines = result.stdout.strip().splitlines()
        self.assertEqual(lines[:2], ["| ranvier, Open MPI, us: ratio | 2 ranks, shm |", "| --- | --- |"])
        self.assertEqual([line.split(" | ")[0] for line in lines[2:]], ["| 4", "| 64"])
        for line in lines[2:]:
            ratio = re.fullmatch(r"\| \d+ \| [\d.]+, [\d.]+: (\*\*)?([\d.]+) \([\d.]+ to [\d.]+\)(\*\*)? \|", line)
            self.assertTrue(ratio, line)
            if abs(float(ratio[2]) - 1.5) > 0.01:  # the goal, beside which rounding hides the side
                self.assertEqual([bool(ratio[1]), bool(ratio[3])], [float(ratio[2]) < 1.5] * 2, line)

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI, which sanitizers dislike")
    def test_more_ranks_than_cores_are_put_beside_open_mpi(self):
        words = ("--samples", "2", "-e", "4", "--only", "shm-8", "tcp-8")
        result = script("all_reduce.py", sys.executable, *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"us: ratio \| 8 ranks, shm \| 8 ranks, tcp \|\n.*\n\| 4 \| [^|]+ \| [^|]+ \|\n")


if __name__ == "__main__":
    main()
