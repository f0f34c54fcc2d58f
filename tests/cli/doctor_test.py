"""ranvier doctor looks at the real machine."""

import functools
import json
import re
import resource
import stat
import subprocess

from program import ProgramTest, clean_environment, main, run, temporary_folder


def without_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (7, 7))


@functools.cache
def whole_run() -> tuple[subprocess.CompletedProcess, dict]:
    """What it printed and what it wrote, of one run: it imports torch, which takes seconds."""
    with temporary_folder() as folder:
        result = run("doctor", "--json", str(folder / "found.json"))
        return result, json.loads((folder / "found.json").read_text())


class Doctor(ProgramTest):
    def test_finds_nothing_broken_where_these_tests_run(self):
        result, _ = whole_run()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"(?m)^ok +shm +two ranks joined")
        for transport in ("tcp", "grpc"):
            self.assertRegex(result.stdout, rf"(?m)^ok +{transport} +two ranks joined")
        self.assertRegex(result.stdout, r"(?m)^(ok|warn) +train --serve +(its library can be loaded|this build has no service for guests)")
        for name in ("cores", "memory", "instruction set", "open files", "congestion control", "torch", "mpi", "zstd"):
            self.assertRegex(result.stdout, rf"(?m)^(ok|warn) +{name} ")

    def test_gives_a_remedy_for_everything_that_is_not_ok(self):
        lines = whole_run()[0].stdout.splitlines()
        for line, following in zip(lines, lines[1:] + [""], strict=True):
            if not line.startswith(" "):
                self.assertEqual(following.lstrip().startswith("->"), not line.startswith("ok"), line)

    def test_json_has_the_same(self):
        _, found = whole_run()
        self.assertEqual({check["health"] for check in found["checks"]} - {"ok", "warn"}, set())
        self.assertIn("tcp", {check["name"] for check in found["checks"]})
        self.assertTrue(all(check["remedy"] for check in found["checks"] if check["health"] != "ok"))
        self.assertGreater(found["environment"]["cores"], 0)

    def test_says_what_is_broken_and_fails(self):
        result = run("doctor", preexec_fn=without_files)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"(?m)^fail +tcp +\S")
        self.assertRegex(result.stdout, r"(?m)^warn +open files +7 allowed")

    def test_looks_for_the_data_that_training_takes_by_default(self):
        with temporary_folder() as folder:
            for place, health in ((folder, "ok"), (folder / "missing", "warn")):
                result = run("doctor", "--python", "/bin/false", env=clean_environment(RANVIER_DATA=str(place)))
                self.assertRegex(result.stdout, rf"(?m)^{health} +data set +{re.escape(str(place))}")
        self.assertRegex(whole_run()[0].stdout, r"(?m)^(ok|warn) +data set +/usr/share/datasets/fashion-mnist")

    def test_looks_at_the_python_that_it_is_told(self):
        with temporary_folder() as folder:
            python = folder / "python"
            python.write_text("#!/bin/sh\necho 1.2.3+made.up\necho - no module\n")
            python.chmod(python.stat().st_mode | stat.S_IXUSR)
            for result in (
                run("doctor", "--python", str(python)),
                run("doctor", env=clean_environment(RANVIER_PYTHON=str(python))),
            ):
                # Wrong for a build with torch, unused by one without.
                self.assertRegex(result.stdout, r"(?m)^(fail|warn) +torch +1\.2\.3\+made\.up for " + re.escape(str(python)))
                self.assertRegex(result.stdout, r"(?m)^warn +python package ")

    def test_a_python_that_is_named_and_is_none_is_a_failure(self):
        for named in ("/bin/ls", "/nonexistent"):
            result = run("doctor", "--python", named)
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertRegex(result.stdout, rf"(?m)^fail +torch +{named} is no Python that runs")


if __name__ == "__main__":
    main()
