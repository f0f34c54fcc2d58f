"""What scripts/run_tests.py forgives, and what it never does, with ctest and pytest themselves."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1)).resolve()
ONCE = "test -e {name} || {{ touch {name}; {how}; }}"  # goes wrong the first time alone


class RunTests(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "logs" / "core.log"

    def run_script(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(self.log), *command], cwd=self.folder, capture_output=True, text=True
        )
        self.assertEqual(done.stderr, "")
        self.assertIn(self.log.read_text(), done.stdout.replace("not tried again, since it may have been a race", ""))
        return done.returncode, done.stdout

    def ctest(self, **tests: str) -> tuple[int, str]:
        lines = [f'add_test({name} "/bin/sh" "-c" [==[{words}]==])\n' for name, words in tests.items()]
        lines += [f"set_tests_properties({name} PROPERTIES TIMEOUT 1)\n" for name in tests if name.startswith("hangs")]
        (self.folder / "CTestTestfile.cmake").write_text("".join(lines))
        return self.run_script("ctest", "--output-on-failure", "-j", "3")

    def test_what_passes_runs_once(self) -> None:
        code, said = self.ctest(fine="echo >> runs", other="true")
        self.assertEqual((code, (self.folder / "runs").read_text()), (0, "\n"))
        self.assertIn("100% tests passed", said)

    def test_what_fails_beside_others_may_pass_alone_and_is_named(self) -> None:
        code, said = self.ctest(fine="echo >> runs", shy=ONCE.format(name="a", how="false"))
        self.assertEqual(code, 0)
        self.assertTrue(self.log.read_text().endswith("shy passed only alone, at a second try\n"))
        self.assertEqual((self.folder / "runs").read_text(), "\n", "only what failed is tried again")

    def test_it_is_tried_again_whatever_else_has_run_in_that_folder(self) -> None:
        other_run = "mkdir -p Testing/Temporary; echo 1:fine > Testing/Temporary/LastTestsFailed.log"
        code, said = self.ctest(fine="echo >> runs", shy=ONCE.format(name="a", how=f"({other_run}); false"), wrong="false")
        self.assertNotEqual(code, 0)
        self.assertIn("wrong failed beside others, and alone", said)
        self.assertEqual((self.folder / "runs").read_text(), "\n")

    def test_what_fails_twice_fails(self) -> None:
        code, said = self.ctest(fine="true", wrong="false")
        self.assertNotEqual(code, 0)
        self.assertIn("wrong failed beside others, and alone", said)

    def test_more_than_two_are_not_tried_again(self) -> None:
        shy = {f"shy{i}": ONCE.format(name=f"f{i}", how="false") for i in range(3)}
        self.assertNotEqual(self.ctest(**shy)[0], 0)

    def test_crashes_hangs_and_reports_are_never_forgiven(self) -> None:
        ways = {"crashes": "kill -SEGV $$", "aborts": "kill -ABRT $$", "hangs": "sleep 60", "races": "echo ThreadSanitizer; exit 66"}
        for name, how in ways.items():
            code, said = self.ctest(**{name: ONCE.format(name=name, how=how)})
            self.assertNotEqual(code, 0, name)
            self.assertIn("not tried again", said, name)

    @unittest.skipUnless(importlib.util.find_spec("xdist"), "this Python has no pytest-xdist")
    def test_pytest_too(self) -> None:
        (self.folder / "test_it.py").write_text(
            "import pathlib\n"
            "def test_fine():\n    assert True\n"
            "def test_shy():\n    seen = pathlib.Path('seen')\n    was = seen.exists()\n    seen.touch()\n    assert was\n"
        )
        pytest = [sys.executable, "-m", "pytest", "-q", "-ra", "-n", "2", "test_it.py"]
        code, said = self.run_script(*pytest)
        self.assertEqual(code, 0, said)
        self.assertIn("test_it.py::test_shy passed only alone, at a second try", said)
        (self.folder / "test_it.py").write_text("def test_wrong():\n    assert False\n")
        self.assertEqual(self.run_script(*pytest)[0], 1)
        (self.folder / "test_it.py").write_text("import nothing_that_exists\n")
        self.assertNotEqual(self.run_script(*pytest)[0], 0)


if __name__ == "__main__":
    unittest.main()
