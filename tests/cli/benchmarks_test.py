"""The scripts of benchmarks/collectives, each as short as it can be: that they run, and print what they promise."""

import pathlib
import subprocess
import sys
import unittest

from program import BASELINES, RANVIER, ProgramTest, clean_environment, main, temporary_folder

SCRIPTS = pathlib.Path(__file__).parents[2] / "benchmarks" / "collectives"
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
        self.assertTrue(lines[1].startswith("broadcast, 2 ranks, shm; shm, 2 ranks"), result.stdout)
        self.assertIn("| bytes | the best fixed | us | auto took | us | auto / best |", lines)
        self.assertRegex(result.stdout, r"\n\| 4 \| `\w+` \|")
        self.assertRegex(result.stdout, r"\n[01] of 1 choices are more than 10% slower")

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI, which sanitizers dislike")
    def test_all_reduce_is_put_beside_open_mpi(self):
        with temporary_folder() as folder:
            words = ("--folder", str(folder), "--samples", "2", "-e", "64", "-f", "16", "--only", "shm-2")
            result = script("all_reduce.py", sys.executable, *words)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual((folder / "tables.md").read_text(), result.stdout.removesuffix("\n"))
        rows = [line.split(" | ") for line in result.stdout.splitlines()]
        self.assertEqual([row[0] for row in rows if row[0] in ("| bytes", "| 4", "| 64")], ["| bytes", "| 4", "| 64"])
        self.assertTrue(all(len(row) == 4 for row in rows if len(row) > 1), result.stdout)


if __name__ == "__main__":
    main()
