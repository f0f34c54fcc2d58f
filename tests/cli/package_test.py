"""The program in ranvier's Python package, with torch beside the package or elsewhere."""

import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import program
from program import ProgramTest, clean_environment, main, run


def torch_of_build() -> str:
    found = re.search(r"torch (\S+)\)", run("--version").stdout)
    return found[1] if found else ""


def executable(file, script: str) -> None:
    file.write_text("#!/bin/sh\n" + script)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


class InPackage(ProgramTest):
    """The trainer is a script, which says where it would look for libraries."""

    def setUp(self):
        self.torch = torch_of_build()
        if not self.torch:
            raise unittest.SkipTest("this build is without torch")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.packages = self.folder / "packages"
        package = self.packages / "ranvier"
        (package / "bin").mkdir(parents=True)
        (package / "_rebuild.py").touch()
        self.program = package / "bin" / "ranvier"
        shutil.copy(program.RANVIER, self.program)
        self.trainer = package / "bin" / "ranvier-train"
        executable(self.trainer, 'echo "$LD_LIBRARY_PATH|$*"\n')
        self.python = self.folder / "python"

    def add_torch(self, packages, version: str) -> None:
        (packages / "torch").mkdir(parents=True)
        (packages / "torch" / "__init__.py").write_text("raise ImportError('it would take seconds')\n")
        (packages / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")

    def let_python_find(self, packages) -> None:
        executable(self.python, f'PYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"\n')

    def run_program(self, *words: str, **environment: str) -> subprocess.CompletedProcess:
        environment = {"LD_LIBRARY_PATH": "", "RANVIER_PYTHON": str(self.python)} | environment
        return subprocess.run(
            [self.program, *words], env=clean_environment(**environment), cwd=self.folder, capture_output=True, text=True, timeout=200
        )

    def check_of_trainer(self) -> tuple[str, str]:
        lines = self.run_program("doctor").stdout.splitlines()
        at = next(i for i, line in enumerate(lines) if line.split()[1] == "trainer")
        return lines[at], lines[at + 1]

    def test_torch_beside_the_package_is_found_by_the_trainer_itself(self):
        self.add_torch(self.packages, self.torch)
        self.let_python_find("/nonexistent")
        self.assertEqual(self.run_program("train", "--steps", "1").stdout, "|--steps 1\n")
        self.assertEqual(self.check_of_trainer()[0].split(), ["ok", "trainer", str(self.trainer)])

    def test_torch_elsewhere_is_the_one_that_python_has(self):
        elsewhere = self.folder / "elsewhere"
        self.add_torch(elsewhere, self.torch)
        self.add_torch(self.folder, "9.14.1")  # where the user stands, which is none
        self.let_python_find(elsewhere)
        libraries = elsewhere / "torch" / "lib"
        self.assertEqual(self.run_program("train", "--steps", "1").stdout, f"{libraries}|--steps 1\n")
        self.assertEqual(self.run_program("train", LD_LIBRARY_PATH="/others").stdout, f"{libraries}:/others|\n")
        self.assertEqual(self.check_of_trainer()[0].split(), ["ok", "trainer", str(self.trainer)])

    def test_without_torch_says_where_it_looked(self):
        self.let_python_find("/nonexistent")
        self.assertEqual(self.run_program("train", LD_LIBRARY_PATH="/by/hand").stdout, "/by/hand|\n")
        executable(self.trainer, "echo no libtorch_cpu.so >&2\nexit 127\n")
        parts = f"neither in {self.packages} nor known to {self.python}: install torch=={self.torch}, or name the Python"
        self.assert_sentence(self.run_program("train"), 1, parts)
        found, remedy = self.check_of_trainer()
        self.assertTrue(found.startswith("warn  trainer "), found)
        self.assertIn(parts, remedy)
        self.assert_sentence(self.run_program("train", RANVIER_PYTHON="/nonexistent"), 1, "nor known to any Python")

    def test_a_folder_that_is_gone_is_what_is_wrong(self):
        self.add_torch(self.packages, self.torch)
        self.let_python_find("/nonexistent")
        gone = self.folder / "gone"
        gone.mkdir()
        command = ["sh", "-c", 'rmdir "$PWD"; exec "$0" train --steps 1', str(self.program)]
        result = subprocess.run(command, env=clean_environment(), cwd=gone, capture_output=True, text=True, timeout=60)
        self.assert_sentence(result, 1, "the current folder is gone (No such file or directory); change")

    def test_another_torch_is_refused_wherever_it_is(self):
        elsewhere = self.folder / "elsewhere"
        self.add_torch(elsewhere, "9.14.1+cpu")
        self.let_python_find(elsewhere)
        self.assertEqual(self.run_program("train", LD_LIBRARY_PATH="/by/hand").stdout, "/by/hand|\n")
        executable(self.trainer, "echo no libtorch_cpu.so >&2\nexit 127\n")
        self.assert_sentence(self.run_program("train"), 1, f"and torch 9.14 is installed in {elsewhere}: install torch==")
        self.add_torch(self.packages, "9.15.0")
        self.assert_sentence(self.run_program("train"), 1, "and torch 9.15 is installed beside it: install torch==")

    def test_doctor_starts_the_trainer_that_it_vouches_for(self):
        self.add_torch(self.packages, self.torch)
        self.let_python_find("/nonexistent")
        executable(self.trainer, "echo ranvier-train: no libgomp.so >&2\nexit 127\n")
        found, remedy = self.check_of_trainer()
        self.assertTrue(found.startswith("warn  trainer "), found)
        self.assertIn(f"{self.trainer} does not start: ranvier-train: no libgomp.so", found)
        self.assertIn("->", remedy)


if __name__ == "__main__":
    main()
