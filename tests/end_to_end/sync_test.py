"""Training by synchronization policies, with real processes: who sends what where, and what a checkpoint must hold."""

import json
import math

from program import main, run
from training import TrainingTest, keep_parts_of_states, write_data

PLACED = ("--workers", "4", "--place", "node=2", "--algorithm", "ring", "--model", "mlp", "--batch", "8")


class Policies(TrainingTest):
    def test_nodes_exchange_parameters_when_their_period_ends_and_gradients_never(self):
        bsp = self.results(*PLACED, "--steps", "9")
        node = self.results(*PLACED, "--steps", "9", "--sync", "node:3")
        self.assertEqual(bsp["rounds"], {"inside": 0, "between": 9})
        self.assertEqual(node["rounds"], {"inside": 9 + 3, "between": 3})
        # Of 4 workers the 2 leaders send all parameters once each time.
        each = node["parameters"] * 4
        self.assertEqual(node["bytes_per_worker"]["between"], 3 * each * 2 / 4)
        # A ring of 4 crosses between the nodes on 2 of its 4 links.
        self.assertAlmostEqual(bsp["bytes_per_worker"]["between"] / (9 * each * 2 * 3 / 4 * 2 / 4), 1, delta=0.001)
        self.assertLess(node["history"][-1]["test_loss"], 2.3)

    def test_a_report_says_whom_others_wait_for(self):
        file = str(self.folder / "slow.json")
        words = ("--workers", "2", "--model", "mlp", "--steps", "12", "--batch", "32", "--speeds", "1,0.02")
        result = self.train(*words, "--json", file)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"bottleneck +rank 1, for which others wait \(")
        result = run("report", file, "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        row = json.loads(result.stdout)["rows"][0]
        self.assertEqual((row["rounds"], row["bottleneck"]["slowest"]), (12, 1))

    def test_who_is_ahead_at_an_evaluation_waits_for_the_others(self):
        # Rank 0, whose seconds are those of the run, is fifty times as fast as the other one.
        run = self.results(
            "--workers", "2", "--place", "node=2", "--model", "mlp", "--steps", "12", "--batch", "32", "--speeds", "1,0.02",
            "--sync", "node:50", "--evaluate-every", "4",
        )  # fmt: skip
        self.assertGreater(run["exposed_communication_by_rank"][0], 0.5)
        self.assertLess(run["exposed_communication_by_rank"][1], 0.5)

    def test_a_run_stopped_in_the_middle_of_a_period_goes_on_bit_for_bit(self):
        # What nodes and policies keep is tried without processes, in tests/replica.
        # Measured links would choose the way of sparse codes, and not alike in every run.
        thc = ("--sync", "bsp", "--compress", "thc:8", "--no-measure")
        words = ("--sync", "diloco:5", "--compress", "topk:0.1+int8", "--optimizer", "adamw", "--no-measure")
        part = self.folder / "part"
        for each in (thc, words):
            with self.subTest(words=each):
                whole = self.results(*PLACED, *each, "--steps", "12")
                self.results(*PLACED, *each, "--steps", "7", "--save", str(part))
                resumed = self.results(*PLACED, *each, "--steps", "12", "--resume", str(part))
                self.assertEqual(resumed["parameter_hash"], whole["parameter_hash"])
        keep_parts_of_states(part, 9)
        result = self.train(*PLACED, *words, "--steps", "12", "--resume", str(part))
        self.assertEqual(result.returncode, 1)
        self.assertIn("what the checkpoint kept of the replicas is cut short", result.stderr)
        result = self.train(*PLACED, "--sync", "local:4", "--optimizer", "adamw", "--no-measure", "--resume", str(part))
        self.assertEqual(result.returncode, 1)
        self.assertIn("--sync diloco:5 and this run has local:4", result.stderr)

    def test_the_last_step_of_an_epoch_has_what_is_left(self):
        # 640 samples: 6 steps of 96 and one of 64. With one worker as with four, who do not add in the same order.
        whole, shared = (
            self.results("--workers", str(workers), "--batch", str(96 // workers), "--epochs", "2", "--model", "mlp")
            for workers in (1, 4)
        )
        for run in (whole, shared):
            self.assertEqual([entry["step"] for entry in run["history"]], [7, 14])
        for one, four in zip(whole["history"], shared["history"], strict=True):
            self.assertAlmostEqual(one["loss"], four["loss"], delta=1e-4)
            self.assertAlmostEqual(one["test_loss"], four["test_loss"], delta=1e-4)

    def test_a_last_step_of_one_sample_leaves_the_others_without(self):
        data = str(write_data(self.folder / "few", train=97, test=20))
        for words in (
            ("--batch", "8", "--sync", "bsp", "--compress", "int8"),
            ("--batch", "8", "--sync", "node:3", "--place", "node=2"),
            ("--batch", "8", "--sync", "gossip"),
            ("--batch", "8", "--sync", "group"),
            ("--batch", "8", "--parallel", "pipeline:2", "--accumulate", "2"),
        ):
            with self.subTest(words=words):
                run = self.results("--workers", "4", "--data", data, "--model", "mlp", "--epochs", "2", *words)
                self.assertEqual([entry["step"] for entry in run["history"] if entry["step"] % 4 == 0], [4, 8])
                self.assertLess(run["loss"], math.log(10) * 1.1)

    def test_samples_follow_measured_speed(self):
        run = self.results(
            "--workers", "2", "--steps", "16", "--batch", "32", "--speeds", "1,0.2", "--split", "speed", "--jitter", "0.1x2",
        )  # fmt: skip
        self.assertEqual(sum(run["shares"]), 64)
        self.assertGreater(run["shares"][0], run["shares"][1] + 16)
        self.assertLess(run["history"][-1]["test_loss"], 2.3)

    def test_a_sample_lasts_what_the_run_says(self):
        run = self.results(
            "--workers", "2", "--model", "mlp", "--steps", "10", "--batch", "8", "--sample-ms", "2", "--speeds", "1,0.5",
            "--split", "speed",
        )  # fmt: skip
        self.assertEqual(run["settings"]["sample_ms"], 2)
        self.assertEqual(run["shares"], [11, 5])  # by 2 and 4 ms, to the last digit
        self.assertGreater(run["step_ns"], 10 * 2e6)

    def test_workers_at_their_own_pace_train_and_every_sample_is_used_once(self):
        for spec, speeds, groups in (
            ("ssp:2,servers=1", "1,0.2", [0, 1, -1]),
            ("ad-psgd", "1,0.2", [0, 1]),
            ("group", "1,1,0.2,0.2", [0, 0, 1, 1]),
        ):
            with self.subTest(sync=spec):
                workers = str(len(groups))
                file = self.folder / spec[:3]
                run = self.results(
                    "--workers", workers, "--steps", "16", "--batch", "16", "--speeds", speeds, "--sync", spec,
                    "--evaluate-every", "8", "--save", str(file),
                )  # fmt: skip
                self.assertEqual([entry["step"] for entry in run["history"] if entry["step"] in (8, 16)], [8, 16])
                self.assertLess(run["history"][-1]["test_loss"], 2.3)
                self.assertEqual(run["groups"], groups)
                if spec == "group":
                    # 3/4 of the parameters to the servers and back, beside that two sums and a broadcast inside the group.
                    sent = run["bytes_per_worker"]["inside"] * len(groups)
                    self.assertGreater(sent, 4 * run["rounds"]["inside"] / 2 * run["parameters"] * 4)
                self.assertEqual([share > 0 for share in run["shares"]], [group >= 0 for group in groups])
                resumed = self.train(
                    "--workers", workers, "--batch", "16", "--sync", spec, "--steps", "20", "--resume", str(file)
                )
                self.assertEqual(resumed.returncode, 0, resumed.stderr)

    def test_a_rank_that_only_serves_waits_while_ten_batches_are_measured(self):
        """However long that takes beside --timeout, which is of one exchange."""
        run = self.results(
            "--workers", "3", "--model", "mlp", "--steps", "12", "--batch", "24", "--sample-ms", "25", "--sync", "group:servers=1",
            "--timeout", "2",
        )  # fmt: skip
        self.assertEqual(run["groups"], [0, 0, -1])

    def test_of_a_group_its_own_averages_and_pushes_are_rounds(self):
        words = ("--workers", "4", "--steps", "16", "--batch", "16", "--speeds", "1,1,0.2,0.2", "--sync", "group")
        run = self.results(*words, "--place", "node=2")
        self.assertEqual(run["groups"], [0, 0, 1, 1])
        self.assertGreater(run["rounds"]["inside"], 0)
        self.assertEqual(run["rounds"]["inside"], run["rounds"]["between"], "each step has one of both")

    def test_servers_are_told_by_codes_and_tell_by_codes(self):
        for spec in ("async", "group"):
            sent = {}
            for compress in ("none", "topk:0.05+int8"):
                with self.subTest(sync=spec, compress=compress):
                    file = self.folder / f"{spec}-{compress}"
                    words = ("--workers", "4", "--speeds", "1,1,0.5,0.5", "--batch", "16", "--lr", "0.02", "--sync", spec)
                    words += ("--compress", compress)
                    run = self.results(*words, "--steps", "30", "--save", str(file))
                    sent[compress] = run["bytes_per_worker"]["inside"]
                    self.assertLess(run["history"][-1]["test_loss"], 2.2)
                    self.assertEqual(run["plain_buckets"], 0)
                    self.assertEqual(run["codec_state_bytes"] > 0, compress != "none")
                    resumed = self.results(*words, "--steps", "40", "--resume", str(file))
                    self.assertLess(resumed["history"][-1]["test_loss"], run["history"][-1]["test_loss"] + 0.2)
            # A twentieth of the values, each with about its index; servers are read as they are at the end.
            self.assertLess(8 * sent["topk:0.05+int8"], sent["none"])
        chosen = self.results("--workers", "2", "--model", "mlp", "--sync", "auto", "--compress", "int8", "--steps", "20")
        self.assertIn(chosen["decisions"][0]["step"], (3, 10))

    def test_between_nodes_codes_of_whole_nodes_travel(self):
        for sync, averages in (("bsp", 20), ("local:5", 4)):
            words = ("--workers", "4", "--batch", "16", "--steps", "20", "--sync", sync, "--compress", "int8:block=64")
            apart, placed = self.results(*words, "--place", "node=4"), self.results(*words, "--place", "node=2")
            with self.subTest(sync=sync):
                # Scatter and gather of codes of 8.5 bits: of 4 owners 3 are others, of 2 nodes one is.
                code = apart["parameters"] * (1 + 2 / 64)
                for run, workers, share in ((apart, 4, 2 * 3 / 4), (placed, 2, 2 / 2)):
                    of_each = run["bytes_per_worker"]["between"] * 4 / workers
                    self.assertAlmostEqual(of_each / (averages * code * share), 1, delta=0.15)
                # Inside a node floats: one sends them to the first rank, and is told.
                self.assertGreater(placed["bytes_per_worker"]["inside"], 0.9 * averages * apart["parameters"] * 4)
                self.assertLess(placed["history"][-1]["test_loss"], 2.2)

    def test_groups_are_formed_anew_when_speeds_have_changed(self):
        # Two workers of four that are equally fast at the start become slower by five from step 8 on: what three
        # evaluations say.
        run = self.results(
            "--workers", "4", "--epochs", "5", "--steps", "48", "--batch", "16", "--speeds", "0.2,0.2,0.2,0.2",
            "--sync", "group", "--straggle", "2:8-48x5,3:8-48x5", "--evaluate-every", "8",
        )  # fmt: skip
        self.assertEqual(run["groups"], [0, 0, 1, 1])
        self.assertEqual(sum(run["shares"]), 64)
        self.assertGreater(min(run["shares"][:2]), 2 * max(run["shares"][2:]))
        self.assertEqual(run["history"][-1]["step"], 48)
        self.assertLess(run["history"][-1]["test_loss"], 2.3)

    def test_auto_measures_and_goes_on_with_what_suits(self):
        # A paced link: an average of all takes 100 ms, computing a few, so that three steps leave no doubt. By AdamW, of which
        # there are no servers.
        nodes = self.results(
            *PLACED, "--sync", "auto", "--steps", "80", "--transport", "tcp", "--link-rate", "50Mbit", "--optimizer", "adamw",
        )  # fmt: skip
        # On a busy machine shares may follow speeds later on.
        self.assertEqual(nodes["decisions"][0]["step"], 3)
        self.assertEqual({each["sync"] for each in nodes["decisions"]}, {"node:16"})
        self.assertIn("bsp", nodes["decisions"][0]["reason"])
        changed = nodes["decisions"][0]["in_use_from"]
        self.assertTrue(3 <= changed <= 5, f"in use from step {changed}, where its groups have been formed since the first step")
        periods = math.ceil((80 - changed) / 16)
        self.assertEqual(nodes["rounds"]["between"], changed + periods, "bsp until then, periods of 16, and the end")
        # Steps that train have shown what the links between nodes carry: nothing else has crossed them but numbers. Of a
        # ring 2 of 4 links cross, each with 3 / 4 of all twice; of node:16 both leaders send everything.
        each = nodes["parameters"] * 4
        needed = changed * each * 2 * 3 / 4 * 2 / 4 + periods * each * 2 / 4
        self.assertGreaterEqual(nodes["bytes_per_worker"]["between"], needed)
        self.assertLess(nodes["bytes_per_worker"]["between"], needed + 20_000)
        # One worker is often late, so that it may be servers; whatever it is, it is left and taken up again.
        file = self.folder / "auto"
        words = ("--workers", "2", "--model", "mlp", "--sync", "auto", "--speeds", "1,0.2", "--jitter", "0.3x6", "--evaluate-every", "8")
        part = self.results(*words, "--steps", "16", "--save", str(file))
        self.assertIn(part["decisions"][0]["step"], (3, 10))
        whole = self.results(*words, "--steps", "20", "--resume", str(file))
        self.assertEqual(whole["steps"], 20)
        self.assertLess(whole["history"][-1]["test_loss"], part["history"][0]["test_loss"])

    def test_auto_gives_samples_by_speed_while_it_forms_groups(self):
        # Any model has this loss, so that the run ends a step after the decision. Servers take steps by SGD alone.
        run = self.results(
            "--workers", "4", "--place", "node=2", "--model", "mlp", "--batch", "32", "--sync", "auto", "--speeds", "1,1,0.1,0.1",
            "--transport", "tcp", "--link-rate", "100Mbit", "--epochs", "100", "--evaluate-every", "4", "--target-loss", "100",
            "--optimizer", "adamw", "--lr", "0.001",
        )  # fmt: skip
        self.assertEqual((run["steps"], run["decisions"][0]["step"], run["decisions"][0]["sync"]), (4, 3, "node:16"))
        self.assertGreater(min(run["shares"][:2]), 3 * max(run["shares"][2:]))

    def test_who_never_leaves_a_synchronous_beginning_is_told(self):
        words = ("--workers", "2", "--model", "mlp", "--batch", "32", "--sync", "post-local:4")  # 10 steps an epoch
        for epochs, is_told in (("4", True), ("1", False)):
            result = self.train(*words, "--epochs", epochs, "--steps", "8")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("all of it is bsp" in result.stderr, is_told, result.stderr)

    def test_who_gives_diloco_over_momentum_or_nodes_on_one_host_is_told(self):
        words = ("--workers", "2", "--model", "mlp", "--batch", "32", "--steps", "8")
        too_far, is_bsp = "go too far over the momentum of --optimizer sgd", "all workers share one node"
        for sync, *more, told in (
            ("diloco:4", too_far), ("diloco:4,fragments=2", too_far), ("diloco:4", "--optimizer", "adamw", None),
            ("diloco:4,rate=1,momentum=0.5", None), ("slowmo:4", None), ("local:4", None),
            ("node:4", is_bsp), ("node:4", "--compress", "int8", "and --compress int8 has nothing to code"),
            ("node:4", "--place", "node=2", None), ("bsp", "--compress", "int8", None),
        ):  # fmt: skip
            result = self.train(*words, "--sync", sync, *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(told or "", result.stderr)
            self.assertEqual(too_far in result.stderr or is_bsp in result.stderr, told is not None, (sync, result.stderr))

    def test_who_gives_a_period_longer_than_the_run_is_told(self):
        words = ("--workers", "2", "--model", "mlp", "--batch", "32", "--epochs", "4", "--steps", "8")
        for sync, *more, is_told in (
            ("local:9", True), ("local:8", False), ("diloco:9", True), ("bsp", False), ("gossip", False),
            ("node:9", False), ("node:9", "--place", "node=1", True), ("node:8", "--place", "node=1", False),
        ):  # fmt: skip
            result = self.train(*words, "--sync", sync, *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            said = f"the period of --sync {sync} is longer than the 8 steps of this run: only when it ends"
            self.assertEqual(said in result.stderr, is_told, (sync, result.stderr))

    def test_what_makes_no_sense_is_refused_before_anything_starts(self):
        for words, *parts in (
            (("--sync", "loca:4"), "did you mean 'local'"),
            (("--sync", "loca"), "did you mean 'local'", ", auto"),
            (("--sync", "auto:3"), "the policy 'auto' takes no value", "without ':3'"),
            (("--sync", "aut"), "did you mean 'auto'"),
            (("--sync", "local:0"), "from 1"),
            (("--sync", "hierarchy:node=1,rack=4,world=8"), "--place rack=N"),
            (("--sync", "node:4", "--place", "node=5"), "1 to 4"),
            (("--sync", "node:4", "--place", "node=4,rack=2"), "unknown level to place 'rack'", "names them, as hierarchy:node=1,rack=8"),
            (("--sync", "auto", "--place", "rack=2"), "unknown level to place 'rack'"),
            (("--sync", "hierarchy:world=4,node=8"), "name 'node' before it"),
            (("--speeds", "1,0"), "--speeds"),
            (("--sample-ms", "0"), "--sample-ms '0'", "milliseconds"),
            (("--speeds", "1,1,1,1,1"), "5 numbers for 4 workers"),
            (("--speeds", "1,1,1"), "3 numbers for 4 workers"),
            (("--speeds", "1,1", "--sync", "async:servers=1"), "2 numbers for 4 workers"),
            (("--jitter", "often"), "0.05x4"),
            (("--split", "fair"), "'fair'"),
            (("--optimizer", "adam"), "did you mean 'adamw'"),
            (("--weight-decay", "-1"), "--weight-decay"),
            (("--sync", "async", "--optimizer", "adamw"), "leave --optimizer at sgd"),
            (("--sync", "ssp:2", "--split", "speed"), "at its own pace"),
            (("--sync", "gossip", "--split", "speed"), "leave out --split speed"),
            (("--sync", "async:servers=4"), "nobody to train"),
            (("--sync", "ad-psgd", "--compress", "topk:0.01"), "take int4, int8"),
            (("--sync", "gossip", "--compress", "thc"), "each sends its own"),
            (("--sync", "auto", "--compress", "dgc:0.1"), "corrects the momentum of gradients", "--sync bsp"),
            (("--sync", "async", "--compress", "powersgd:4"), "'powersgd:4' works on what all ranks average", "such as int8"),
            (("--sync", "group", "--compress", "strong"), "each sends its own"),
            (("--sync", "local:4", "--compress", "dgc:0.1"), "corrects the momentum of gradients"),
            (("--sync", "diloco:4,fragments=2", "--compress", "demo"), "corrects the momentum of gradients"),
            (("--optimizer", "adamw", "--compress", "dgc:0.1"), "takes the place of plain SGD's", "--optimizer adamw"),
            (("--optimizer", "lars", "--compress", "demo"), "takes the place of plain SGD's"),
            (("--sync", "gossip", "--survive"), "--survive does not go with --sync gossip"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(self.train("--workers", "4", *words), 2, *parts)

    def test_unequal_workers_have_the_same_words_in_simulation(self):
        simulate = ("simulate", "--workload", "resnet50", "--world", "4")
        for words in (
            ("--speeds", "1,0"),
            ("--speeds", "1,1,1,1,1"),
            ("--jitter", "often"),
            ("--straggle", "2:5x4"),
            ("--straggle", "4:1-2x3"),
        ):
            with self.subTest(words=words):
                refused = [self.train("--workers", "4", *words), run(*simulate, *words)]
                self.assertEqual([each.returncode for each in refused], [2, 2])
                self.assertEqual(refused[0].stderr.partition(": ")[2], refused[1].stderr.partition(": ")[2])
        self.assertEqual(run(*simulate, "--speeds", "1,0.5", "--jitter", "0.05x4", "--straggle", "2:1-9x3,0:4-5x2").returncode, 0)


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
