"""Models and data of every kind, in real runs: they learn, whatever averages them, and say how well in their own measure."""

import math
import pathlib
import random

from program import main
from training import TrainingTest


def write_text(path: pathlib.Path, words: int = 2500) -> pathlib.Path:
    """A language of eight words: three characters tell the rest of each, so there is much to learn in few steps."""
    random.seed(2)
    vocabulary = ["ranvier", "node", "nerve", "signal", "jumps", "between", "layers", "quickly"]
    path.write_text(" ".join(random.choice(vocabulary) for _ in range(words)))
    return path


class Models(TrainingTest):
    def test_text_is_learnt_and_judged_in_bits_per_character(self):
        text = write_text(self.folder / "words.txt")
        # One of 23 characters is 4.5 bits, and by their frequencies 4.0.
        for model, steps, bits in (("lstm", "10", 3.9), ("transformer", "20", 2.5)):
            with self.subTest(model=model):
                run = self.results(
                    "--workers", "2", "--model", model, "--data", str(text), "--optimizer", "adamw", "--lr", "0.01",
                    "--batch", "8", "--steps", steps, "--sync", "diloco:5", "--compress", "int4",
                    "--straggle", "1:2-4x2",
                )  # fmt: skip
                self.assertAlmostEqual(run["bits_per_character"], run["test_loss"] / math.log(2), places=9)
                self.assertLess(run["bits_per_character"], bits)
                self.assertGreater(run["accuracy"], 1 / 23)

    def test_residual_networks_learn_images_of_three_colours(self):
        folder = self.folder / "cifar"
        folder.mkdir()
        random.seed(3)

        def plane(shade: int) -> bytes:
            return bytes(shade + noise % 60 for noise in random.randbytes(1024))

        def records(count: int) -> bytes:
            # Each class has its own brightness in two of the colours, under noise.
            return b"".join(bytes([i % 10]) + plane(20 * (i % 10)) + plane(0) + plane(195 - 20 * (i % 10)) for i in range(count))

        (folder / "data_batch_1.bin").write_bytes(records(160))
        (folder / "test_batch.bin").write_bytes(records(40))
        run = self.results("--workers", "2", "--model", "resnet", "--data", str(folder), "--steps", "5", "--epochs", "1", "--lr", "0.1")
        self.assertLess(run["history"][-1]["test_loss"], math.log(10))

    def test_a_gan_exchanges_both_networks_and_goes_on_bit_for_bit(self):
        words = ("--workers", "2", "--model", "gan", "--optimizer", "adamw", "--lr", "0.002", "--sync", "local:4")
        part = self.folder / "part"
        whole = self.results(*words, "--steps", "8", "--evaluate-every", "4")
        self.assertIsNone(whole["accuracy"])
        self.assertLess(whole["frechet_distance"], whole["history"][0]["frechet_distance"])
        self.results(*words, "--steps", "6", "--save", str(part))
        resumed = self.results(*words, "--steps", "8", "--evaluate-every", "4", "--resume", str(part))
        self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])
        self.assertEqual(resumed["frechet_distance"], whole["frechet_distance"])

    def test_a_gan_draws_the_same_noise_however_a_batch_is_cut(self):
        words = ("--model", "gan", "--steps", "3", "--evaluate-every", "1", "--lr", "0.05")
        whole = self.results("--workers", "1", "--batch", "32", *words)
        for split in (("--workers", "4", "--batch", "8"), ("--workers", "2", "--batch", "8", "--accumulate", "2")):
            parts = self.results(*split, *words)
            for part, all_at_once in zip(parts["history"], whole["history"], strict=True):
                self.assertAlmostEqual(part["loss"], all_at_once["loss"], places=5)
                self.assertAlmostEqual(part["frechet_distance"], all_at_once["frechet_distance"], places=4)

    def test_four_passes_are_one_with_four_times_the_batch(self):
        whole = self.results("--workers", "2", "--batch", "32", "--steps", "6", "--evaluate-every", "2", "--algorithm", "ring")
        parts = self.results(
            "--workers", "2", "--batch", "8", "--accumulate", "4", "--steps", "6", "--evaluate-every", "2",
            "--algorithm", "ring",
        )  # fmt: skip
        self.assertEqual(parts["rounds"], whole["rounds"])
        for part, all_at_once in zip(parts["history"], whole["history"], strict=True):
            self.assertAlmostEqual(part["loss"], all_at_once["loss"], places=4)
            self.assertAlmostEqual(part["test_loss"], all_at_once["test_loss"], places=4)

    def test_the_rate_is_for_so_many_samples_and_begins_lower(self):
        # A step of 32 samples, whose rate is twice the one for 16; of warming up a first step goes half of the way there.
        words = ("--workers", "2", "--model", "mlp", "--steps", "1")
        plain = self.results(*words, "--lr", "0.15")["test_loss"]
        self.assertEqual(self.results(*words, "--lr", "0.1", "--lr-batch", "16", "--warm-up", "1")["test_loss"], plain)

    def test_who_lets_the_rate_rise_in_all_steps_is_told(self):
        for warm_up, is_told in (("3", False), ("4", True)):
            result = self.train("--workers", "2", "--model", "mlp", "--steps", "4", "--warm-up", warm_up)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("never comes to its height in the 4 steps of this run" in result.stderr, is_told, result.stderr)

    def test_what_makes_no_sense_is_refused(self):
        text = str(write_text(self.folder / "words.txt"))
        short = self.folder / "short.txt"
        short.write_text("a few words")
        for words, code, *parts in (
            (("--model", "cnn", "--data", text), 2, "learns from images", "lstm"),
            (("--model", "lstm", "--data", str(short)), 1, str(short), "11 bytes"),
            (("--model", "gan", "--target-accuracy", "0.9"), 2, "--target-loss"),
            (("--straggle", "7:0-4x2"), 2, "rank 7 of 4"),
            (("--accumulate", "2", "--record", str(self.folder / "r"), "--steps", "1"), 2, "leave out --accumulate"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(self.train("--workers", "4", *words), code, *parts)


if __name__ == "__main__":
    main()
