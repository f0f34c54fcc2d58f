"""Models of which several workers hold a part each: they learn what one process would."""

import json
import tempfile
import tomllib

from models_test import write_text
from program import clean_environment, main, run, start
from training import TrainingTest, keep_parts_of_states


class Parallel(TrainingTest):
    def curve(self, name: str, *words: str) -> dict:
        file = self.folder / f"{name}.json"
        result = self.train("--steps", "5", "--evaluate-every", "1", "--json", str(file), *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("step      2 "), 1, "one worker speaks for all")
        return json.loads(file.read_text())

    def assert_alike(self, found: dict, expected: dict) -> None:
        self.assertEqual((found["parameters"], found["steps"]), (expected["parameters"], expected["steps"]))
        for mine, other in zip(found["history"], expected["history"], strict=True):
            self.assertAlmostEqual(mine["loss"], other["loss"], places=4)
            self.assertAlmostEqual(mine["test_loss"], other["test_loss"], places=4)
        self.assertLess(found["history"][-1]["test_loss"], found["history"][0]["test_loss"])

    def test_divided_models_learn_what_one_process_does(self):
        alone = self.curve("alone", "--model", "cnn", "--batch", "48")
        tensor = self.curve("tensor", "--model", "cnn", "--workers", "4", "--parallel", "tensor:2", "--batch", "24")
        # 2 replicas of 2 stages; 4 passes a step of 6 samples each.
        pipeline = self.curve(
            "pipeline", "--model", "cnn", "--workers", "4", "--parallel", "pipeline:2", "--batch", "6", "--accumulate", "4"
        )
        self.assert_alike(tensor, alone)
        self.assert_alike(pipeline, alone)
        # What full1 takes in, 800 numbers of each of 24 samples, has a gradient that is summed over the parts, and what
        # full2 gives, 10 of each, is summed itself; both in all of 5 steps, by all_reduce between two. The first part's
        # convolutions and last biases, 160 + 4640 + 10, become the other's.
        self.assertEqual(tensor["bytes_per_worker"]["model"], 5 * (24 * (800 + 10) * 4 + 4810 * 4 / 2))
        # What the convolutions give goes forth, its gradient back, and so does the loss.
        self.assertEqual(pipeline["bytes_per_worker"]["model"], 5 * (24 * 800 * 4 + 24 * 800 * 4 + 8) / 2)

        report = run("report", *(str(self.folder / f"{name}.json") for name in ("alone", "tensor", "pipeline")), "--json", "-")
        self.assertEqual(report.returncode, 0, report.stderr)
        by = [row["differs_by"] for row in json.loads(report.stdout)["rows"]]
        for words, part in zip(by, ("parallel none", "parallel tensor:2", "parallel pipeline:2"), strict=True):
            self.assertIn(part, words)

    def test_stages_end_where_blocks_do(self):
        alone = self.curve("alone", "--model", "resnet", "--batch", "12", "--steps", "2")
        self.assert_alike(
            self.curve("stages", "--model", "resnet", "--workers", "3", "--parallel", "pipeline:3", "--batch", "6",
                       "--accumulate", "2", "--steps", "2"), alone,
        )  # fmt: skip

    def test_attention_is_divided_by_heads(self):
        of_all = ("--model", "transformer", "--data", str(write_text(self.folder / "words.txt")))
        alone = self.curve("alone", *of_all, "--batch", "24")
        divided = self.curve("divided", *of_all, "--workers", "4", "--parallel", "tensor:2", "--batch", "12")
        # Three parts share four heads unequally.
        uneven = self.curve("uneven", *of_all, "--workers", "3", "--parallel", "tensor:3", "--batch", "24")
        for found in (divided, uneven):
            self.assert_alike(found, alone)
        # In each of 3 blocks what heads and full layers give is summed, and the gradients of what they take: 4 times 64
        # places of 96 numbers, of 12 samples. All else than the matrices is everybody's, and the first part's becomes the other's.
        matrices = 3 * (4 * 96 * 96 + 3 * 96 + 8 * 96 * 96 + 4 * 96)
        self.assertEqual(
            divided["bytes_per_worker"]["model"], 5 * 4 * (3 * 4 * 12 * 64 * 96 + (alone["parameters"] - matrices) / 2)
        )

    def test_text_goes_through_stages(self):
        text = str(write_text(self.folder / "words.txt"))
        for model, parts in (("transformer", 5), ("lstm", 3)):
            with self.subTest(model=model):
                of_all = ("--model", model, "--data", text, "--steps", "2")
                alone = self.curve(f"alone-{model}", *of_all, "--batch", "12")
                self.assert_alike(
                    self.curve(f"stages-{model}", *of_all, "--workers", str(parts), "--parallel", f"pipeline:{parts}", "--batch", "6",
                               "--accumulate", "2"), alone,
                )  # fmt: skip

    def test_replicas_of_parts_may_meet_by_any_policy_and_codec_of_equal_steps(self):
        # At the end, that parts agree on what each of them holds is checked by the program itself.
        words = ("--model", "cnn", "--workers", "4", "--parallel", "tensor:2", "--compress", "int8")
        self.curve("coded", *words, "--steps", "2")
        found = self.curve("local", *words, "--sync", "diloco:2", "--optimizer", "adamw", "--lr", "0.002")
        self.assertEqual(found["rounds"]["inside"], 3, "2 periods, and the end")
        self.assertLess(found["test_loss"], found["history"][0]["test_loss"])

    def test_a_divided_model_goes_on_bit_for_bit_from_a_checkpoint(self):
        # Codecs hold other things back on each rank; by diloco each is in the middle of a period of its own.
        text = str(write_text(self.folder / "words.txt"))
        for number, (division, *words) in enumerate((
            ("tensor:2", "--transport", "shm", "--compress", "topk:0.1+int8", "--optimizer", "adamw", "--lr", "0.002"),
            ("tensor:4", "--transport", "tcp"),
            ("pipeline:2", "--transport", "tcp", "--accumulate", "2", "--sync", "diloco:4"),
            ("tensor:2", "--transport", "shm", "--model", "transformer", "--data", text, "--compress", "int8"),
            ("pipeline:4", "--transport", "shm", "--accumulate", "4"),
        )):  # fmt: skip
            with self.subTest(division=division, words=words):
                kept = self.folder / f"kept-{number}"
                of_all = ("--workers", "4", "--model", "cnn", "--batch", "8", "--no-measure", *words)
                of_all += ("--parallel", division)
                whole = self.results(*of_all, "--steps", "6")
                part = self.results(*of_all, "--steps", "3", "--save", str(kept))
                self.assertNotEqual(part["parameter_hash"], whole["parameter_hash"])
                resumed = self.results(*of_all, "--steps", "6", "--resume", str(kept))
                self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])
        for division in ("tensor:4", "pipeline:2", "none"):
            words = ("--workers", "4", "--model", "cnn", "--batch", "8", "--optimizer", "adamw", "--lr", "0.002")
            result = self.train(*words, "--parallel", division, "--resume", str(self.folder / "kept-0"))
            self.assert_sentence(result, 1, f"made with --parallel tensor:2 and this run has {division};")
        # Of the second part the file has nothing.
        keep_parts_of_states(self.folder / "kept-4", 0)
        result = self.train(*of_all, "--resume", str(self.folder / "kept-4"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("what the checkpoint kept of the replicas is cut short", result.stderr)

    def recorded(self, *words: str) -> dict:
        folder = self.folder / "recorded"
        self.curve("recorded", "--model", "cnn", "--workers", "4", "--record", str(folder), *words)
        workload = tomllib.loads((folder / "workload.toml").read_text())
        predicted = run("simulate", "--workload", str(folder / "workload.toml"), "--world", "8", "--link-rate", "1Gbit", "--json", "-")
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        way = words[1].partition(":")[0]
        self.assertEqual({each["role"] for each in json.loads(predicted.stdout)["roles"]}, {way, "data"})
        return workload

    def sent(self, workload: dict, role: str) -> list[tuple]:
        calls = [call for layer in workload["layer"] for call in layer.get("communications", ()) if call["role"] == role]
        return [(call["pass"], call["collective"], call["bytes"]) for call in calls]

    def test_recordings_have_what_parts_send_each_other(self):
        workload = self.recorded("--parallel", "tensor:2", "--batch", "24")
        self.assertEqual((workload["degrees"]["tensor"], workload["ranks"]), (2, 4))
        # As above: what comes out of full2, behind it; the gradient of what goes into full1, before those of what is in
        # front; and what both parts hold.
        self.assertEqual(
            self.sent(workload, "tensor"),
            [("input_gradient", "broadcast", 4810 * 4), ("input_gradient", "all_reduce", 24 * 800 * 4), ("forward", "all_reduce", 24 * 10 * 4)],
        )  # fmt: skip
        gradients = self.sent(workload, "data")
        self.assertEqual(sum(size for *_, size in gradients), 4 * (4810 + (800 + 1 + 10) * 60))

    def test_recordings_of_attention_have_what_heads_send_each_other(self):
        text = str(write_text(self.folder / "words.txt"))
        workload = self.recorded("--parallel", "tensor:2", "--batch", "12", "--model", "transformer", "--data", text)
        sums = [call for call in self.sent(workload, "tensor") if call[1] == "all_reduce"]
        both = [(way, "all_reduce", 12 * 64 * 96 * 4) for way in ("forward", "input_gradient")]
        self.assertEqual(sorted(sums), sorted(2 * 3 * both), "2 in each of 3 blocks")

    def test_a_recorded_pipeline_is_its_longest_stage(self):
        workload = self.recorded("--parallel", "pipeline:2", "--batch", "6", "--accumulate", "4")
        self.assertEqual(workload["degrees"]["pipeline"], 2)
        self.assertTrue(0 < workload["fills"] <= 1 / 4, "the other stage computes less")
        self.assertEqual(
            sorted(self.sent(workload, "pipeline")), [("forward", "send", 24 * 800 * 4), ("input_gradient", "send", 24 * 800 * 4)]
        )
        origin = (self.folder / "recorded" / "workload.toml").read_text().partition("\n")[0]
        self.assertRegex(origin, r"of 24 samples on each of 2 replicas \(--parallel pipeline:2\), in 4 passes; stage [01], which")
        stage = int(origin.partition("stage ")[2][0])
        own = sum(size for *_, size in self.sent(workload, "data")) / 4
        self.assertEqual(own, (4800, (800 + 1) * 120 + (120 + 1) * 10)[stage])

    def test_the_last_step_of_an_epoch_is_not_what_is_recorded(self):
        # 640 images are two steps of 256 and the rest.
        workload = self.recorded("--parallel", "pipeline:2", "--model", "mlp", "--batch", "32", "--accumulate", "4", "--epochs", "1")
        self.assertEqual({size for *_, size in self.sent(workload, "pipeline")}, {128 * 128 * 4})

    def test_hosts_that_end_within_a_replica_are_refused_where_nodes_count(self):
        for hosts, sync, *more, is_refused in (
            ("aaab", "node:2", True), ("abbb", "hierarchy:node=1,world=2", "--compress", "int8", True), ("aabb", "node:2", False),
            ("aaab", "node:2", "--place", "node=2", False), ("aaab", "bsp", False), ("aaab", "local:2", False),
        ):  # fmt: skip
            with self.subTest(hosts=hosts, sync=sync, more=more), tempfile.TemporaryDirectory() as store:
                place = {"RANVIER_WORLD": "4", "RANVIER_STORE": store}
                words = ("train", "--model", "mlp", "--data", str(self.data), "--batch", "4", "--steps", "4", "--parallel", "tensor:2",
                         "--sync", sync, *more, "--threads", "1")  # fmt: skip
                ranks = [start(*words, env=clean_environment(RANVIER_RANK=str(rank), RANVIER_NODE=host, **place))
                         for rank, host in enumerate(hosts)]  # fmt: skip
                said = [rank.communicate(timeout=120)[1] for rank in ranks]
                self.assertEqual([rank.returncode == 0 for rank in ranks], [not is_refused] * 4, said)
                for each in said if is_refused else ():
                    self.assertIn("hosts end within replicas of --parallel", each)

    def test_what_does_not_go_together_is_refused_before_anything_starts(self):
        for words, *parts in (
            (("--parallel", "tensor:3"), "4 workers are no whole number"),
            (("--parallel", "tensor:2", "--sync", "async"), "--sync async"),
            (("--parallel", "tensor:2", "--optimizer", "lars"), "whole tensors"),
            (("--parallel", "tensor:2", "--speeds", "1,1,1"), "3 numbers for 2 workers"),
            (("--parallel", "tensor:2", "--accumulate", "2", "--record", str(self.folder / "r")), "leave out --accumulate"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(self.train("--workers", "4", *words), 2, *parts)


if __name__ == "__main__":
    main()
