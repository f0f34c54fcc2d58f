"""Training with real processes: every worker ends with the same parameters, whatever carried the bytes."""

import contextlib
import json
import math
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
import tomllib
import unittest

from program import RANVIER, main, run, start, wait_until
from training import TrainingTest, workers_of

KEYS = {
    "accuracy",
    "loss",
    "epochs",
    "steps",
    "seconds",
    "samples_per_second",
    "bytes_sent_per_worker",
    "exposed_communication_share",
    "history",
    "settings",
    "environment",
}
# Of the table at the end, where neither options nor events add some.
TABLE = [
    "model",
    "workers",
    "test accuracy",
    "loss",
    "time",
    "samples/s",
    "sent per worker",
    "synchronization",
    "exposed communication",
    "bottleneck",
]
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


def read_terminal(terminal: int, into: bytearray) -> None:
    """Until nobody writes to it any more, which Linux tells by an error."""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 4096):
            into += part


def is_here(fabric: str) -> bool:
    """One with a library of its own, which a build or a machine may lack."""
    return f"transport {fabric:9} its library can be loaded" in run("doctor").stdout


class Training(TrainingTest):
    def test_the_loss_falls_and_workers_agree_on_every_transport(self):
        for workers in (2, 4):
            hashes = set()
            for transport in ("tcp", "shm"):
                with self.subTest(workers=workers, transport=transport):
                    # One algorithm, so that both add in the same order. That the workers agree the program checks itself.
                    run = self.results(
                        "--workers", str(workers), "--transport", transport, "--algorithm", "ring", "--steps", "10",
                        "--evaluate-every", "5",
                    )  # fmt: skip
                    self.assertEqual(run["settings"]["transport"], transport)
                    self.assertEqual(run["settings"]["workers"], workers)
                    self.assertEqual(run["steps"], 10)
                    first, last = run["history"][0], run["history"][-1]
                    self.assertLess(last["loss"], first["loss"])
                    self.assertLess(last["test_loss"], math.log(10), "no better than guessing")
                    hashes.add(run["parameter_hash"])
            self.assertEqual(len(hashes), 1)
        self.assert_nothing_left()

    def test_each_protocol_between_hosts_ends_with_the_same_bits(self):
        words = ("--algorithm", "ring", "--steps", "6", "--model", "mlp")
        expected = self.results("--workers", "2", "--transport", "tcp", *words)
        for transport in ("udp", "grpc", *filter(is_here, ["ucx"])):
            with self.subTest(transport=transport):
                run = self.results("--workers", "2", "--transport", transport, *words)
                self.assertEqual(run["settings"]["transport"], transport)
                self.assertEqual(run["parameter_hash"], expected["parameter_hash"])
        self.assert_nothing_left()

    def test_workers_agree_where_some_gradients_may_be_lost(self):
        for resync in ("", ",resync=2"):
            run = self.results("--workers", "3", "--transport", f"udp:loss=0.01{resync}", "--steps", "6", "--model", "mlp")
            self.assertLess(run["loss"], math.log(10))
            # A hundredth, and what a deadline takes away that passes while a process waits for its core: a transfer or two.
            self.assertLessEqual(run["lost_share"], 0.03)

    def test_one_worker_needs_no_others(self):
        run = self.results("--steps", "4", "--model", "mlp")
        self.assertEqual(run["bytes_sent_per_worker"], 0)
        self.assert_nothing_left()

    def test_json_holds_what_is_promised_and_nothing_else_is_written(self):
        file = self.folder / "run.json"
        result = self.train("--workers", "2", "--steps", "4", "--json", str(file))
        self.assertEqual(result.returncode, 0, result.stderr)
        run = json.loads(file.read_text())
        self.assertLessEqual(KEYS, run.keys())
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"run.json", "tmp"})
        for entry in run["history"]:
            self.assertLessEqual({"step", "seconds", "loss", "accuracy"}, entry.keys())
        self.assertEqual(run["history"][-1]["accuracy"], run["accuracy"])
        self.assertTrue(0 <= run["exposed_communication_share"] <= 1)
        table = {line[:22].rstrip(): line[23:] for line in result.stdout.splitlines()}
        self.assertEqual(list(table), TABLE, result.stdout)
        self.assertEqual(table["test accuracy"], f"{run['accuracy'] * 100:.2f} %")
        self.assertEqual(table["loss"], f"{run['loss']:.4f} in training, {run['test_loss']:.4f} in test")
        # 640 samples, 2 workers x 16: 20 steps an epoch.
        self.assertEqual(table["time"], f"{run['seconds']:.1f} s for 4 steps (0.20 epochs in all)")
        self.assertEqual(table["samples/s"], f"{run['samples_per_second']:,.0f}")
        self.assertEqual(
            table["exposed communication"], f"{run['exposed_communication_share'] * 100:.1f} % of the time of a step"
        )
        self.assertNotIn("\r", result.stderr, "a progress bar where no terminal is")

    def test_a_terminal_has_a_bar_while_it_lasts(self):
        terminal, stderr = pty.openpty()
        self.addCleanup(os.close, terminal)
        shown = bytearray()
        process = start(*self.words("--workers", "2", "--steps", "8"), env=self.environment(), stderr=stderr)
        os.close(stderr)
        reader = threading.Thread(target=read_terminal, args=(terminal, shown), daemon=True)
        reader.start()
        out, _ = process.communicate(timeout=120)
        reader.join(timeout=30)
        text = shown.decode()
        self.assertEqual(process.returncode, 0, text)
        bar = re.compile(r"\r\x1b\[K\[(=*)( *)\] step (\d+)/8  loss \d+\.\d{4}  \d+ samples/s")
        bars = bar.findall(text)
        self.assertIn("1", [step for _, _, step in bars], text)
        for full, rest, step in bars:
            self.assertEqual((len(full), len(full + rest)), (24 * int(step) // 8, 24), text)
        self.assertEqual(len(bars), len({step for _, _, step in bars}), "one worker speaks for all")
        # What stays: the line of the evaluation, on a line that was wiped.
        self.assertRegex(bar.sub("", text), r"\A\r\x1b\[Kstep +8  loss .*  test accuracy .* s\r\n\Z")
        self.assertNotIn("\r", out)

    def test_json_alone_may_go_to_stdout(self):
        result = self.train("--workers", "2", "--steps", "2", "--json", "-")
        self.assertEqual(json.loads(result.stdout)["steps"], 2)

    def test_codecs_train_and_send_the_bits_that_they_promise(self):
        # Bits with scales and the odd part that is not a whole block; 2 % for lengths of messages.
        for spec, bits in (("hadamard:32+int4", 4.25), ("eden:1", 1.05)):
            with self.subTest(codec=spec):
                run = self.results("--workers", "3", "--steps", "20", "--compress", spec)
                self.assertAlmostEqual(run["bits_per_parameter"] / bits, 1, delta=0.08)
                self.assertLess(run["loss"], math.log(10) * 0.9)
                self.assertEqual(run["plain_buckets"], 0)
        for spec in ("topk:0.01+int8+rans", "powersgd:2"):
            with self.subTest(codec=spec):
                run = self.results("--workers", "3", "--steps", "20", "--compress", spec)
                self.assertLess(run["bits_per_parameter"], 4)
                self.assertGreater(run["codec_state_bytes"], 0)

    def test_a_worker_sends_what_the_ring_says(self):
        # 2 (n-1)/n of the gradients each step, give or take the headers and the uneven chunks.
        run = self.results("--workers", "4", "--algorithm", "ring", "--steps", "6")
        expected = 6 * run["parameters"] * 4 * 2 * 3 / 4
        self.assertAlmostEqual(run["bytes_sent_per_worker"] / expected, 1, delta=0.001)

    def test_bf16_sends_half_and_learns_as_well(self):
        plain, coded = (
            self.results("--workers", "2", "--steps", "20", "--compress", spec) for spec in ("none", "bf16")
        )
        self.assertEqual(coded["bytes_sent_per_worker"] * 2, plain["bytes_sent_per_worker"])
        self.assertNotEqual(coded["parameter_hash"], plain["parameter_hash"])
        self.assertAlmostEqual(coded["loss"], plain["loss"], delta=0.05)

    def test_bits_are_put_beside_f32_whichever_are_fewer(self):
        # Of four, one_round sends each vector to the three others, where a ring sends it one and a half times.
        for words, said in (((), ""), (("--compress", "bf16"), " (2.0 x fewer than f32)")):
            with self.subTest(words=words):
                result = self.train("--workers", "4", "--steps", "4", "--algorithm", "ring", *words)
                self.assertRegex(result.stdout, rf"bits a parameter and step{re.escape(said)}\n")
        result = self.train("--workers", "4", "--steps", "4", "--algorithm", "one_round")
        self.assertIn("64 bits a parameter and step (2.0 x as many as f32)\n", result.stdout)

    def test_the_size_of_buckets_changes_no_bit(self):
        # Of 2 workers each element is one sum of two, in any bucket.
        hashes = {
            self.results("--workers", "2", "--steps", "4", "--bucket", size)["parameter_hash"]
            for size in ("4", "64K", "1G")
        }
        self.assertEqual(len(hashes), 1)

    def test_workers_on_a_slow_link_wait_for_communication(self):
        fast, slow = (
            self.results("--workers", "2", "--transport", "tcp", "--steps", "6", *rate)
            for rate in ((), ("--link-rate", "20Mbit"))
        )
        self.assertEqual(fast["parameter_hash"], slow["parameter_hash"])
        # 6 steps of 408 KB at 2.5 MB/s cannot take less than this, less the burst that a token bucket allows.
        self.assertGreater(slow["seconds"], 0.7 * 6 * slow["parameters"] * 4 / 2.5e6)
        self.assertGreater(slow["exposed_communication_share"], 0.5)

    def test_training_stops_at_the_target(self):
        run = self.results("--workers", "2", "--evaluate-every", "5", "--target-accuracy", "0.3", "--epochs", "50")
        self.assertGreaterEqual(run["accuracy"], 0.3)
        self.assertTrue(all(entry["accuracy"] < 0.3 for entry in run["history"][:-1]))
        self.assertLess(run["steps"], 50 * 20)

    def test_seeds_differ_and_repeat(self):
        runs = [self.results("--workers", "2", "--steps", "3", "--seed", seed) for seed in ("1", "1", "2")]
        hashes = [run["parameter_hash"] for run in runs]
        self.assertEqual(hashes[0], hashes[1])
        self.assertNotEqual(hashes[0], hashes[2])

    @unittest.skipUnless(FASHION_MNIST.is_dir(), "Debian's package dataset-fashion-mnist is not installed")
    def test_fashion_mnist_is_learnt(self):
        result = self.folder / "result.json"
        done = self.train(
            "--workers", "2", "--steps", "40", "--json", str(result), "--data", "fashion-mnist", "--batch", "32",
            "--lr", "0.1",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(result.read_text())["accuracy"], 0.5)


class Planning(TrainingTest):
    """train --record, probe, plan, simulate, train --plan: each reads what the one before wrote."""

    def ranvier(self, *words: str) -> str:
        done = run(*words, env=self.environment(), limit=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_goes_from_a_recording_to_a_training_that_obeys(self):
        folder, topology, plan = self.folder / "recorded", self.folder / "topology.toml", self.folder / "plan.toml"
        recorded = self.results("--workers", "2", "--model", "mlp", "--steps", "8", "--record", str(folder))
        workload = tomllib.loads((folder / "workload.toml").read_text())
        sends = [each["communications"][0] for each in workload["layer"] if "communications" in each]
        self.assertEqual(sum(each["bytes"] for each in sends), 4 * recorded["parameters"])
        self.assertEqual({each["role"] for each in sends}, {"data"})
        # The weight of a layer stands for it, and not its bias.
        *tensors, rest = workload["layer"]
        self.assertEqual(rest["name"], "rest of forward")
        passes = {each["name"]: each.get("forward_ns", 0) for each in tensors}
        self.assertEqual([name for name, took in passes.items() if took > 0], [name for name in passes if "x" in name])
        self.assertGreater(sum(each.get("weight_gradient_ns", 0) for each in workload["layer"]), 0)

        self.ranvier("probe", "--ranks", "2", "--transport", "tcp", "--bytes", "64K", "--samples", "3", "--output", str(topology))
        files = ("--workload", str(folder / "workload.toml"), "--topology", str(topology))
        said = self.ranvier("plan", *files, "--output", str(plan))
        self.assertRegex(said, r"\nchosen +")
        chosen = tomllib.loads(plan.read_text())
        self.assertEqual((chosen["ranks"], chosen["transport"]), (2, "tcp"))
        step = json.loads(self.ranvier("simulate", *files, "--json", "-"))
        compute_ns = sum(value for each in workload["layer"] for key, value in each.items() if key.endswith("_ns"))
        self.assertAlmostEqual(step["compute_ns"], compute_ns + workload["other_ns"], delta=1)

        obeyed = self.results("--workers", "2", "--model", "mlp", "--steps", "4", "--plan", str(plan))
        for key in ("transport", "compress", "sync", "bucket_bytes"):
            self.assertEqual(obeyed["settings"][key], chosen[key])
        self.assertEqual(obeyed["plan"]["predicted_step_ns"], chosen["prediction"]["step_ns"])
        measured_ns = obeyed["plan"]["measured_step_ns"]
        if chosen["sync"] == "bsp":
            self.assertEqual(measured_ns, obeyed["step_ns"])  # the median; of steps that are not alike the mean
        self.assertGreater(measured_ns, 0)
        self.assertAlmostEqual(obeyed["plan"]["error"], measured_ns / chosen["prediction"]["step_ns"] - 1)

    def plan(self, **changes) -> str:
        values = {"ranks": 2, "transport": "tcp", "bucket_bytes": 4096, "compress": "bf16", "algorithm": "ring",
                  "step_ns": 1e12, "compute_ns": 1e12} | changes  # fmt: skip
        file = self.folder / f"plan-{len(list(self.folder.iterdir()))}.toml"
        file.write_text(
            "ranks = {ranks}\ntransport = '{transport}'\nbucket_bytes = {bucket_bytes}\ncompress = '{compress}'\n"
            "[prediction]\nstep_ns = {step_ns:.0f}\ncompute_ns = {compute_ns:.0f}\n"
            "[[all_reduce]]\nalgorithm = '{algorithm}'\n".format(**values)
        )
        return str(file)

    def test_flags_come_before_the_plan(self):
        run = self.results("--workers", "2", "--steps", "2", "--plan", self.plan(), "--compress", "none")
        settings = run["settings"]
        self.assertEqual((settings["transport"], settings["compress"], settings["bucket_bytes"]), ("tcp", "none", 4096))

    def test_a_plan_far_too_hopeful_is_dropped_and_says_what_to_run(self):
        # A transport that the plan names too is no choice against it.
        done = self.train("--workers", "2", "--model", "mlp", "--steps", "25", "--transport", "tcp",
                          "--plan", self.plan(step_ns=1000, compute_ns=900))  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"step, as planned +0\.00 ms predicted, [\d.]+ measured \(\+\d+ %\)")
        self.assertRegex(done.stdout, r"planned anew at step 23 +algorithms are chosen by the model of the links from now on, since")
        self.assertRegex(done.stdout, r"the plan is wrong +.* ms of a step and not 0\.00: .*again \(ranvier train --record DIR\)|ranvier probe")
        kept = self.results("--workers", "2", "--model", "mlp", "--steps", "25", "--plan", self.plan())
        self.assertEqual(kept["plan"]["changes"], [])
        self.assertLess(kept["plan"]["error"], -0.99)
        self.assertIn("again", kept["plan"]["advice"])

    def hopeful_plan(self, sync: str = "bsp", *more: str) -> str:
        """For three ranks, of a step of 2 us, with the files that it takes to plan again."""
        folder, plan = self.folder / "recorded", self.folder / "plan.toml"
        self.results("--workers", "3", "--model", "mlp", "--steps", "8", "--record", str(folder))
        words = ("--world", "3", "--link-rate", "10Gbit", "--sync", sync, *more, "--output", str(plan))
        self.ranvier("plan", "--workload", str(folder / "workload.toml"), *words)
        text = plan.read_text()
        hopeful = re.sub(r"\nstep_ns = \d+", "\nstep_ns = 2000", text).replace("compute_ns = ", "compute_ns = 1000 # ")
        plan.write_text(hopeful)
        return str(plan)

    def planned_again(self, plan: str, limit_s: float) -> tuple[str, list]:
        done = self.train("--workers", "3", "--model", "mlp", "--steps", "60", "--link-rate", "100Mbit", "--plan", plan,
                          "--replan-limit", str(limit_s), "--json", str(self.folder / "result.json"))  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr, json.loads((self.folder / "result.json").read_text())["plan"]["changes"]

    def test_what_turns_out_wrong_is_planned_again_alike_on_all_ranks(self):
        """Ranks whose plans, buckets or codecs differed would fail, and so would ones that end with other parameters."""
        said, changes = self.planned_again(self.hopeful_plan(), 100)
        self.assertRegex(said, r"step +23 +planned anew: a step takes .* as if the network were .* times slower")
        self.assertEqual(changes[0]["step"], 23)
        self.assertGreater(changes[0]["expected_step_ns"], 2000)
        self.assertNotIn("cut short", said)

    def test_a_plan_by_a_policy_that_averages_now_and_then_is_planned_again_too(self):
        """By the mean of whole periods: most of their steps wait for nothing."""
        said, changes = self.planned_again(self.hopeful_plan("local:4"), 100)
        self.assertRegex(said, r"step +23 +planned anew: a step takes .* as if the network were .* times slower")
        self.assertGreater(changes[0]["expected_step_ns"], 2000)
        settings = json.loads((self.folder / "result.json").read_text())["settings"]
        self.assertEqual(settings["sync"], "local:4")

    def test_a_plan_by_which_fragments_are_under_way_is_planned_again_too(self):
        said, changes = self.planned_again(self.hopeful_plan("diloco:6,fragments=2,delay=2"), 100)
        self.assertRegex(said, r"step +27 +planned anew: a step takes ")
        self.assertGreater(changes[0]["expected_step_ns"], 2000)

    def test_a_plan_of_unequal_workers_is_planned_again_by_their_mean(self):
        """One of three computes a tenth as fast, as planned, and the network is slower."""
        unequal = ("--speeds", "1,1,0.1")
        words = ("--workers", "3", "--model", "mlp", "--epochs", "9", "--steps", "110", "--link-rate", "20Mbit", *unequal)
        run = self.results(*words, "--plan", self.hopeful_plan("bsp", *unequal), "--replan-limit", "100")
        first = run["plan"]["changes"][0]
        self.assertEqual(first["step"], 103)
        self.assertRegex(first["reason"], "as if the network were .* times slower")
        self.assertGreater(first["expected_step_ns"], 2000, "with whatever codec it takes now")
        self.assertGreater(run["plan"]["measured_step_ns"], 0)

    def test_a_plan_of_workers_at_their_own_pace_that_is_wrong_leaves_the_policy_to_measuring(self):
        place = str(self.folder / "left.ranvier")
        words = ("--workers", "3", "--model", "mlp", "--epochs", "9", "--evaluate-every", "12", "--link-rate", "20Mbit")
        words += ("--plan", self.hopeful_plan("async"))
        before = self.results(*words, "--steps", "72", "--save", place)
        (change,) = before["plan"]["changes"]
        self.assertEqual((change["step"], before["settings"]["sync"]), (24, "async"))
        self.assertIn("the policy is chosen by what training shows from now on, as by --sync auto", change["reason"])
        self.assertGreater(before["plan"]["error"], 0.25)
        self.assertTrue(before["decisions"], "equal workers need no servers")
        self.assertEqual((before["decisions"][0]["sync"], before["decisions"][0]["in_use_from"]), ("bsp", 24))
        after = self.results(*words, "--steps", "100", "--resume", place)
        self.assertEqual(after["plan"]["changes"], [])
        self.assertLess(after["history"][-1]["test_loss"], before["history"][0]["test_loss"])

    def test_planning_again_for_which_there_is_no_time_is_left_to_the_model_of_the_links(self):
        # Timing the codecs alone takes longer: whatever the machine, nothing of the network is known by then.
        said, changes = self.planned_again(self.hopeful_plan(), 0.001)
        self.assertRegex(said, r"step +23 +planned anew: algorithms are chosen by the model of the links from now on, since "
                               r"it could not be planned again: that takes longer than the 0\.001 s of --replan-limit")  # fmt: skip
        self.assertEqual([each["step"] for each in changes], [23])

    def test_a_changed_plan_is_gone_on_with(self):
        """What was dropped as wrong is neither followed nor judged again by the run that resumes."""
        words = ("--workers", "2", "--model", "mlp", "--plan", self.plan(step_ns=1000, compute_ns=900))
        place = str(self.folder / "changed.ranvier")
        before = self.results(*words, "--steps", "25", "--save", place)
        self.assertEqual([each["step"] for each in before["plan"]["changes"]], [23])
        after = self.results(*words, "--steps", "55", "--resume", place)
        self.assertEqual(after["plan"]["changes"], [])

    def test_wrong_plans_and_recordings_are_refused(self):
        for words, code, part in (
            (("--plan", self.plan(ranks=3)), 2, "make another one with ranvier plan --world 2"),
            (("--plan", self.plan(ranks=2), "--record", str(self.folder / "x")), 2, "give one of them"),
            (("--record", "/dev/null/x"), 1, "/dev/null/x"),
            (("--plan", str(self.folder / "none.toml")), 1, "none.toml"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(self.train("--workers", "2", *words), code, part)
        self.assert_sentence(self.train("--workers", "2", "--plan", self.plan(compress="bf61")), 2, "did you mean 'bf16'?")


class Resuming(TrainingTest):
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

    def test_four_workers_end_with_the_same_bits_too_whatever_their_links_are_like(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                words = ("--workers", "4", "--transport", transport)
                part = self.folder / f"part-{transport}"
                whole = self.results(*words, "--steps", "8")
                self.results(*words, "--steps", "4", "--save", str(part))
                resumed = self.results(*words, "--steps", "8", "--resume", str(part))
                self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])

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
        for spec in ("dgc:0.01+int4:rounding=stochastic", "powersgd:2"):
            with self.subTest(codec=spec):
                words = ("--workers", "2", "--compress", spec)
                part = self.folder / f"part-{spec[:4]}"
                whole = self.results(*words, "--steps", "12")
                self.results(*words, "--steps", "7", "--save", str(part))
                resumed = self.results(*words, "--steps", "12", "--resume", str(part))
                self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])

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
        ):
            self.assert_sentence(self.train("--steps", "3", "--resume", str(file), *words), 1, str(file), difference)

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


class Launchers(TrainingTest):
    def test_torchrun(self):
        python = os.environ["RANVIER_TEST_TORCH_PYTHON"]
        expected = self.results("--workers", "2", "--steps", "4")
        file = self.folder / "torchrun.json"
        command = [python, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node=2", "--standalone"]
        command += [RANVIER, *self.words("--steps", "4", "--json", str(file))]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(file.read_text())["parameter_hash"], expected["parameter_hash"])

    def test_links_between_hosts_are_measured_unless_told_not_to(self):
        def links(local_world: int, *words: str) -> dict:
            file = self.folder / f"links-{len(list(self.folder.iterdir()))}.json"
            words = self.words("--steps", "2", "--model", "mlp", "--interface", "127.0.0.1", "--json", str(file), *words)
            place = {"RANVIER_WORLD": "2", "RANVIER_LOCAL_WORLD": str(local_world), "RANVIER_STORE": f"{file}-store"}
            ranks = [
                start(
                    *words,
                    env=self.environment(
                        RANVIER_RANK=str(rank),
                        RANVIER_LOCAL_RANK=str(rank % local_world),
                        RANVIER_NODE=f"host{rank // local_world}",
                        **place,
                    ),
                )
                for rank in range(2)
            ]
            said = [rank.communicate(timeout=100) for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
            return json.loads(file.read_text())["links"]

        ordinary = links(1, "--no-measure")
        self.assertEqual(links(1, "--no-measure"), ordinary)
        self.assertNotEqual(links(1), ordinary)
        self.assertEqual(links(2), links(2, "--no-measure"))

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
    def test_mpirun(self):
        expected = self.results("--workers", "2", "--steps", "4")
        file = self.folder / "mpirun.json"
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
        words = self.words("--steps", "4", "--json", str(file))
        done = subprocess.run(
            [*mpirun, RANVIER, *words], env=self.environment(), capture_output=True, text=True, timeout=120
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(file.read_text())["parameter_hash"], expected["parameter_hash"])
        if is_here("mpi"):
            over = [*mpirun, RANVIER, *words, "--transport", "mpi", "--algorithm", "ring"]
            done = subprocess.run(over, env=self.environment(), capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            ring = self.results("--workers", "2", "--steps", "4", "--transport", "tcp", "--algorithm", "ring")
            self.assertEqual(json.loads(file.read_text())["parameter_hash"], ring["parameter_hash"])
        done = subprocess.run(
            [*mpirun, RANVIER, *words, "--workers", "2"],
            env=self.environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        self.assertEqual(done.returncode, 2)
        self.assertIn("--workers starts processes", done.stderr)


if __name__ == "__main__":
    main()
