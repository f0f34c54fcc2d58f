"""Training with real processes: every worker ends with the same parameters, whatever carried the bytes."""

import contextlib
import json
import math
import os
import pathlib
import pty
import re
import shutil
import subprocess
import threading
import unittest

from program import RANVIER, main, run, start
from training import TrainingTest

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
                    # One algorithm and one bucket, as memory has it, so that both add in the same order. That the
                    # workers agree the program checks itself.
                    run = self.results(
                        "--workers", str(workers), "--transport", transport, "--algorithm", "ring", "--bucket", "1M",
                        "--steps", "10", "--evaluate-every", "5",
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

    def test_a_run_that_diverges_says_so_and_its_result_is_not_lost(self):
        # Of a + b and b + a the bits differ where both are NaN, which is how two ranks add by some algorithms.
        words = ("--workers", "2", "--model", "mlp", "--steps", "20", "--lr", "1000")
        for algorithm in ("recursive_doubling", "one_round", "ring"):
            with self.subTest(algorithm=algorithm):
                file = self.folder / "run.json"
                result = self.train(*words, "--algorithm", algorithm, "--json", str(file))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("diverged               by step 20 the loss was no finite number", result.stdout)
                self.assertNotIn("-nan", result.stdout)
                self.assertEqual(json.loads(file.read_text())["diverged_at"], 20)
        self.assertIsNone(self.results("--workers", "2", "--steps", "2")["diverged_at"])

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

        # Not what they are: rounded to powers of two, some machines' are just those that others count with.
        ordinary = links(1, "--no-measure")
        self.assertFalse(ordinary["measured"])
        self.assertEqual(links(1, "--no-measure"), ordinary)
        self.assertTrue(links(1)["measured"])
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
