"""Workers that go on without those that are lost (--survive), and with those that are started in their place (--max-restarts)."""

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import threading
import time

import program
from program import main, wait_until
from training import TrainingTest, workers_of


CHECKPOINT = b"ranvier checkpoint "  # begins with it


def read_until_it_ends(pipe: str, process: subprocess.Popen) -> bytes:
    """All that a process writes into a pipe, be it opened once or several times, one behind another or not."""
    read = b""
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            has_ended = process.poll() is not None
            try:
                part = os.read(end, 1 << 20)
            except BlockingIOError:
                part = b""
            read += part
            if not part and has_ended:
                break
            time.sleep(0 if part else 0.001)
    finally:
        os.close(end)
    return read


class Survivors(TrainingTest):
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

    def test_their_checkpoints_are_what_all_workers_go_on_from(self):
        # Of policies whose replicas differ it is their mean. 4 workers x 16 of 640 samples: 10 steps an epoch.
        for sync in ("bsp", "local:7", "async", "group"):
            with self.subTest(sync=sync):
                file = str(self.folder / f"checkpoint-{sync[:5]}")
                words = ("--sync", sync, "--epochs", "6", "--evaluate-every", "4", "--save", file)
                lossy = self.survive((0 if sync == "bsp" else 1,), *words, "--speeds", "0.1,0.1,0.1,0.1", "--steps", "38")
                self.assertEqual((lossy["lost_workers"], lossy["steps"]), (1, 38))
                run = self.results(*words[:4], "--workers", "4", "--steps", "39", "--resume", file, "--survive")
                self.assertEqual((run["steps"], run["settings"]["workers"]), (39, 4))
                self.assertAlmostEqual(run["history"][-1]["test_loss"], lossy["history"][-1]["test_loss"], delta=0.1)

    def test_what_was_not_written_when_one_was_lost_is_written_by_the_others(self):
        # Who writes is killed while it does; a pipe takes nothing until it is read.
        pipe, file = str(self.folder / "pipe"), self.folder / "checkpoint"
        os.mkfifo(pipe)
        for steps, epochs in ((10, 1), (20, 2)):  # the last of training, and that of an epoch, of 14 steps
            with self.subTest(steps=steps):
                words = ("--workers", "3", "--model", "mlp", "--epochs", str(epochs))
                process = self.start_training(*words, "--steps", str(steps), "--survive", "--save", pipe)
                self.begin_to_train(process)
                writer = workers_of(process.pid)[0]
                os.kill(writer, signal.SIGKILL)
                self.read_until("2 workers go on", process)
                written = read_until_it_ends(pipe, process)
                _, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, err)
                self.assertEqual(written.count(CHECKPOINT), epochs)
                file.write_bytes(written[written.rindex(CHECKPOINT) :])
                run = self.results(*words, "--steps", str(steps + 1), "--resume", str(file))
                self.assertEqual(run["steps"], min(steps + 1, 14 * epochs))

    def test_their_checkpoints_before_a_loss_are_as_others(self):
        words = ("--workers", "2", "--sync", "local:7", "--compress", "int8", "--epochs", "2", "--survive")
        file = str(self.folder / "checkpoint")
        whole = self.results(*words, "--steps", "27")
        self.results(*words, "--steps", "20", "--save", file)
        self.assertEqual(self.results(*words, "--steps", "27", "--resume", file)["parameter_hash"], whole["parameter_hash"])

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

    def test_all_nodes_stop_where_one_has_lost_a_worker(self):
        # Behind step 80 of 320, each of 20 ms or more, of 4 samples; all nodes meet at step 160.
        words = ("--place", "node=2", "--sync", "node:300", "--batch", "1", "--sample-ms", "20", "--evaluate-every", "80")
        run = self.survive((3,), *words, "--epochs", "2")
        self.assertEqual((run["lost_workers"], run["steps"]), (1, 320))
        self.assertGreater(run["seconds"] * run["samples_per_second"], 800, "the other node has not gone on for long")

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
        """Whether this process, counted behind the first workers, has said that it waits to be let in: it holds its file, which
        is there a moment before that."""
        for sign in self.temporary.glob(f"ranvier-*/alive-{number}"):
            with sign.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
        return False

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
        slowly = ("--lr", "0.03")  # by 0.1 late gradients make the loss jump, and a run on busy cores ended by such a jump
        for words in (
            ("--sync", "local:3", "--transport", "tcp", "--optimizer", "adamw", "--lr", "0.003"),
            ("--sync", "diloco:8,fragments=2,delay=2", "--optimizer", "adamw", "--lr", "0.003"),
            ("--sync", "local:6,delay=5", "--lr", "0.03"),
            ("--sync", "ad-psgd", *slowly),
            ("--sync", "async:servers=1", "--compress", "int8", *slowly),
            ("--sync", "ssp:2", "--transport", "grpc", *slowly),
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

    def test_one_that_is_let_in_and_dies_before_it_has_come_keeps_nobody_waiting(self):
        # For the 30 s of a meeting: it has no connection yet that would close.
        process, workers = self.train_for_good(3, "--sync", "local:3", "--max-restarts", "1")
        os.kill(workers[1], signal.SIGKILL)
        self.assertTrue(wait_until(lambda: self.number_waits(3), 120))
        newcomer = workers_of(process.pid)[1]
        os.kill(newcomer, signal.SIGSTOP)
        self.assertTrue(wait_until(lambda: self.number_is_let_in(3), 120))
        began = time.monotonic()
        os.kill(newcomer, signal.SIGKILL)
        said = self.read_until("; 2 workers go on", process)
        while "died on its way to the others" not in said[-1]:  # the first loss may come first
            said += self.read_until("; 2 workers go on", process)
        self.assertLess(time.monotonic() - began, 20, said)
        self.read_until("step ", process)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 128 + signal.SIGINT)
        self.assert_nothing_left()

    def number_is_let_in(self, number: int) -> bool:
        records = self.temporary.glob("ranvier-*/meeting-*members")
        return any(str(number) in record.read_text().splitlines()[0].split() for record in records)

    def test_whoever_is_killed_when_the_run_ends(self):
        # By chance, but by the same one each time: newcomers too, two in quick succession, and those who meet.
        for seed in range(3):
            with self.subTest(seed=seed):
                chance = random.Random(seed)
                file = self.folder / f"result-{seed}.json"
                words = ("--sync", "local:3", "--speeds", "0.2,0.2,0.2", "--evaluate-every", "2", "--steps", "16")
                process = self.start_training("--workers", "3", "--survive", "--max-restarts", "4", "--json", str(file), *words)
                self.begin_to_train(process)
                for _ in range(4):
                    time.sleep(chance.choice((0, 0.1, 1)) * chance.random())
                    if workers := workers_of(process.pid):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(chance.choice(sorted(workers.values())), signal.SIGKILL)
                _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 0 if file.exists() else 1, err)
                if not file.exists():
                    self.assertIn("was ended by signal 9", err)
                self.assert_nothing_left()

    def test_the_others_report_when_the_first_is_lost_before_it_has(self):
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):  # so that rank 0 waits for room to print the result
            while True:
                os.write(writing, b" " * 65536)
        os.set_blocking(writing, True)
        file = self.folder / "result.json"
        words = ("--sync", "local:3", "--steps", "8", "--evaluate-every", "4", "--json", str(file))
        process = subprocess.Popen(
            [program.RANVIER, *self.words("--workers", "3", "--survive", *words)],
            stdout=writing, stderr=subprocess.PIPE, text=True, env=self.environment(),
        )  # fmt: skip
        os.close(writing)
        self.begin_to_train(process)
        workers = workers_of(process.pid)
        self.read_until("step      8", process)
        time.sleep(1)
        os.kill(workers[0], signal.SIGKILL)
        with open(reading) as output:
            said = output.read()
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("somebody was lost before the result had been reported; 2 workers go on", err)
        self.assertIn("workers", said)
        run = json.loads(file.read_text())
        self.assertEqual((run["lost_workers"], run["steps"], [each["step"] for each in run["history"]]), (1, 8, [4, 8]))
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
        self.assertEqual(rest.count("result.json"), 1, rest)
        self.assert_nothing_left()

    def test_who_is_killed_before_all_have_met_is_not_survived(self):
        process, keeper, workers = self.start_some(6, "--survive", "--epochs", "1000000")
        os.kill(workers[0], signal.SIGKILL)
        os.kill(keeper, signal.SIGCONT)
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


if __name__ == "__main__":
    main()
