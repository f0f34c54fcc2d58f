"""Workers that die, stop, never come or disagree: every other worker ends soon and says whose fault it was."""

import itertools
import os
import pathlib
import pty
import shutil
import signal
import socket
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
            ("node:6,delay=5", "--place", "node=2"),
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

    def lose_before_all_have_met(self, sign: signal.Signals, why: str) -> float:
        """Checks that who comes later is told of the first one, and returns how many seconds later they had ended."""
        process, keeper, workers = self.start_some(6, "--epochs", "1000000")
        lost = min(workers)
        began = time.monotonic()
        os.kill(workers[lost], sign)
        os.kill(keeper, signal.SIGCONT)
        _, err = process.communicate(timeout=60)  # and not when the time for joining is over
        took = time.monotonic() - began
        self.assertEqual(process.returncode, 1)
        for rank in set(range(6)) - {lost}:  # by itself, or, where it was still to come, by who started it
            self.assertRegex(
                err,
                rf"rank {rank}: rank ({lost} |\d cannot take part: it (was|has) ended as well: rank {lost} ).*{why}"
                rf"|worker {rank} .* is ended: rank {lost} {why}",
            )
        self.assert_nothing_left()
        if sign == signal.SIGSTOP:
            self.assertIn(f"worker {lost} (process {workers[lost]}) is stopped, and is ended", err)
        return took

    def test_who_is_killed_before_all_have_met_is_named_in_time(self):
        took = []
        for _ in range(ATTEMPTS):
            took.append(self.lose_before_all_have_met(signal.SIGKILL, "was ended by signal 9"))
            if took[-1] < DEATH_BOUND_S:
                return
        self.fail(f"{took} s, and {DEATH_BOUND_S} s are promised")

    def test_who_is_stopped_before_all_have_met_is_ended_and_named(self):
        self.lose_before_all_have_met(signal.SIGSTOP, "was stopped, and ended for that")

    def test_a_stopped_worker_is_given_up_when_the_user_says(self):
        self.lose_in_time("shm", signal.SIGSTOP, 3, "--dead-after-ms", "1000")

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
        # Of what is found when files are read and of what is found before, each of two ranks in each place; the others in turn.
        everywhere = list(itertools.product(range(2), ("directory", "torch's store")))
        for number, (words, problem) in enumerate((
            (("--data", nowhere), f"there is no folder or file '{nowhere}'"),
            (("--model", "transformer"), "learns from text"),
            (("--batch", "1000000"), "training samples are too few"),
            (("--compress", "bf61"), "did you mean 'bf16'?"),
            (("--compress", "rans+int8"), "'int8' stands behind 'rans'"),
            (("--sync", "lokal:4"), "did you mean 'local'?"),
            (("--plan", nowhere), nowhere),
            (("--config", nowhere), nowhere),
        )):  # fmt: skip
            for bad, where in everywhere if words[0] in ("--data", "--config") else [everywhere[number % 4]]:
                with self.subTest(words=words, bad=bad, where=where):
                    directory = {"RANVIER_STORE": str(self.folder / f"store-{bad}-{number}")}
                    place = directory if where == "directory" else self.master()
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
