"""Runs that are interrupted in the middle of a period: policies, optimizers and codecs, and what a checkpoint must hold of each."""

from program import main
from training import TrainingTest

# 20 steps an epoch; without measured links, by which two runs may add in different orders.
WORDS = ("--workers", "2", "--place", "node=2", "--model", "mlp", "--epochs", "1", "--no-measure")


class Interrupted(TrainingTest):
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
                part = self.folder / f"part-{sync[:4]}"
                whole = self.results(*words, "--steps", "11")
                stopped = self.results(*words, "--steps", "7", "--save", str(part))
                resumed = self.results(*words, "--steps", "11", "--resume", str(part))
                self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])
                self.assertNotEqual(resumed["parameter_hash"], stopped["parameter_hash"])


class Alone(TrainingTest):
    def test_one_worker_trains_as_without_a_policy(self):
        # What policies of equal steps and servers without momentum do is tried without processes, in tests/replica.
        words = ("--model", "mlp", "--steps", "12", "--workers", "1")
        plain = self.results(*words)["parameter_hash"]
        for sync in ("ad-psgd", "auto", "diloco:5"):
            with self.subTest(sync=sync):
                self.assertEqual(self.results(*words, "--sync", sync)["parameter_hash"], plain)


if __name__ == "__main__":
    main()
