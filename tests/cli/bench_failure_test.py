"""ranvier bench where ranks die, or itself: who is named, and that nothing stays behind."""

import contextlib
import os
import pathlib
import re
import signal
import stat
import subprocess
import time
import unittest

from program import (
    BASELINES,
    RANVIER,
    ProgramTest,
    children_of,
    clean_environment,
    main,
    run,
    start,
    temporary_folder,
    wait_until,
)

# A machine may be busy with other things for a while: one attempt has to keep it.
DEATH_BOUND_S = 1
OPEN_MPI = BASELINES and (RANVIER.parent / "ranvier-bench-mpi").exists()


def processes_of_session(session: int) -> list[int]:
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


class Failures(ProgramTest):
    def start_long(self, temporary: pathlib.Path, timeout_s: int = 60, *words: str, **variables: str) -> subprocess.Popen:
        """A benchmark that will not end by itself, once its ranks have been measured at least once."""
        always = ("--ranks", "2", "-b", "4", "-e", "64M", "--samples", "100000", "--timeout", str(timeout_s))
        environment = clean_environment(TMPDIR=str(temporary), **variables)
        process = start("bench", *always, *words, env=environment, start_new_session=True)
        while line := process.stdout.readline():
            if "algbw" in line:
                break
        return process

    def test_a_folder_for_temporary_files_that_is_not_there_is_named(self):
        result = run("bench", "--ranks", "2", "-e", "4", env=clean_environment(TMPDIR="/nowhere"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("temporary files cannot go to /nowhere", result.stderr)
        self.assertNotIn("filesystem error", result.stderr)

    def ranks_of(self, process: subprocess.Popen) -> list[int]:
        """The processes that are ranks: ranvier's children's children."""
        return [rank for keeper in children_of(process.pid) for rank in children_of(keeper)]

    def lose_rank_1(self, how: signal.Signals, timeout_s: int = 60, **variables: str) -> tuple[str, float]:
        """What the benchmark says, and how many seconds later it has ended."""
        with temporary_folder() as temporary:
            process = self.start_long(temporary, timeout_s, **variables)
            self.addCleanup(process.kill)
            rank = self.ranks_of(process)[1]
            began = time.monotonic()
            os.kill(rank, how)
            _, err = process.communicate(timeout=100)
            took = time.monotonic() - began
            self.assertEqual(process.returncode, 1, err)
            # The other one may have answered when it was stopped.
            self.assertRegex(err, r"(?m)^ranvier bench: ranvier rank (1 left|1 did not answer|0 failed: .*\brank 1\b)")
            self.assertFalse(pathlib.Path(f"/proc/{rank}").exists())
            self.assertEqual(list(temporary.iterdir()), [])
        return err, took

    def test_a_rank_that_is_killed_ends_the_benchmark_with_a_sentence(self):
        took = []
        for _ in range(10):
            err, seconds = self.lose_rank_1(signal.SIGKILL)
            took.append(seconds)
            if "failed" in err and seconds < DEATH_BOUND_S:  # it had not just answered
                break
        self.assertLess(min(took), DEATH_BOUND_S)
        self.assertRegex(err, r"(?m)^#\d+ \w+ .* at [0-9.]+ ms: (done|failed) after")

    @unittest.skipUnless(BASELINES and (RANVIER.parent / "libranvier_ucx.so").exists(), "this build has no transport ucx")
    def test_ranks_of_ucx_end_in_order_with_large_messages_under_way_among_them(self):
        for _ in range(2):
            process = start("bench", "--ranks", "3", "--transport", "ucx", "--algorithm", "direct", "-b", "8M", "-e", "8M",
                            "--iters", "1000000", "--samples", "1", "--no-measure", "--check", "0", env=clean_environment())  # fmt: skip
            self.addCleanup(process.kill)
            while "algbw" not in process.stdout.readline():
                pass
            time.sleep(1)
            os.kill(self.ranks_of(process)[1], signal.SIGKILL)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)
            self.assertRegex(err, r"(?m)^ranvier bench: ranvier rank (1 left|0 failed: .*\brank 1\b)")
            self.assertEqual(re.findall(r"worker (\d) .* was ended by signal", err), ["1"], err)

    def test_a_rank_that_is_stopped_is_given_up_when_it_is_said_to_be(self):
        limit = 6
        err, took = self.lose_rank_1(signal.SIGSTOP, RANVIER_DEAD_AFTER_MS=str(limit * 1000))
        # The ranks find out by themselves, or by its end at the hands of whoever started them, which is about as soon.
        self.assertRegex(err, rf"has heard nothing from rank 1 for {limit}\.0 s|rank 1 died")
        self.assertRegex(err, r"worker 1 \(process \d+\) is stopped, and is ended")
        self.assertTrue(limit - 1 < took < limit + 5, took)

    def test_a_rank_that_is_stopped_is_named_where_less_time_is_given(self):
        err, took = self.lose_rank_1(signal.SIGSTOP, timeout_s=3)
        to_leave = 10 if "did not answer" in err else 0  # the seconds that who says nothing is given then
        self.assertTrue(2 < took < 3 + 7 + to_leave, took)

    def test_nothing_is_left_when_the_benchmark_itself_is_killed_or_interrupted(self):
        for how in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            with self.subTest(how=how), temporary_folder() as temporary:
                before = set(os.listdir("/dev/shm"))
                process = self.start_long(temporary)
                self.assertEqual(len(self.ranks_of(process)), 2)
                process.send_signal(how)
                process.communicate(timeout=30)
                self.assertNotEqual(process.returncode, 0)
                self.assertTrue(wait_until(lambda: not processes_of_session(process.pid), 10), "processes are left")
                self.assertEqual(set(os.listdir("/dev/shm")) - before, set())
                self.assertTrue(wait_until(lambda: not list(temporary.iterdir()), 5), "files are left")

    def test_goes_on_behind_nohup_when_its_terminal_is_closed(self):
        with temporary_folder() as temporary:
            before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
            try:
                process = self.start_long(temporary)
            finally:
                signal.signal(signal.SIGHUP, before)
            self.addCleanup(process.kill)
            for one in (process.pid, *children_of(process.pid)):
                os.kill(one, signal.SIGHUP)
            with self.assertRaises(subprocess.TimeoutExpired):
                process.wait(2)
            self.assertEqual(len(self.ranks_of(process)), 2)
            process.terminate()
            process.communicate(timeout=30)

    def test_nothing_is_left_when_the_keeper_of_its_ranks_is_killed(self):
        with temporary_folder() as temporary:
            process = self.start_long(temporary)
            self.addCleanup(process.kill)
            (keeper,) = children_of(process.pid)
            os.kill(keeper, signal.SIGKILL)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)
            self.assertRegex(err, "ranvier rank [01] left in the middle of the benchmark")  # they end at once
            self.assertTrue(wait_until(lambda: not processes_of_session(process.pid), 10), "processes are left")
            self.assertEqual(list(temporary.iterdir()), [])

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI")
    def test_nothing_is_left_of_a_baseline_when_the_benchmark_is_killed(self):
        with temporary_folder() as temporary:
            # mpirun gives its ranks so many seconds to end, by itself one.
            slow = {"OMPI_MCA_odls_base_sigkill_timeout": "2"}
            process = self.start_long(temporary, 60, "--transport", "shm", "--baseline", "mpi", "-b", "64M", **slow)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)

            files = set()

            def shares_memory() -> bool:
                for each in processes_of_session(process.pid):
                    with contextlib.suppress(OSError):  # it has just ended
                        for line in pathlib.Path(f"/proc/{each}/maps").read_text().splitlines():
                            if "/dev/shm/vader" in line:
                                files.add(pathlib.Path(line.split()[-1]))
                return len(files) == 2

            self.assertTrue(wait_until(shares_memory, 30), "Open MPI's shared memory is elsewhere")
            time.sleep(1)  # ranks that have only begun end by themselves
            process.kill()
            self.assertTrue(wait_until(lambda: not processes_of_session(process.pid), 20), "processes are left")
            self.assertEqual([each for each in files if each.exists()], [])


if __name__ == "__main__":
    main()
