"""Workers that die, stop, never come or disagree: every other worker ends soon and says whose fault it was."""

import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import subprocess
import threading
import time

import program
from program import main, wait_until
from training import TrainingTest, workers_of, write_data

# The promises: a death ends the others within a second, and silence is known once it has lasted for 3 s, after which
# they have still to end. A machine may be busy with other things for a while: one of three attempts has to keep them.
DEATH_BOUND_S = 1
SILENCE_BOUND_S = 3 + 0.5
ATTEMPTS = 3

# A line of the flight record: "#41 all_reduce f32 average 79872 B at 812.345 ms: done after 0.210 ms"; messages have no number.
RECORDED = r"^(#\d+ )?\w+ .*\d+ B at [\d.]+ ms: "


class Failure(TrainingTest):
    def start_endless(self, workers: int, transport: str, *words: str):
        """A run in the middle of training, its workers by rank, and a reader of what they say on stderr."""
        process = self.start_training(
            "--workers", str(workers), "--transport", transport, "--epochs", "1000000", "--evaluate-every", "1",
            "--json", str(self.folder / "result.json"), *(words or ("--save", str(self.folder / "checkpoint"))),
        )  # fmt: skip
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertTrue(any("step      2" in line for line in process.stderr), "training did not begin")
        found = workers_of(process.pid)
        self.assertEqual(sorted(found), list(range(workers)))
        # Read on, or the workers would wait for room in the pipe.
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(process.stderr,))
        reader.start()
        return process, found, lambda: (reader.join(), lines)[1]

    @staticmethod
    def has_ended(pid: int) -> bool:
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    def lose_in_time(self, transport: str, sign: signal.Signals, bound: float, *words: str) -> None:
        took = []
        for _ in range(ATTEMPTS):
            took.append(self.lose(transport, sign, *words))
            if took[-1] < bound:
                return
        self.fail(f"{took} s, and {bound} s are promised")

    def lose(self, transport: str, sign: signal.Signals, *words: str) -> float:
        """Loses a worker; checks what the others say, and returns how many seconds later they had ended."""
        lost = 2
        process, workers, said = self.start_endless(4, transport, *words)
        others = [pid for rank, pid in workers.items() if rank != lost]
        began = time.monotonic()
        os.kill(workers[lost], sign)
        self.assertTrue(wait_until(lambda: all(self.has_ended(pid) for pid in others), 60))
        took = time.monotonic() - began
        process.wait(timeout=30)
        self.assertEqual(process.returncode, 1)
        self.assertTrue(self.has_ended(workers[lost]))
        lines = said()
        for rank, pid in workers.items():
            if rank != lost:
                mine = [line for line in lines if line.startswith(f"ranvier train, rank {rank}:")]
                # One that was still at work, for a machine has much to do at times, has been ended for its slowness.
                if f"ranvier: worker {rank} (process {pid}) is ended: rank {lost} was ended by signal 9 (Killed)\n" in lines:
                    continue
                self.assertEqual(len(mine), 1, lines)
                self.assertIn(f"rank {lost}", mine[0])
                self.assertRegex(lines[lines.index(mine[0]) + 1], RECORDED, "no flight record behind it")
        stopped = f"worker {lost} (process {workers[lost]}) is stopped, and is ended"
        self.assertEqual(any(stopped in line for line in lines), sign == signal.SIGSTOP, lines)
        self.assertFalse((self.folder / "result.json").exists())
        self.assertEqual({path.name for path in self.folder.iterdir()} - {"tmp", "checkpoint"}, set())
        self.assert_nothing_left()
        return took

    def test_a_killed_worker_ends_the_others_who_name_it(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                self.lose_in_time(transport, signal.SIGKILL, DEATH_BOUND_S)

    def test_so_it_does_whoever_averages_when_and_with_whom(self):
        for words in (
            ("ssp:2",),
            ("async:servers=1",),
            ("group", "--speeds", "1,1,0.5,0.5"),
            ("ad-psgd",),
            ("gossip",),
            ("node:3", "--place", "node=2"),
            ("diloco:8,fragments=2,delay=2", "--optimizer", "adamw"),
            ("auto", "--place", "node=2", "--link-rate", "50Mbit"),
        ):
            with self.subTest(sync=words):
                self.lose_in_time("tcp", signal.SIGKILL, DEATH_BOUND_S, "--sync", *words)

    def test_those_who_compute_for_longer_are_ended_and_told_why(self):
        # A step takes that one several times as long as it has to notice.
        data = write_data(self.folder / "large", train=16384, test=10, compressed=False)
        process = self.start_training(
            "--workers", "2", "--data", str(data), "--model", "cnn", "--batch", "8192", "--epochs", "1000000",
            "--speeds", "1,0.25",
        )  # fmt: skip
        self.begin_to_train(process)
        workers = workers_of(process.pid)
        time.sleep(0.3)  # in the middle of the next step
        os.kill(workers[0], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn(f"worker 1 (process {workers[1]}) is ended: rank 0 was ended by signal 9 (Killed)", err)
        self.assert_nothing_left()

    def test_who_is_killed_before_all_have_met_is_named_in_time(self):
        took = []
        for _ in range(ATTEMPTS):
            process = self.start_training("--workers", "3", "--epochs", "1000000")
            self.addCleanup(process.kill)
            self.assertTrue(wait_until(lambda: sorted(workers_of(process.pid)) == [0, 1, 2], 30))
            began = time.monotonic()
            os.kill(workers_of(process.pid)[1], signal.SIGKILL)
            _, err = process.communicate(timeout=60)
            took.append(time.monotonic() - began)
            self.assertEqual(process.returncode, 1)
            for rank in (0, 2):  # by itself, or, where it still loaded, by who started it
                self.assertRegex(
                    err,
                    rf"rank {rank}: rank (1 |[02] cannot take part: it (was|has) ended as well: rank 1 )"
                    rf"|worker {rank} .* is ended: rank 1 was ended by signal 9",
                )
            self.assert_nothing_left()
            if took[-1] < DEATH_BOUND_S:
                return
        self.fail(f"{took} s, and {DEATH_BOUND_S} s are promised")

    def test_who_is_stopped_before_all_have_met_is_ended_and_named(self):
        process = self.start_training("--workers", "3", "--epochs", "1000000")
        self.addCleanup(process.kill)
        self.assertTrue(wait_until(lambda: sorted(workers_of(process.pid)) == [0, 1, 2], 30))
        stopped = workers_of(process.pid)[1]
        os.kill(stopped, signal.SIGSTOP)
        _, err = process.communicate(timeout=60)  # and not when the time for joining is over
        self.assertEqual(process.returncode, 1)
        self.assertIn(f"worker 1 (process {stopped}) is stopped, and is ended", err)
        for rank in (0, 2):
            self.assertRegex(  # by itself, or, where it still loaded, by who started it
                err,
                rf"rank {rank}: rank (1 |[02] cannot take part: it (was|has) ended as well: rank 1 ).*was stopped, and ended for that"
                rf"|worker {rank} .* is ended: rank 1 was stopped, and ended for that",
            )
        self.assert_nothing_left()

    def test_a_stopped_worker_is_given_up_when_the_user_says(self):
        self.lose_in_time("shm", signal.SIGSTOP, 3, "--dead-after-ms", "1000")

    def read_until(self, word: str, process: subprocess.Popen) -> list[str]:
        """The lines of stderr up to one with this word; a process that does not say it is ended."""
        lines: list[str] = []
        limit = threading.Timer(60, process.kill)
        limit.start()
        try:
            self.assertTrue(any(lines.append(line) or word in line for line in process.stderr), lines)
        finally:
            limit.cancel()
        return lines

    def begin_to_train(self, process: subprocess.Popen) -> None:
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.read_until("step ", process)

    def train_for_good(self, workers: int, *words: str) -> tuple[subprocess.Popen, list[int]]:
        """Slow workers that survive losses and wait for who is silent, until somebody ends them; and their processes."""
        process = self.start_training(
            "--workers", str(workers), "--survive", "--dead-after-ms", "600000", "--speeds", ",".join(["0.1"] * workers),
            "--epochs", "1000000", "--evaluate-every", "4", *words,
        )  # fmt: skip
        self.begin_to_train(process)
        return process, workers_of(process.pid)

    def survive(self, losses: tuple[int | tuple[int, ...], ...], *words: str, workers: int = 4) -> dict:
        """Trains while workers are killed, one by one or some at once, by their ranks at the beginning; what is left at the
        end."""
        file = self.folder / "result.json"
        process = self.start_training("--workers", str(workers), "--survive", "--json", str(file), *words)
        lines: list[str] = []

        def wait_for(word: str) -> None:
            lines.extend(self.read_until(word, process))

        self.begin_to_train(process)
        found = workers_of(process.pid)
        left = workers
        for loss in losses:
            at_once = loss if isinstance(loss, tuple) else (loss,)
            for lost in at_once:
                os.kill(found[lost], signal.SIGKILL)
            left -= len(at_once)
            wait_for(f"{left} worker{'s' if left > 1 else ''} go{'' if left > 1 else 'es'} on")
            self.assertIn("rank ", lines[-1])
            wait_for("step ")
        rest = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 0, "".join(lines) + rest)
        self.assert_nothing_left()
        return json.loads(file.read_text())

    def test_groups_of_workers_go_on_without_those_that_are_lost(self):
        # Rank 0, which gives samples out, and one of a group of two, whose other one joins others.
        words = ("--sync", "group", "--speeds", "0.1,0.1,0.05,0.05", "--evaluate-every", "4", "--steps", "40")
        run = self.survive((0, 2), *words)
        self.assertEqual((run["lost_workers"], run["settings"]["workers"], run["steps"]), (2, 2, 40))
        self.assertEqual(sum(run["shares"]), 64, "a step stays what it was")
        self.assertEqual(len(run["groups"]), 2)
        steps = [entry["step"] for entry in run["history"]]
        self.assertEqual(steps, sorted(set(steps)), "no evaluation is lost or comes twice")
        self.assertLess(run["history"][-1]["test_loss"], 1.5)

    def test_groups_go_on_when_a_whole_one_is_lost(self):
        # A member of the fast group, and then both of the slow one at once.
        words = ("--sync", "group", "--speeds", "0.1,0.1,0.1,0.03,0.03", "--evaluate-every", "4", "--epochs", "7", "--steps", "50")
        for losses in ((1, (3, 4)), ((3, 4), 0), ((0, 1, 2),)):
            with self.subTest(losses=losses):
                run = self.survive(losses, *words, workers=5)
                lost = sum(len(each) if isinstance(each, tuple) else 1 for each in losses)
                self.assertEqual((run["lost_workers"], run["settings"]["workers"], run["steps"]), (lost, 5 - lost, 50))
                self.assertEqual(sum(run["shares"]), 80, "a step stays what it was")
                self.assertEqual(len(run["groups"]), 5 - lost, "each has one")
                self.assertLess(run["history"][-1]["test_loss"], 1.5)

    def test_workers_in_step_go_on_without_those_that_are_lost(self):
        for words, losses in (
            (("--sync", "bsp", "--compress", "int8"), (1,)),
            (("--sync", "local:3", "--transport", "tcp", "--optimizer", "adamw", "--lr", "0.003"), (3,)),
            (("--sync", "ad-psgd"), (0, 1, 2)),
            (("--sync", "bsp", "--transport", "grpc"), (2, 0)),
        ):
            with self.subTest(words=words):
                slow = ("--speeds", "0.1,0.1,0.1,0.1", "--evaluate-every", "4", "--steps", "40", *words)
                run = self.survive(losses, *slow)
                self.assertEqual((run["lost_workers"], run["steps"]), (len(losses), 40))
                self.assertLess(run["history"][-1]["test_loss"], 2)

    def test_who_is_lost_while_the_others_meet_is_left_behind_too(self):
        # Rank 0 waits for rank 1, to say who goes on without rank 2.
        process, workers = self.train_for_good(3, "--sync", "group")
        os.kill(workers[1], signal.SIGSTOP)
        os.kill(workers[2], signal.SIGKILL)
        self.assertTrue(wait_until(lambda: any(self.temporary.glob("ranvier-*/speaker-1"))))
        os.kill(workers[0], signal.SIGKILL)
        os.kill(workers[1], signal.SIGCONT)
        self.read_until("; 1 worker goes on", process)
        self.read_until("step ", process)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 128 + signal.SIGINT)
        self.assert_nothing_left()

    def number_waits(self, number: int) -> bool:
        """Whether this process, counted behind the first workers, has said that it waits to be let in."""
        return any(self.temporary.glob(f"ranvier-*/alive-{number}"))

    def lose_and_get_back(self, losses: tuple[int, ...], *words: str, workers: int = 4) -> dict:
        """Trains while workers are killed, one by one, each by its rank at the beginning, and is joined by the next before the
        next is killed; what is left at the end."""
        file = self.folder / "result.json"
        process = self.start_training(
            "--workers", str(workers), "--survive", "--max-restarts", str(len(losses)), "--dead-after-ms", "600000",
            "--evaluate-every", "4", "--json", str(file), *words,
        )  # fmt: skip
        self.begin_to_train(process)
        said: list[str] = []
        for number, lost in enumerate(losses):
            before = workers_of(process.pid)[lost]
            os.kill(before, signal.SIGKILL)
            self.assertTrue(wait_until(lambda lost=lost, before=before: workers_of(process.pid).get(lost, before) != before, 60))
            newcomer = workers_of(process.pid)[lost]
            os.kill(newcomer, signal.SIGSTOP)
            said += self.read_until("workers go on", process)
            if f"; {workers - 1} workers" in said[-1]:  # else it was there before the others had met
                said += self.read_until("step ", process)
                # However long it takes to start, the others have not ended by then.
                held = workers_of(process.pid)[min(set(range(workers)) - {lost})]
                os.kill(held, signal.SIGSTOP)
                os.kill(newcomer, signal.SIGCONT)
                self.assertTrue(wait_until(lambda number=number: self.number_waits(workers + number), 120))
                os.kill(held, signal.SIGCONT)
                said += self.read_until("workers go on", process)
            else:
                os.kill(newcomer, signal.SIGCONT)
            self.assertIn(f"1 worker has come; {workers} workers go on", said[-1])
            said += self.read_until("step ", process)
        rest = process.communicate(timeout=300)[1]
        self.assertEqual(process.returncode, 0, "".join(said) + rest)
        self.assertEqual(sum("is started again" in line for line in said), len(losses), said)
        self.assert_nothing_left()
        run = json.loads(file.read_text())
        counts = [run[key] for key in ("lost_workers", "returned_workers")] + [run["settings"]["workers"]]
        self.assertEqual(counts, [len(losses), len(losses), workers])
        steps = [entry["step"] for entry in run["history"]]
        self.assertEqual(steps, sorted(set(steps)), "no evaluation is lost or comes twice")
        self.assertEqual(steps[-1], run["steps"])
        return run

    def test_a_worker_that_comes_back_is_in_a_group_again(self):
        # Parameters stay where they are at this rate, so that the mean loss between two evaluations tells whether just those
        # samples were used that plain training takes there: one of 256 too many or too few is seen in the fifth digit.
        still = ("--lr", "1e-12", "--epochs", "12", "--steps", "100")
        plain = self.results("--workers", "1", "--batch", "64", "--evaluate-every", "4", *still)
        for lost in (1, 0):  # rank 0 gives samples out
            with self.subTest(lost=lost):
                words = ("--sync", "group", "--speeds", "0.1,0.1,0.03,0.03", *still)
                run = self.lose_and_get_back((lost,), *words)
                self.assertEqual(len(set(run["groups"])), 2, run["groups"])
                self.assertEqual(run["groups"][2], run["groups"][3], "the last one has the speed of the one before")
                self.assertEqual(sum(run["shares"]), 64)
                self.assertGreater(run["shares"][0], run["shares"][3])
                self.compare_losses(run, plain, most_others=1)

    def compare_losses(self, run: dict, plain: dict, most_others: int) -> None:
        """Of two runs with the same parameters; so many of the means may be of other samples, those of periods with a loss."""
        losses = [[entry["loss"] for entry in each["history"]] for each in (run, plain)]
        self.assertEqual([entry["step"] for entry in run["history"]], [entry["step"] for entry in plain["history"]])
        others = [(mine, theirs) for mine, theirs in zip(*losses, strict=True) if mine is None or abs(mine - theirs) > 4e-6 * theirs]
        self.assertLessEqual(len(others), most_others, others)

    def test_workers_in_step_are_joined_by_one_that_comes_back(self):
        # As if nothing had been lost: every step has its samples, whoever computes them.
        steps = ("--epochs", "10", "--steps", "80")
        plain = self.results("--workers", "1", "--batch", "64", "--evaluate-every", "4", *steps)
        run = self.lose_and_get_back((0, 2), "--sync", "bsp", "--speeds", "0.1,0.1,0.1,0.1", *steps)
        for mine, theirs in zip(run["history"], plain["history"], strict=True):
            self.assertAlmostEqual(mine["test_loss"], theirs["test_loss"], delta=0.02 * theirs["test_loss"])

    def test_so_are_those_of_other_policies(self):
        for words in (
            ("--sync", "local:3", "--transport", "tcp", "--optimizer", "adamw", "--lr", "0.003"),
            ("--sync", "diloco:8,fragments=2,delay=2", "--optimizer", "adamw", "--lr", "0.003"),
            ("--sync", "ad-psgd"),
            ("--sync", "async:servers=1", "--compress", "int8"),
            ("--sync", "ssp:2", "--transport", "grpc"),
        ):
            with self.subTest(words=words):
                steps = ("--epochs", "8", "--steps", "80")
                run = self.lose_and_get_back((1,), "--speeds", "0.1,0.1,0.1", *steps, *words, workers=3)
                self.assertLess(run["history"][-1]["test_loss"], 2.2)

    def test_one_that_comes_back_and_is_lost_on_the_way_is_left_behind(self):
        words = ("--sync", "group", "--speeds", "0.1,0.1,0.1", "--evaluate-every", "4", "--epochs", "1000000")
        process = self.start_training("--workers", "3", "--survive", "--max-restarts", "1", *words)
        self.begin_to_train(process)
        os.kill(workers_of(process.pid)[1], signal.SIGKILL)
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(process.stderr,))
        reader.start()
        self.assertTrue(wait_until(lambda: self.number_waits(3), 120))
        newcomer = workers_of(process.pid)[1]
        os.kill(newcomer, signal.SIGSTOP)  # it is let in, does not meet the others, and is ended for that
        left = "; 2 workers go on\n"
        self.assertTrue(wait_until(lambda: any("is stopped, and is ended" in line for line in lines), 120), lines)
        at = next(i for i, line in enumerate(lines) if "is stopped, and is ended" in line)
        self.assertTrue(wait_until(lambda: any(line.endswith(left) for line in lines[at:]), 120), lines)
        at = next(i for i, line in enumerate(lines) if i > at and line.endswith(left))
        self.assertTrue(wait_until(lambda: any(line.startswith("step ") for line in lines[at:]), 120), lines)
        process.send_signal(signal.SIGINT)
        reader.join()
        self.assertTrue(any(line.endswith("1 worker has come; 3 workers go on\n") for line in lines), lines)
        self.assertEqual(process.wait(timeout=60), 128 + signal.SIGINT)
        self.assert_nothing_left()

    def test_one_that_comes_back_when_nobody_is_left_ends(self):
        process, workers = self.train_for_good(2, "--max-restarts", "9")
        os.kill(workers[1], signal.SIGKILL)
        self.read_until("1 worker goes on", process)
        os.kill(workers[0], signal.SIGSTOP)
        self.assertTrue(wait_until(lambda: self.number_waits(2), 120))
        os.kill(workers[0], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("all the workers have ended that this one was started to join", err)
        self.assertLess(err.count("is started again"), 4, "nobody is left to be joined")
        self.assert_nothing_left()

    def test_restarts_are_for_those_who_survive(self):
        refused = self.train("--workers", "2", "--max-restarts", "1", "--steps", "1")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("add --survive", refused.stderr)

    def test_a_stopped_worker_is_left_behind(self):
        words = ("--sync", "bsp", "--speeds", "0.1,0.1,0.1", "--evaluate-every", "4", "--steps", "40", "--dead-after-ms", "1000")
        file = self.folder / "result.json"
        process = self.start_training("--workers", "3", "--survive", "--json", str(file), *words)
        self.begin_to_train(process)
        os.kill(workers_of(process.pid)[1], signal.SIGSTOP)
        _, rest = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, rest)
        self.assertIn("2 workers go on", rest)
        run = json.loads(file.read_text())
        self.assertEqual((run["lost_workers"], run["steps"]), (1, 40))

    def test_survivors_whose_result_is_not_written_fail(self):
        results = self.folder / "results"
        results.mkdir()
        words = ("--speeds", "0.1,0.1", "--evaluate-every", "4", "--steps", "12", "--json", str(results / "result.json"))
        process = self.start_training("--workers", "2", "--survive", *words)
        self.begin_to_train(process)
        results.rmdir()
        results.write_text("no folder any more")
        _, rest = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, rest)
        self.assertIn("result.json", rest)
        self.assert_nothing_left()

    def test_who_is_killed_before_all_have_met_is_not_survived(self):
        process = self.start_training("--workers", "3", "--survive", "--epochs", "1000000")
        self.addCleanup(process.kill)
        self.assertTrue(wait_until(lambda: sorted(workers_of(process.pid)) == [0, 1, 2], 30))
        os.kill(workers_of(process.pid)[1], signal.SIGKILL)
        _, err = process.communicate(timeout=60)  # and not when the time for joining is over
        self.assertEqual(process.returncode, 1, err)
        self.assertNotIn("go on", err)
        self.assert_nothing_left()

    def test_what_does_not_suit_one_worker_fewer_is_not_survived(self):
        for workers, *words in (
            (4, "--place", "node=4"),
            (4, "--algorithm", "torus:2x2"),
            (4, "--topology", "torus:2x2"),
            (3, "--sync", "async:servers=2"),
        ):
            with self.subTest(words=words):
                refused = self.train("--workers", str(workers), "--survive", "--steps", "1", *words)
                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn(f"--survive is to go on with {workers - 1} of {workers} workers", refused.stderr)

    def test_those_of_divided_models_name_it_by_its_rank_among_all(self):
        # Rank 2 is the first of two in one of its groups and the second in the other; rank 1 is in none with it.
        self.lose_in_time("shm", signal.SIGKILL, DEATH_BOUND_S, "--parallel", "tensor:2", "--model", "mlp")

    def test_a_stopped_worker_ends_the_others_within_the_heartbeat_limit(self):
        self.lose_in_time("tcp", signal.SIGSTOP, SILENCE_BOUND_S)

    def test_a_killed_launcher_takes_its_workers_along(self):
        process, workers, _ = self.start_endless(2, "shm")
        process.kill()
        self.assertTrue(wait_until(lambda: all(self.has_ended(pid) for pid in workers.values()), 30))
        self.assertTrue(wait_until(lambda: not os.listdir(self.temporary), 30), os.listdir(self.temporary))
        self.assert_nothing_left()

    def test_nothing_is_left_of_a_killed_keeper_of_workers(self):
        process, workers, said = self.start_endless(2, "shm")
        (keeper,) = program.children_of(process.pid)
        os.kill(keeper, signal.SIGKILL)
        process.wait(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL)
        self.assertIn("ranvier: the process that kept the workers was ended by signal 9 (Killed), and they with it\n", said())
        self.assertTrue(wait_until(lambda: all(self.has_ended(pid) for pid in workers.values()), 30))
        self.assert_nothing_left()

    def test_an_interrupt_ends_all(self):
        process, workers, _ = self.start_endless(2, "tcp")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertTrue(all(self.has_ended(pid) for pid in workers.values()))
        self.assert_nothing_left()

    def test_a_terminal_that_hangs_up_ends_all(self):
        # Of a session's processes the kernel tells its leader alone.
        leader, terminal = pty.fork()
        if leader == 0:
            words = self.words("--workers", "2", "--transport", "shm", "--epochs", "1000000", "--evaluate-every", "1")
            os.execve(program.RANVIER, [program.RANVIER, *words], self.environment())
        said = b""
        while b"step      2" not in said:
            said += os.read(terminal, 4096)
        workers = workers_of(leader)
        self.assertEqual(sorted(workers), [0, 1])
        os.close(terminal)
        ended = wait_until(lambda: all(self.has_ended(pid) for pid in workers.values()), 60)
        if not ended:
            os.kill(leader, signal.SIGKILL)  # which takes them along
        os.waitpid(leader, 0)
        self.assertTrue(ended)
        self.assert_nothing_left()

    def start_rank(self, rank: int, *words: str, **place: str):
        """A rank of two that are started one by one, as a scheduler would."""
        place = place or {"RANVIER_STORE": str(self.folder / "store")}
        process = self.start_training(*words, variables={"RANVIER_RANK": str(rank), "RANVIER_WORLD": "2", **place})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def pair(self, *words_of_ranks: tuple[str, ...], **place: str):
        """What each of them returned."""
        processes = [self.start_rank(rank, *words, **place) for rank, words in enumerate(words_of_ranks)]
        return [(*process.communicate(timeout=60), process.returncode) for process in processes]

    def test_a_world_that_does_not_fill_up_names_who_is_missing(self):
        ((_, err, code),) = self.pair(("--join-timeout", "0.5"))
        self.assertEqual(code, 1)
        self.assertIn("ranvier train, rank 0:", err)
        self.assertIn("rank 1", err)

    def master(self) -> dict[str, str]:
        """A place where rank 0 is to serve torch's store."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}

    def test_a_worker_that_cannot_begin_tells_the_others_why(self):
        # None has 5 minutes for it, which is how long they would wait for one that is late.
        nowhere = str(self.folder / "nowhere")
        for words, problem in (
            (("--data", nowhere), f"there is no folder or file '{nowhere}'"),
            (("--model", "transformer"), "learns from text"),
            (("--batch", "1000000"), "training samples are too few"),
            (("--compress", "bf61"), "did you mean 'bf16'?"),
            (("--compress", "rans+int8"), "'int8' stands behind 'rans'"),
            (("--sync", "lokal:4"), "did you mean 'local'?"),
            (("--plan", nowhere), nowhere),
            (("--config", nowhere), nowhere),
        ):
            for bad in range(2):
                for place in ({"RANVIER_STORE": str(self.folder / f"store-{bad}-{words[0]}")}, self.master()):
                    with self.subTest(words=words, bad=bad, place=place):
                        told = self.pair(*(words if rank == bad else () for rank in range(2)), **place)
                        for rank, (_, err, code) in enumerate(told):
                            self.assertNotEqual(code, 0)
                            self.assertEqual(len(err.splitlines()), 1, err)
                            self.assertTrue(err.startswith(f"ranvier train, rank {rank}: "), err)
                            self.assertIn(problem, err)
                        self.assertIn(f"rank {bad} cannot take part: ", told[1 - bad][1])

    def test_a_worker_that_cannot_begin_says_so_before_the_others_come(self):
        bad = self.start_rank(1, "--data", str(self.folder / "nowhere"))
        self.assertIn("there is no folder or file", bad.stderr.readline())
        other = self.start_rank(0)
        self.assertIn("rank 1 cannot take part: there is no folder or file", other.communicate(timeout=60)[1])
        bad.communicate(timeout=60)
        self.assertEqual((bad.returncode, other.returncode), (1, 1))

    def test_ranks_that_disagree_where_one_serves_the_store_all_say_on_what(self):
        for _ in range(5):
            for _, err, code in self.pair(("--transport", "tcp"), ("--transport", "shm"), **self.master()):
                self.assertEqual(code, 1)
                self.assertIn("rank 0 has transport 'tcp' and rank 1 has 'shm'", err)

    def test_two_names_of_one_algorithm_are_no_disagreement(self):
        words = ("--steps", "1", "--evaluate-every", "0", "--algorithm")
        for _, err, code in self.pair((*words, "butterfly"), (*words, "halving_doubling")):
            self.assertEqual(code, 0, err)

    def test_workers_with_other_settings_are_told_which_before_they_train(self):
        for told, *words in (
            ("--lr '0.2' (rank 0: '0.1')", "--lr 0.1", "--lr 0.2"),
            ("--seed '2' (rank 0: '1')", "--seed 1 --parallel tensor:2", "--seed 2 --parallel tensor:2"),
            ("--model 'mlp' (rank 0: 'cnn')", "--model cnn", "--model mlp"),
            ("--weight-decay '0.2' (rank 0: '0.1')", "--weight-decay 0.1", "--weight-decay 0.2"),
            ("--steps '4' (rank 0: '3')", "--steps 3", "--steps 4"),
            ("--bucket '131072' (rank 0: '65536')", "--bucket 64K", "--bucket 128K"),
            ("--sync 'local:2' (rank 0: 'bsp')", "--sync bsp", "--sync local:2"),
            ("--parallel 'tensor:2' (rank 0: 'none')", "--model mlp", "--model mlp --parallel tensor:2"),
            ("--compress 'int8' (rank 0: 'none')", "--steps 1", "--steps 1 --compress int8"),
            ("--lr '0.002' (rank 0: '0.1'), --optimizer 'adamw' (rank 0: 'sgd')",
             "--lr 0.1 --optimizer sgd", "--lr 0.002 --optimizer adamw"),
        ):  # fmt: skip
            with self.subTest(words=words):
                for _, err, code in self.pair(*(("--evaluate-every", "0", *each.split()) for each in words)):
                    self.assertEqual(code, 1)
                    self.assertIn(f"rank 1 has {told}; give all ranks the same", err)
                shutil.rmtree(self.folder / "store")


if __name__ == "__main__":
    main()
