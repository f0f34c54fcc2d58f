"""Checkpoints: what a resumed run makes of them, whatever the policy, optimizer and codec, and how damaged ones are refused."""

import contextlib
import json
import os
import pathlib
import signal
import time

from program import main, run, wait_until
from training import TrainingTest, workers_of

# 20 steps an epoch; without measured links, by which two runs may add in different orders.
WORDS = ("--workers", "2", "--place", "node=2", "--model", "mlp", "--epochs", "1", "--no-measure")


class CheckpointTest(TrainingTest):
    def interrupted(self, words: tuple[str, ...], stop: int, steps: int, name: str) -> tuple[str, str, str]:
        """The parameters that a whole run ends with, one until it is saved as `name`, and one that goes on from there."""
        part = self.folder / f"part-{name}"
        runs = (("--steps", steps), ("--steps", stop, "--save", part), ("--steps", steps, "--resume", part))
        whole, stopped, resumed = (self.results(*words, *map(str, each))["parameter_hash"] for each in runs)
        return whole, stopped, resumed


class Resuming(CheckpointTest):
    def test_a_resumed_run_ends_with_the_same_bits(self):
        # 640 samples, 2 workers x 16: 20 steps an epoch. Stops inside an epoch, at its end, and in the next.
        whole = self.results("--workers", "2", "--steps", "25", "--save", str(self.folder / "whole"))
        for stop in ("7", "20", "24"):
            with self.subTest(stop=stop):
                place = self.folder / f"part-{stop}"
                part = self.results("--workers", "2", "--steps", stop, "--save", str(place))
                resumed = self.results("--workers", "2", "--steps", "25", "--resume", str(place))
                self.assertNotEqual(part["parameter_hash"], whole["parameter_hash"])
                self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])
                self.assertEqual(resumed["steps"], 25)

    def test_a_run_that_ended_as_a_part_of_its_parameters_left_ends_again_with_the_same_bits(self):
        # 640 samples, 3 workers x 27: the last of 8 steps has fewer for two of them.
        file = str(self.folder / "checkpoint")
        words = ("--workers", "3", "--batch", "27", "--epochs", "1", "--model", "mlp", "--sync", "diloco:4,delay=3")
        whole = self.results(*words, "--evaluate-every", "8", "--save", file)
        again = self.results(*words, "--resume", file)
        self.assertEqual((again["steps"], again["parameter_hash"]), (8, whole["parameter_hash"]))
        self.assertAlmostEqual(whole["history"][-1]["test_loss"], whole["test_loss"], delta=1e-5)

    def test_four_workers_end_with_the_same_bits_too_whatever_their_links_are_like(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                words = ("--workers", "4", "--transport", transport)
                whole, _, resumed = self.interrupted(words, 4, 8, transport)
                self.assertEqual(resumed, whole)

    def test_a_resumed_run_chooses_as_the_one_that_was_saved(self):
        # Four ranks: algorithms add in different orders. The table stands in for what another day's links would give.
        table = self.folder / "tuning.txt"
        table.write_text("all_reduce shm 4 max parameter_server\n")
        words = ("--workers", "4", "--transport", "shm")
        whole = self.results(*words, "--steps", "8", "--tuning", str(table))
        part = self.folder / "part"
        self.results(*words, "--steps", "4", "--tuning", str(table), "--save", str(part))
        resumed = self.results(*words, "--steps", "8", "--resume", str(part))
        self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])
        other = self.results(*words, "--steps", "8", "--tuning", str(table), "--algorithm", "ring")
        self.assertNotEqual(other["parameter_hash"], whole["parameter_hash"])

    def test_a_checkpoint_with_all_steps_leaves_nothing_to_do_which_is_said(self):
        place = str(self.folder / "c.ck")
        self.results("--steps", "12", "--save", place)
        for steps in ("12", "5"):
            with self.subTest(steps=steps):
                file = self.folder / f"resumed-{steps}.json"
                result = self.train("--steps", steps, "--resume", place, "--json", str(file))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(f"c.ck is at step 12 already, and --steps {steps} asks for no more", result.stderr)
                self.assertNotIn("in training", result.stdout)
                run = json.loads(file.read_text())
                self.assertEqual((run["steps"], run["loss"], run["history"][0]["loss"]), (12, None, None))

    def test_what_a_codec_holds_back_is_resumed_too(self):
        for spec in ("dgc:0.01+int4:rounding=stochastic", "powersgd:2", "randk:0.5,ef=0"):  # which holds nothing back
            with self.subTest(codec=spec):
                whole, _, resumed = self.interrupted(("--workers", "2", "--compress", spec), 7, 12, spec[:4])
                self.assertEqual(resumed, whole)

    def test_a_killed_run_goes_on_from_its_last_epoch(self):
        whole = self.results("--workers", "2", "--epochs", "3")
        file = self.folder / "checkpoint"
        # Slow enough that it is still running when the first checkpoint appears.
        killed = self.start_training(
            "--workers", "2", "--epochs", "3", "--save", str(file), "--transport", "tcp", "--link-rate", "10Mbit"
        )
        self.assertTrue(wait_until(file.exists))
        killed.send_signal(signal.SIGTERM)
        killed.communicate(timeout=30)
        self.assertEqual(killed.returncode, 128 + signal.SIGTERM)
        resumed = self.results("--workers", "2", "--epochs", "3", "--resume", str(file))
        self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])
        self.assert_nothing_left()

    def writer_stopped(self, worker: int) -> bool:
        """Stops a worker in the middle of writing a checkpoint, which has no name before it is whole."""

        def writes() -> bool:
            for each in pathlib.Path(f"/proc/{worker}/fd").iterdir():
                with contextlib.suppress(OSError):  # it has just been closed
                    if os.readlink(each).startswith(f"{self.folder}/#"):
                        return True
            return False

        until = time.monotonic() + 60
        while time.monotonic() < until:
            if not writes():
                continue
            os.kill(worker, signal.SIGSTOP)
            time.sleep(0.05)  # until it has
            if writes():
                return True
            os.kill(worker, signal.SIGCONT)
        return False

    def test_who_is_killed_while_it_writes_a_checkpoint_leaves_the_one_before(self):
        file = self.folder / "checkpoint"
        words = ("--workers", "2", "--batch", "64", "--transport", "tcp", "--epochs", "1000000")
        process = self.start_training(*words, "--save", str(file))
        self.addCleanup(process.kill)
        self.assertTrue(wait_until(file.exists))
        names = {path.name for path in self.folder.iterdir()}
        writer = workers_of(process.pid)[0]
        self.assertTrue(self.writer_stopped(writer))
        before = file.read_bytes()
        os.kill(writer, signal.SIGKILL)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1)
        self.assertIn("rank 0", err)
        self.assertEqual(file.read_bytes(), before)
        self.assertEqual({path.name for path in self.folder.iterdir()}, names, "nothing of what was not whole stays")
        # It goes on from there, says so, and is where it would have been.
        saved = json.loads(before.split(b"\n", 2)[1])["step"]
        steps = str(saved + 7)
        result = self.folder / "resumed.json"
        said = self.train(*words, "--steps", steps, "--resume", str(file), "--json", str(result))
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, r"time +[0-9.]+ s for 7 steps \([0-9.]+ epochs in all\)")
        resumed, whole = json.loads(result.read_text()), self.results(*words, "--steps", steps)
        self.assertEqual(resumed["steps"], saved + 7)
        self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])
        self.assert_nothing_left()

    def test_a_run_that_had_ended_has_nothing_left_to_do(self):
        file = self.folder / "checkpoint"
        whole = self.results("--workers", "2", "--steps", "5", "--save", str(file))
        again = self.results("--workers", "2", "--steps", "5", "--resume", str(file))
        self.assertEqual(again["parameter_hash"], whole["parameter_hash"])
        self.assertEqual(again["accuracy"], whole["accuracy"])

    def test_a_checkpoint_goes_where_links_lead_and_to_devices(self):
        link, device, own = self.folder / "link", self.folder / "device", self.folder / "file.part"
        link.symlink_to("file")
        device.symlink_to("/dev/null")  # not by its own name: what replaces it would be everybody's
        own.write_text("the user's own")
        self.results("--workers", "2", "--steps", "2", "--save", str(link))
        self.results("--steps", "2", "--save", str(device))
        self.assertTrue(link.is_symlink() and device.is_symlink())
        self.assertEqual(self.results("--workers", "2", "--steps", "3", "--resume", str(self.folder / "file"))["steps"], 3)
        self.assertEqual(own.read_text(), "the user's own")

    def test_a_checkpoint_of_another_run_is_refused(self):
        file = self.folder / "checkpoint"
        self.results("--workers", "2", "--steps", "2", "--save", str(file))
        for words, difference in (
            (("--workers", "2", "--seed", "5"), "--seed 0 and this run has 5"),
            (("--workers", "4"), "workers 2 and this run has 4"),
            (("--workers", "2", "--model", "mlp"), "--model cnn and this run has mlp"),
            # Not by the learning rate that follows from it.
            (("--workers", "2", "--optimizer", "adamw"), "--optimizer sgd and this run has adamw"),
        ):
            self.assert_sentence(self.train("--steps", "3", "--resume", str(file), *words), 1, str(file), difference)

    def test_a_codec_is_not_begun_or_ended_where_nobody_has_kept_what_it_works_on(self):
        for policy in ("local:3", "gossip", "ad-psgd", "local:2,delay=1"):
            with self.subTest(policy=policy):
                file = self.folder / "checkpoint"
                words = ("--workers", "2", "--sync", policy, "--model", "mlp")
                self.results(*words, "--steps", "4", "--save", str(file))
                refused = self.train(*words, "--steps", "6", "--compress", "int8", "--resume", str(file))
                self.assert_sentence(refused, 1, str(file), "--compress none and this run has a codec")
        for policy in ("bsp", "diloco:3", "diloco:4,fragments=2,delay=1", "async"):
            with self.subTest(policy=policy):
                file = self.folder / "checkpoint"
                words = ("--workers", "2", "--sync", policy, "--model", "mlp")
                self.results(*words, "--steps", "4", "--save", str(file))
                self.assertEqual(self.results(*words, "--steps", "6", "--compress", "int8", "--resume", str(file))["steps"], 6)

    def test_a_checkpoint_that_is_none_is_refused_once_for_all_workers(self):
        file = self.folder / "checkpoint"
        self.results("--workers", "2", "--steps", "2", "--save", str(file))
        whole = file.read_bytes()
        damaged = self.folder / "damaged"
        damaged.write_bytes(whole[:-100] + b"x" + whole[-99:])
        foreign = self.folder / "foreign"
        foreign.write_bytes(b"PK\x03\x04")
        for path, problem in ((damaged, "damaged"), (foreign, "not a checkpoint"), (self.folder / "no", "cannot be opened")):
            result = self.train("--workers", "4", "--resume", str(path))
            self.assert_sentence(result, 1, str(path), problem)


class Interrupted(CheckpointTest):
    def test_each_policy_goes_on_bit_for_bit(self):
        # More of policies and codecs is tried without processes, in tests/replica.
        for sync, optimizer, compress in (
            ("bsp", "lars", "topk:0.1+int8"),
            ("post-local:4,after=0.2", "lamb", "int8"),
            ("slowmo:5", "sgd", "topk:0.1"),
            ("diloco:6,fragments=2,delay=2,merge=0.5", "adamw", "int8"),  # the first is under way then
            ("local:6,delay=4", "sgd", "int8"),  # as the first average is then
            ("gossip", "sgd", "int8"),
        ):
            with self.subTest(sync=sync, optimizer=optimizer, compress=compress):
                words = (*WORDS, "--sync", sync, "--optimizer", optimizer, "--compress", compress)
                whole, stopped, resumed = self.interrupted(words, 7, 11, sync[:4])
                self.assertEqual(resumed, whole)
                self.assertNotEqual(resumed, stopped)


if __name__ == "__main__":
    main()
