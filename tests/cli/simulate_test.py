"""ranvier simulate: predictions from the command line."""

import gzip
import json
import resource
from collections import defaultdict

from protobuf_bytes import chakra
from program import ProgramTest, main, run, temporary_folder


def simulate(*words: str, **options):
    return run("simulate", *words, limit=60, **options)


def as_json(*words: str) -> dict:
    result = simulate(*words, "--json", "-")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class OnAShape(ProgramTest):
    def test_has_the_links_of_its_dimensions(self):
        words = ("--bytes", "8M", "--world", "16", "--topology", "RI(4)_SW(4)", "--link-rate", "100Gbit,50Gbit")
        found = as_json(*words)
        self.assertEqual([each["dimension"] for each in found["dimensions"]], [0, 1])
        # The ring goes through one switch from every fourth rank to the next; in the grid both dimensions work at once.
        grid = as_json(*words, "--algorithm", "torus:4x4")
        self.assertLess(grid["step_ns"], 0.8 * found["step_ns"])
        for topology, shape in (("star", "SW(8)"), ("ring", "RI(8)"), ("fully_connected", "FC(8)")):
            one, other = (as_json("--bytes", "1M", "--world", "8", "--topology", each) for each in (topology, shape))
            self.assertAlmostEqual(one["step_ns"], other["step_ns"], msg=shape)

    def test_is_refused_with_a_sentence(self):
        for words, problem in (
            (("--world", "8", "--topology", "RI(4)_SW(4)"), "multiply to 16 ranks, and this world has 8"),
            (("--world", "8", "--topology", "RI(4)_XX(2)"), "column 7: 'XX' is no kind"),
            (("--world", "8", "--topology", "RI(2)_FC(4)", "--in-network"), "needs switches"),
            (("--world", "8", "--topology", "RI(2)_SW(4)", "--link-rate", "1Gbit,2Gbit,3Gbit"), "has 2 dimensions"),
        ):
            self.assert_sentence(simulate("--bytes", "1M", *words), 2, problem)


class Prediction(ProgramTest):
    def test_of_one_all_reduce_is_that_of_its_rounds(self):
        found = as_json("--bytes", "8000", "--world", "8", "--link-rate", "1GB", "--latency-us", "0.5")
        self.assertAlmostEqual(found["step_ns"], 14 * (1000 + 2 * 500), delta=1e-3)
        self.assertEqual((found["compute_ns"], found["exposed_communication_ns"]), (0, found["step_ns"]))
        self.assertTrue(all(0 < link["utilisation"] <= 1 for link in found["links"]))

    def test_is_the_same_folded_or_not(self):
        words = ("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit", "--topology", "ring")
        folded, whole = as_json(*words), as_json(*words, "--no-fold")
        self.assertAlmostEqual(folded["step_ns"] / whole["step_ns"], 1, delta=1e-9)
        self.assertLess(len(folded["links"]), len(whole["links"]))

    def test_of_many_worlds_finds_the_knee(self):
        result = simulate("--workload", "resnet50", "--world", "8..65536", "--link-rate", "400Gbit")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("\n   65536 ", result.stdout)
        self.assertIn("\nknee: up to ", result.stdout)
        found = as_json("--workload", "resnet50", "--world", "8..32", "--link-rate", "100Gbit")
        self.assertEqual([each["world"] for each in found["worlds"]], [8, 16, 32])
        steps = [each["step_ns"] for each in found["worlds"]]
        self.assertEqual(steps, sorted(steps))
        found = as_json("--workload", "resnet50", "--world", "8..65536", "--link-rate", "400Gbit")
        computing = [each["world"] for each in found["worlds"] if each["compute_ns"] >= 0.8 * each["step_ns"]]
        self.assertEqual((found["knee"], max(computing)), (512, 512))

    def test_of_many_worlds_leaves_out_those_that_the_workload_does_not_divide(self):
        words = ("--workload", "llama3-70b:tp=8,pp=4", "--link-rate", "400Gbit")
        result = simulate(*words, "--world", "8..128")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.startswith("# left out: 8, 16 ranks; workload llama3-70b is divided into tp=8,"))
        found = as_json(*words, "--world", "8..128")
        self.assertEqual([each["world"] for each in found["worlds"]], [32, 64, 128])
        self.assertEqual([each["world"] for each in found["left_out"]], [8, 16])
        self.assertIn("which does not make 16 ranks", found["left_out"][1]["why"])
        self.assertNotIn("left_out", as_json(*words, "--world", "32..64"))
        found = as_json("--bytes", "1M", "--world", "4..16", "--straggler", "9:2")
        whys = [f"--straggler names rank 9 of {ranks} ranks" for ranks in (4, 8)]
        self.assertEqual([each["why"] for each in found["left_out"]], whys)
        result = simulate(*words, "--world", "4..16")
        self.assert_sentence(result, 2, "which does not make 4 ranks")
        self.assertEqual(result.stdout, "")

    def test_of_many_worlds_keeps_what_it_found_where_it_cannot_go_on(self):
        words = ("--workload", "resnet50", "--algorithm", "torus:4x4", "--world", "16..64", "--link-rate", "1Gbit")
        result = simulate(*words)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("\nended before 32 ranks: ", result.stdout)
        self.assertIn("\nknee: ", result.stdout)
        found = as_json(*words)
        self.assertEqual([each["world"] for each in found["worlds"]], [16])
        self.assertEqual(found["ended"]["world"], 32)
        self.assertIsNone(found["knee"])

    def test_of_one_world_fails_where_something_that_was_asked_for_does(self):
        full = simulate("--bytes", "1M", "--world", "4", "--trace", "/dev/full")
        self.assert_sentence(full, 1, "cannot write /dev/full", "--trace")
        self.assertNotIn("ended before", full.stdout)
        with temporary_folder() as folder:
            file = folder / "found.json"
            many = simulate("--bytes", "1M", "--world", "65536", "--crash", "5:0.1", "--json", str(file))
            self.assert_sentence(many, 2, "or no crash")
            self.assertFalse(file.exists())

    def test_of_butterflies_of_many_ranks_takes_slices_that_divide_them(self):
        words = ("simulate", "--bytes", "100M", "--world", "131072", "--algorithm", "halving_doubling", "--json", "-")
        found = run(*words, limit=200)
        self.assertEqual(found.returncode, 0, found.stderr)
        # All but a 131072nd leaves each rank twice at 12.5 bytes a ns, in 34 rounds of two links of 1 us.
        self.assertAlmostEqual(json.loads(found.stdout)["step_ns"] / (2 * (100 << 20) / 12.5 + 34 * 2000), 1, delta=2e-3)

    def test_without_an_algorithm_takes_one_whose_ranks_are_alike(self):
        words = ("--workload", "resnet50", "--world", "2048", "--topology", "fat_tree:8")
        self.assertEqual(as_json(*words)["algorithm"], "recursive_doubling")
        self.assertIn("2048 ranks by recursive_doubling: by ring, the default, they are not alike", simulate(*words).stdout)
        self.assertIn("or algorithm recursive_doubling", simulate(*words, "--algorithm", "ring").stderr)
        on_a_star = ("--bytes", "1G", "--world", "131072")
        self.assertIn("or no slow rank", simulate(*on_a_star, "--straggler", "3:2").stderr)
        on_a_torus = ("--bytes", "1G", "--world", "131072", "--topology", "torus:512x256")
        refusal = simulate(*on_a_torus, "--algorithm", "binomial_tree").stderr
        self.assertRegex(refusal, r"try fewer ranks, or slices of \d+ bytes\n$")

    def test_of_a_slow_rank_among_many_simulates_each(self):
        words = ("--bytes", "1M", "--world", "2048", "--algorithm", "recursive_doubling", "--link-rate", "8Gbit")
        slower = as_json(*words, "--straggler", "3:2")["step_ns"] / as_json(*words)["step_ns"]
        self.assertTrue(1.9 < slower < 2.5, slower)  # its partners lag, too

    def test_by_a_policy_averages_as_often_as_that_asks_for(self):
        words = ("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit", "--sync")
        bsp = as_json(*words, "bsp")
        self.assertAlmostEqual(bsp["sync"]["step_ns"], bsp["step_ns"], delta=1e-6 * bsp["step_ns"])
        self.assertEqual(bsp["sync"]["rounds_per_step"], 1)
        of = {spec: as_json(*words, spec)["sync"] for spec in ("local:1", "local:10", "local:100")}
        self.assertAlmostEqual(of["local:10"]["rounds_per_step"], 0.1)
        exposed = [each["exposed_communication_ns"] for each in of.values()]
        self.assertAlmostEqual(exposed[1] / exposed[0], 0.1, delta=1e-6)
        self.assertAlmostEqual(exposed[2] / exposed[0], 0.01, delta=1e-6)
        # An average after the step hides behind nothing.
        self.assertGreaterEqual(exposed[0], bsp["sync"]["exposed_communication_ns"] * (1 - 1e-9))

    def test_by_a_policy_the_critical_path_is_of_the_steps_that_it_takes(self):
        words = ("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit")
        plain = as_json(*words)
        found = as_json(*words, "--sync", "local:16")
        self.assertEqual(set(found) & {"critical_path", "links", "roles", "dimensions", "communication_ns"}, set())
        # What is under "bsp" is one that averages gradients: nothing of it stands among what is the policy's.
        for key in ("communication_ns", "exposed_communication_ns", "links", "roles", "critical_path", "step_ns"):
            self.assertEqual(found["bsp"][key], plain[key], key)
        self.assertEqual(found["step_ns"], found["sync"]["step_ns"])
        self.assertFalse(any("bucket" in each["name"] for each in found["sync"]["critical_path"]))
        self.assertEqual(found["sync"]["critical_path"][-1]["end_ns"], found["sync"]["usual_step_ns"])
        by_parts = found["sync"]["usual_step_ns"] + found["sync"]["between_steps_ns"]
        self.assertAlmostEqual(found["sync"]["step_ns"] / by_parts, 1, delta=1e-9)
        self.assertEqual(as_json(*words, "--sync", "bsp")["sync"]["critical_path"], plain["critical_path"])
        said = simulate(*words, "--sync", "local:16").stdout
        self.assertIn("that averages no gradients, as most are:", said)
        self.assertIn("\naverages of parameters between steps add ", said)

    def test_by_a_policy_has_its_knee_and_its_failures(self):
        words = ("--workload", "resnet50", "--link-rate", "1Gbit")
        plain, local = as_json(*words, "--world", "8..32"), as_json(*words, "--world", "8..32", "--sync", "local:1000")
        self.assertIsNone(plain["knee"])
        self.assertEqual(local["knee"], 32)
        failing = as_json(*words, "--world", "8", "--sync", "local:100", "--mtbf-hours", "100", "--checkpoint-s", "5")
        self.assertAlmostEqual(
            failing["step_with_failures_ns"] * failing["goodput"] / failing["sync"]["step_ns"], 1, delta=1e-9)  # fmt: skip

    def test_fragments_travel_behind_the_steps_that_they_may_take(self):
        words = ("--workload", "resnet50", "--world", "8", "--link-rate", "10Gbit", "--sync")
        at_once = as_json(*words, "diloco:40,fragments=4")["sync"]
        self.assertAlmostEqual(
            at_once["exposed_communication_ns"] / as_json(*words, "diloco:40")["sync"]["exposed_communication_ns"], 1, delta=1e-6
        )
        self.assertAlmostEqual(at_once["rounds_per_step"], 0.1)
        behind = as_json(*words, "diloco:40,fragments=4,delay=9")["sync"]
        self.assertLess(behind["exposed_communication_ns"], 0.01 * at_once["exposed_communication_ns"])

    def test_averages_between_nodes_travel_behind_the_steps_that_they_may_take(self):
        words = ("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit", "--place", "node=4", "--sync")
        at_once, behind = (as_json(*words, sync)["sync"] for sync in ("node:40", "node:40,delay=20"))
        self.assertEqual(behind["rounds_per_step"], at_once["rounds_per_step"])
        self.assertGreater(at_once["between_steps_ns"], 0)
        self.assertLess(behind["between_steps_ns"], 0.01 * at_once["between_steps_ns"])

    def test_peers_are_shown(self):
        words = ("--workload", "resnet50", "--world", "4", "--link-rate", "10Gbit", "--sync", "ad-psgd", "--steps", "50")
        shown = simulate(*words, "--seed", "3")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertRegex(shown.stdout, r"a worker waits [\d.]+ ms a step in the mean for the average")
        found = as_json(*words)["sync"]
        self.assertLessEqual(found["peers"]["busiest"]["busy"], 1)
        self.assertIn(found["peers"]["busiest"]["rank"], (0, 2))
        self.assertGreater(len(found["peers"]["links"]), 0)

    def test_policies_that_it_cannot_show_are_refused(self):
        for spec, part in (("node:4", "--place node=2"), ("auto", "while ranvier train trains"),
                           ("local:4,adapt=0.5,most=8", "by --spread"),
                           ("local", "write local:STEPS")):  # fmt: skip
            result = simulate("--workload", "resnet50", "--world", "4", "--sync", spec)
            self.assertEqual(result.returncode, 2)
            self.assertIn(part, result.stderr)

    def test_nodes_average_over_links_of_their_own(self):
        words = ("--workload", "resnet50", "--world", "16", "--topology", "fat_tree:4,oversubscription=4")
        words += ("--link-rate", "100GB,10Gbit", "--place", "node=4")
        found = as_json(*words, "--sync", "node:16")
        self.assertLess(found["step_ns"], 0.5 * found["bsp"]["step_ns"])
        self.assertEqual(found["step_ns"], found["sync"]["step_ns"])
        one_node = as_json(*words[:-1], "node=1", "--sync", "node:16")
        self.assertAlmostEqual(one_node["step_ns"] / one_node["bsp"]["step_ns"], 1, delta=1e-9)
        said = simulate(*words, "--sync", "node:16").stdout
        self.assertIn("whose gradients are averaged:", said)
        racks = simulate(*words[:-1], "node=4,rack=2", "--sync", "hierarchy:node=1,rack=8,world=32")
        self.assertEqual(racks.returncode, 0, racks.stderr)

    def test_servers_are_as_fast_as_their_links_and_their_slowest_worker_allows(self):
        words = ("--workload", "resnet50", "--world", "5", "--steps", "50", "--sync")
        fast = (*words[:4], "--link-rate", "1000Gbit", *words[4:])
        asynchronous = as_json(*fast, "async:servers=1", "--speeds", "1,1,1,0.25")["sync"]
        bound = as_json(*fast, "ssp:2,servers=1", "--speeds", "1,1,1,0.25")["sync"]
        self.assertLess(asynchronous["step_ns"], 0.5 * bound["step_ns"])
        self.assertGreater(asynchronous["servers"]["most_ahead"], 2)
        self.assertEqual(bound["servers"]["most_ahead"], 2)
        groups = as_json(*fast, "group:servers=1", "--speeds", "1,1,0.25,0.25")["sync"]
        self.assertEqual(groups["servers"]["groups"], [0, 0, 1, 1, -1])
        slow = as_json(*words, "async:servers=1", "--link-rate", "1Gbit")["sync"]
        self.assertEqual(slow["servers"]["busiest"]["rank"], 4)
        said = simulate(*words, "async:servers=1", "--link-rate", "1Gbit").stdout
        self.assertRegex(said, r"\nthe server of rank 4 is busy with pushes for (9\d\.\d|100\.0) % of the time\n")

    def test_the_same_seed_makes_the_same_steps_late(self):
        words = ("--workload", "resnet50", "--world", "4", "--steps", "50", "--jitter", "0.1x4", "--speeds", "1,0.9,0.8")
        words += ("--sync", "local:5", "--seed")
        self.assertEqual(simulate(*words, "7").stdout, simulate(*words, "7").stdout)
        self.assertNotEqual(simulate(*words, "7").stdout, simulate(*words, "8").stdout)
        self.assertEqual(as_json(*words, "0")["sync"], as_json(*words[:-1])["sync"])

    def test_speeds_go_on_with_1_where_the_list_ends(self):
        words = ("--workload", "resnet50", "--world", "4", "--steps", "20", "--speeds")
        self.assertEqual(as_json(*words, "0.5")["step_ns"], as_json(*words, "0.5,1,1,1")["step_ns"])
        for command in ("plan", "simulate"):
            self.assertIn("1 where the list ends", " ".join(run(command, "--help").stdout.split()))

    def test_says_what_is_assumed_of_replicas(self):
        words = ("--workload", "resnet50", "--world", "4", "--sync", "local:4,adapt=0.5,most=16", "--spread")
        self.assertIn("assumed: replicas have a spread of 0.1 at every average", simulate(*words, "0.1").stdout)
        self.assertAlmostEqual(as_json(*words, "0.1")["sync"]["rounds_per_step"], 1 / 16, delta=1e-3)
        self.assertAlmostEqual(as_json(*words, "9")["sync"]["rounds_per_step"], 1, delta=1e-3)

    def test_writes_a_trace_for_perfetto(self):
        with temporary_folder() as folder:
            file = folder / "trace.json"
            result = simulate("--workload", "resnet50", "--world", "4", "--trace", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            names = [event["name"] for event in json.loads(file.read_text())["traceEvents"]]
            self.assertIn("forward", names)
            self.assertIn("bucket 0", names)
            result = simulate("--bytes", "4000", "--world", "4", "--no-fold", "--trace", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            messages = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
            self.assertEqual(len(messages), 4 * 6)

    # Viewers draw spans of one lane as a stack, and what only overlaps wrongly.
    def test_spans_of_a_lane_of_a_trace_nest_or_are_apart(self):
        with temporary_folder() as folder:
            file = folder / "trace.json"
            slow = ("--link-rate", "400Gbit,10Gbit", "--topology", "fat_tree:4,oversubscription=4")
            for words, overlap in (
                (("--workload", "llama3-8b:tp=4", "--world", "16", *slow), True),
                (("--workload", "resnet50", "--world", "4"), False),
                (("--bytes", "1M", "--world", "5", "--algorithm", "direct", "--no-fold"), True),
                (("--bytes", "100000", "--world", "8", "--algorithm", "binomial_tree"), True),
                (("--bytes", "1M", "--world", "8"), False),
            ):
                with self.subTest(words=words):
                    result = simulate(*words, "--trace", str(file))
                    self.assertEqual(result.returncode, 0, result.stderr)
                    lanes, names = defaultdict(list), {}
                    for event in json.loads(file.read_text())["traceEvents"]:
                        lane = (event["pid"], event["tid"])
                        if event["ph"] == "X":
                            begin = round(event["ts"] * 1e3)
                            lanes[lane].append((begin, begin + round(event["dur"] * 1e3)))
                        elif event["name"] == "thread_name":
                            self.assertNotIn(lane, names)
                            names[lane] = event["args"]["name"]
                    self.assertEqual(set(names), set(lanes))
                    self.assertEqual(len(set(names.values())), len(names))
                    for lane, spans in lanes.items():
                        open_until = []
                        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
                            while open_until and open_until[-1] <= begin:
                                open_until.pop()
                            self.assertLessEqual(end, open_until[-1] if open_until else end, names[lane])
                            open_until.append(end)
                    self.assertEqual(any(name.endswith(" (2)") for name in names.values()), overlap)

    def test_of_a_divided_model_is_split_by_role(self):
        words = ("--workload", "llama3-8b:tp=4,pp=2", "--world", "64", "--link-rate", "400Gbit")
        found = as_json(*words)
        self.assertEqual({role["role"] for role in found["roles"]}, {"tensor", "data", "pipeline"})
        # Two stages and four micro-batches: one in five of the time that the passes take.
        self.assertAlmostEqual(found["idle_ns"] / found["compute_ns"], 1 / 4, delta=1e-9)
        exposed = sum(role["exposed_ns"] for role in found["roles"])
        self.assertAlmostEqual(exposed / found["exposed_communication_ns"], 1, delta=1e-6)
        path = found["critical_path"]
        self.assertEqual((path[0]["begin_ns"], path[-1]["end_ns"]), (0, found["step_ns"]))
        for before, after in zip(path, path[1:]):
            self.assertLessEqual(before["begin_ns"], after["begin_ns"])
            self.assertLessEqual(after["begin_ns"], before["end_ns"] * (1 + 1e-9))
        said = simulate(*words).stdout
        self.assertIn("\nthe pipeline fills and drains for ", said)
        self.assertIn("\ntensor groups communicate for ", said)
        self.assertIn("\ncritical path: ", said)

    def test_of_a_grid_is_split_by_dimension_and_link(self):
        words = ("--workload", "llama3-8b:tp=4", "--world", "64", "--topology", "torus:16x4", "--link-rate", "400Gbit")
        found = as_json(*words)
        self.assertEqual([each["dimension"] for each in found["dimensions"]], [0, 1])
        for key in ("communication_ns", "exposed_ns"):
            whole = found["exposed_communication_ns" if key == "exposed_ns" else key]
            self.assertAlmostEqual(sum(each[key] for each in found["dimensions"]) / whole, 1, delta=1e-9)
        # Tensor groups, along the last dimension, hide behind nothing.
        tensor = next(role for role in found["roles"] if role["role"] == "tensor")
        self.assertAlmostEqual(found["dimensions"][1]["exposed_ns"] / tensor["exposed_ns"], 1, delta=1e-9)
        self.assertAlmostEqual(found["dimensions"][1]["hidden_ns"], 0, delta=1)
        for link in found["links"]:
            busy = (link["exposed_ns"] + link["hidden_ns"]) / found["step_ns"]
            self.assertAlmostEqual(busy, link["utilisation"], delta=1e-9)
        self.assertRegex(simulate(*words).stdout, r"\ndimension 1 is used for .* exposed; rank \d+ -> rank \d+ is busy for ")
        coded = as_json("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit", "--compress", "bf16")
        self.assertGreater(coded["exposed_codec_ns"], 0)
        self.assertGreaterEqual(coded["codec_ns"], coded["exposed_codec_ns"])

    def test_no_link_is_busy_for_longer_than_the_step(self):
        with temporary_folder() as folder:
            link = "[[link]]\nfrom = {}\nto = {}\nlatency_us = 10\ngbit_per_second = 1\nburst_bytes = 100000\n"
            network = folder / "bursts.toml"
            network.write_text('world = 2\ntransport = "tcp"\n' + link.format(0, 1) + link.format(1, 0))
            words = ("--topology", str(network), "--world", "2")
            found = as_json(*words, "--bytes", "100K", "--algorithm", "one_round")
            self.assertAlmostEqual(max(link["utilisation"] for link in found["links"]), 1, delta=1e-9)
            self.assertAlmostEqual(found["links"][0]["exposed_ns"] / found["step_ns"], 1, delta=1e-9)
            pushed = as_json(*words, "--workload", "resnet50", "--sync", "async", "--steps", "20")["sync"]["servers"]
            self.assertTrue(all(0 < link["utilisation"] <= 1 for link in pushed["links"]))

    def test_knows_switches_that_add_up(self):
        words = ("--bytes", "1000000", "--world", "16", "--link-rate", "1GB", "--latency-us", "1", "--slice", "2M")
        for topology, links in (("star", 2), ("fat_tree:4,oversubscription=2", 4)):
            found = as_json(*words, "--topology", topology, "--in-network")
            self.assertAlmostEqual(found["step_ns"], 1e6 + links * 1000, delta=1e-3)
        step = ("--workload", "resnet50", "--world", "16", "--link-rate", "1Gbit")
        summed, ring = as_json(*step, "--in-network"), as_json(*step)
        self.assertAlmostEqual(summed["communication_ns"] / ring["communication_ns"], 16 / (2 * 15), delta=0.01)

    def test_knows_switches_of_a_shape_that_add_up(self):
        # Three quarters of a ring of four come and go along two links of 4 GB/s, a quarter goes up and comes down.
        words = ("--bytes", "4000000", "--slice", "32K", "--world", "16", "--topology", "RI(4)_SW(4)", "--latency-us", "0")
        narrow_ring = as_json(*words, "--link-rate", "1GB,4GB", "--in-network")
        self.assertAlmostEqual(narrow_ring["step_ns"] / (3 / 4 * 4e6), 1, delta=0.1)
        narrow_switch = as_json(*words, "--link-rate", "4GB,500MB", "--in-network")
        self.assertAlmostEqual(narrow_switch["step_ns"] / (1 / 4 * 4e6 * 2), 1, delta=0.1)
        by_ranks = as_json(*words, "--link-rate", "4GB,500MB", "--algorithm", "torus:4x4")
        self.assertGreater(by_ranks["step_ns"], 1.4 * narrow_switch["step_ns"])

    def test_several_at_once_share_links_and_hide_latency(self):
        far = ("--world", "8", "--link-rate", "1GB", "--latency-us", "100")
        self.assertAlmostEqual(
            as_json("--bytes", "800", *far, "--at-once", "4")["step_ns"] / as_json("--bytes", "800", *far)["step_ns"],
            1 / 4, delta=0.01)
        near = ("--world", "8", "--link-rate", "1GB", "--latency-us", "0", "--bytes", "8M")
        self.assertAlmostEqual(as_json(*near, "--at-once", "4")["step_ns"] / as_json(*near)["step_ns"], 1, delta=0.01)
        step = ("--workload", "resnet50", "--world", "8", "--link-rate", "10Gbit", "--latency-us", "500", "--bucket", "1M")
        self.assertLess(as_json(*step)["step_ns"], 0.8 * as_json(*step, "--at-once", "1")["step_ns"])

    def test_counts_codecs_and_failures(self):
        words = ("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit")
        plain, coded = as_json(*words), as_json(*words, "--compress", "bf16")
        self.assertLess(coded["step_ns"], 0.7 * plain["step_ns"])

    def test_says_what_failures_cost_and_how_often_a_checkpoint_is_best(self):
        words = ("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit")
        plain = as_json(*words)
        often = (*words, "--mtbf-hours", "100", "--checkpoint-s", "5", "--recovery-s", "60")
        best = as_json(*often)
        self.assertEqual(best["step_ns"], plain["step_ns"])
        self.assertAlmostEqual(best["step_with_failures_ns"] * best["goodput"] / plain["step_ns"], 1, delta=1e-9)
        self.assertLess(best["goodput"], 1)
        # Young's interval: the square root of 2 x 5 s x 100 h / 8.
        self.assertAlmostEqual(best["checkpoint_interval_s"] / (2 * 5 * 100 * 3600 / 8) ** 0.5, 1, delta=0.02)
        rare = as_json(*often, "--checkpoint-every", "100000")
        self.assertEqual((rare["checkpoint_steps"], rare["best_checkpoint_steps"]), (100000, best["checkpoint_steps"]))
        self.assertEqual(rare["best_goodput"], best["goodput"])
        self.assertLess(rare["goodput"], best["goodput"])
        said = simulate(*often, "--checkpoint-every", "100000").stdout
        self.assertRegex(said, r"goodput [\d.]+ % with a checkpoint every 100000 steps \(.*; best: [\d.]+ % with a checkpoint every")

    def test_where_failures_come_faster_than_steps_none_counts(self):
        words = ("--workload", "resnet50", "--world", "1024", "--mtbf-hours", "0.0001", "--checkpoint-s", "1000")
        found = as_json(*words)
        self.assertEqual(found["goodput"], 0)
        self.assertNotIn("step_with_failures_ns", found)
        self.assertNotIn("null", json.dumps(found))
        said = simulate(*words).stdout
        self.assertIn("with failures no step counts", said)
        self.assertNotIn("inf", said)
        rare = ("--workload", "resnet50", "--world", "8", "--mtbf-hours", "100", "--checkpoint-s", "30", "--checkpoint-every", "1000000000")
        self.assertRegex(simulate(*rare).stdout, r"with failures no step counts: .*; best: 9[\d.]+ % with a checkpoint every")
        self.assertNotIn("step_with_failures_ns", as_json(*rare))

    def test_of_a_crash_says_who_waits_and_who_notices_it(self):
        words = ("--bytes", "8000", "--world", "8", "--link-rate", "1GB", "--crash")
        early = as_json(*words, "3:0.001")["crash"]
        self.assertEqual([each["finished"] for each in early["ranks"]], [False] * 8)
        self.assertEqual(early["ranks"][4]["waits_for"], 3)
        self.assertNotIn("waits_for", early["ranks"][3])
        self.assertTrue(2.7e9 < early["noticed_by"][0]["ns"] <= early["all_know_ns"] < 3.3e9)
        late = as_json(*words, "3:1000", "--crash-of", "process")["crash"]
        self.assertEqual([each["finished"] for each in late["ranks"]], [True] * 8)
        self.assertEqual({each["rank"] for each in late["noticed_by"]}, {1, 2, 4, 5, 7})
        self.assertLess(late["all_know_ns"], 1e5)
        # What a slow rank sends is on its way when another one is lost.
        slow = ("--bytes", "1M", "--world", "8", "--straggler", "3:10")
        at_ms = as_json(*slow)["step_ns"] / 2e6
        told = as_json(*slow, "--crash", f"5:{at_ms}")["crash"]
        self.assertFalse(any(each["finished"] for each in told["ranks"]))
        step = simulate("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit", "--crash", "3:100")
        self.assertRegex(step.stdout, r"\n  bucket \d+ does not end\n  noticed by rank.* names rank 3\n")

    def test_of_a_cut_cable_compares_the_algorithms(self):
        words = ("--bytes", "10M", "--world", "16", "--topology", "torus:4x4", "--cut", "0-1")
        found = as_json(*words)
        ns = {each["algorithm"]: each["ns"] for each in found["algorithms"]}
        whole = {each["algorithm"]: each["whole_ns"] for each in found["algorithms"]}
        self.assertEqual(list(ns.values()), sorted(ns.values()))
        self.assertEqual(ns["ring"], found["step_ns"])
        self.assertAlmostEqual(ns["ring"] / whole["ring"], 2, delta=0.05)  # another way carries two messages
        step = as_json("--workload", "resnet50", "--world", "16", "--topology", "torus:4x4", "--cut", "0-1", "--link-rate", "1Gbit")
        self.assertGreater(step["step_ns"], step["whole_step_ns"])

    def test_an_algorithm_that_a_cut_stops_is_refused_with_those_that_run(self):
        with temporary_folder() as folder:
            file = folder / "t.toml"
            pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
            link = "[[link]]\nfrom = {}\nto = {}\nlatency_us = 1\ngbit_per_second = 1\n"
            file.write_text("world = 4\n" + "".join(link.format(a, b) for a, b in pairs))
            # Rank 2 sends over switch 2, and rank 3 receives over switch 7.
            self.assert_sentence(simulate("--bytes", "1M", "--topology", str(file), "--latency-us", "3"), 2, "leave out --latency-us")
            words = ("--bytes", "1M", "--topology", str(file), "--cut", "s2-s7")
            self.assert_sentence(simulate(*words), 2, "ring: rank 2 has no way to rank 3", "these run: ", "parameter_server")
            self.assertEqual(simulate(*words, "--algorithm", "parameter_server").returncode, 0)

    def test_in_a_row_is_the_time_of_one(self):
        words = ("--bytes", "8000", "--world", "8", "--algorithm", "binomial_tree")
        self.assertAlmostEqual(as_json(*words, "--in-a-row", "4")["step_ns"], as_json(*words)["step_ns"], delta=1e-3)

    def test_knows_stragglers(self):
        words = ("--workload", "resnet50", "--world", "8", "--link-rate", "10Gbit")
        self.assertGreater(as_json(*words, "--straggler", "3:2")["step_ns"], 1.9 * as_json(*words)["step_ns"])

    def test_knows_workers_of_unequal_speed(self):
        words = ("--workload", "resnet50", "--world", "4", "--link-rate", "100Gbit")
        equal = as_json(*words)
        slow = as_json(*words, "--speeds", "1,1,1,0.5")["sync"]  # by bsp
        self.assertEqual(slow["spec"], "bsp")
        self.assertAlmostEqual(slow["step_ns"], equal["step_ns"] + equal["compute_ns"], delta=1)
        late = [as_json(*words, "--jitter", "0.1x4", "--steps", "320", "--sync", each)["sync"]["step_ns"] for each in ("bsp", "local:32")]
        self.assertGreater(late[0], 1.2 * late[1])
        while_it_lasts = as_json(*words, "--straggle", "2:0-10x3", "--steps", "20")["sync"]["step_ns"]
        self.assertAlmostEqual(while_it_lasts, equal["step_ns"] + equal["compute_ns"], delta=1)


class WrongUsage(ProgramTest):
    def test_is_one_sentence_with_its_remedy(self):
        for words, part in (
            ((), "simulate needs --world"),
            (("--world", "8"), "either --workload or --bytes"),
            (("--world", "0", "--bytes", "4"), "--world '0'"),
            (("--world", "8..4", "--bytes", "4"), "--world '8..4'"),
            (("--world", "8", "--workload", "gpt3"), "which does not make 8 ranks"),
            (("--world", "8", "--workload", "resnet51"), "did you mean 'resnet50'?"),
            (("--world", "8", "--bytes", "4", "--topology", "torus:2x2"), "write torus:2x4"),
            (("--world", "8", "--bytes", "4", "--algorithm", "rnig"), "did you mean 'ring'?"),
            (("--world", "8", "--bytes", "4", "--link-rate", "fast"), "--link-rate 'fast'"),
            (("--world", "8", "--bytes", "4", "--straggler", "9:2"), "rank 9 of 8 ranks"),
            (("--world", "8", "--bytes", "4", "--link-rate", "1e-300bit"), "--link-rate 1e-300bit is not from 1kbit"),
            (("--world", "8", "--bytes", "4", "--link-rate", "1e300GB"), "to 1000000Gbit a second"),
            (("--world", "8", "--bytes", "4", "--straggler", "1:0.5"), "write 3:2.5"),
            (("--world", "8", "--bytes", "4", "--straggler", "1:1e300"), "write 3:2.5"),
            (("--world", "8", "--workload", "resnet50", "--sync", "local:8,adapt=1,most=9", "--spread", "inf"), "--spread inf"),
            (("--world", "8", "--workload", "resnet50", "--sync", "local:8,adapt=1", "--spread", "1"), "name the longest period by most="),
            (("--world", "8", "--bytes", "4", "--compress", "bf16"), "give --workload"),
            (("--world", "8", "--bytes", "4", "--jitter", "0.1x4"), "give --workload"),
            (("--world", "8", "--workload", "resnet50", "--seed", "3"), "give --jitter"),
            (("--world", "8", "--workload", "resnet50", "--place", "node=2"), "are of --sync"),
            (("--world", "8", "--workload", "resnet50", "--sync", "bsp", "--place", "node=2"), "such as node:16"),
            (("--world", "8", "--workload", "resnet50", "--sync", "node:4", "--place", "rack=2"), "add node=2"),
            (("--world", "8", "--workload", "resnet50", "--sync", "node:4", "--place", "node=4,rack=2"), "unknown level to place 'rack'"),
            (("--world", "8", "--workload", "resnet50", "--sync", "node:4", "--place", "node=9"), "from 1 to 8"),
            (("--world", "8", "--workload", "resnet50", "--sync", "bsp", "--spread", "1"), "local:8,adapt=0.5,most=64"),
            (("--world", "8", "--workload", "resnet50", "--sync", "gossip", "--compress", "powersgd:4"), "take int4, int8"),
            (("--world", "8", "--bytes", "4", "--topology", "torus:2x2x2", "--link-rate", "9GB,1GB"), "2 speeds"),
            (("--world", "8", "--workload", "resnet50", "--sync", "async:servers=8"), "take fewer servers"),
            (("--world", "8", "--workload", "resnet50", "--sync", "async", "--compress", "powersgd:4"), "each sends its own"),
            (("--world", "8", "--bytes", "4", "--link-rate", "1GB,2GB"), "has 1 dimension"),
            (("--world", "8", "--bytes", "4", "--link-rate", "1GB,"), "--link-rate ''"),
            (("--world", "8", "--bytes", "4", "--latency-us", "1,-1"), "--latency-us -1"),
            (("--world", "8", "--workload", "resnet50", "--steps", "0"), "--steps"),
            (("--world", "8", "--workload", "resnet50", "--in-a-row", "3"), "--in-a-row is of --bytes"),
            (("--world", "8", "--workload", "resnet50", "--mtbf-hours", "-1"), "--mtbf-hours -1"),
            (("--world", "8", "--workload", "resnet50", "--mtbf-hours", "9"), "needs --checkpoint-s"),
            (("--world", "8", "--workload", "resnet50", "--mtbf-hours", "0"), "no time between failures"),
            (("--world", "8", "--workload", "resnet50", "--link-rate", ""), "--link-rate: is empty"),
            (("--world", "8", "--workload", "resnet50", "--mtbf-hours", "1", "--checkpoint-s", "1e19"), "a number from 0 to 1e9"),
            (("--world", "8", "--bytes", "4M", "--mtbf-hours", "9", "--checkpoint-s", "5"), "--mtbf-hours is of --workload"),
            (("--world", "8", "--workload", "resnet50:batch=16777217"), "no whole number from 1 to 16777216"),
            (("--world", "8", "--workload", "resnet50", "--checkpoint-s", "5"), "--checkpoint-s is of --mtbf-hours"),
            (("--world", "8", "--workload", "resnet50", "--recovery-s", "5"), "--recovery-s is of --mtbf-hours"),
            (("--world", "8", "--workload", "resnet50", "--checkpoint-every", "5"), "give that, too, or leave it out"),
            (("--world", "8", "--bytes", "4", "--crash-of", "process"), "--crash-of is of --crash"),
            (("--world", "8", "--bytes", "4", "--bucket", "4"), "--bucket is of --workload"),
            (("--world", "8", "--bytes", "4", "--topology", "RI(4)_SW(2)\n"), "network 'RI(4)_SW(2)?', column 12"),
            (("--world", "8", "--workload", "resnet50\n"), "unknown workload 'resnet50\\n'; did you mean 'resnet50'?"),
            (("--world", "8", "--bytes", "4", "--crash", "3"), "write 3:12.5"),
            (("--world", "8", "--bytes", "4", "--crash", "8:1"), "rank 8 of 8 ranks"),
            (("--world", "8..16", "--bytes", "4", "--crash", "1:1"), "name one, such as --world 16"),
            (("--world", "8", "--bytes", "4", "--crash", "1:1", "--in-a-row", "2"), "leave out --in-a-row"),
            (("--world", "8", "--bytes", "4", "--topology", "ring", "--cut", "0-2"), "its cables go to rank 1, rank 7"),
            (("--world", "8", "--bytes", "4", "--topology", "ring", "--cut", "0"), "write 0-1"),
            (("--world", "8", "--bytes", "4", "--cut", "3-s0"), "no algorithm runs"),
            (("--world", "131072", "--bytes", "1G", "--algorithm", "mesh"), "up to 1024, or 5000000 messages"),
            (("--world", "8", "--bytes", "4", "--in-network", "--topology", "ring"), "take star, fat_tree:4 or a shape"),
            (("--world", "8", "--bytes", "4", "--in-network", "--topology", "RI(4)_SW(2)", "--cut", "0-1"), "with all of its cables"),
            (("--world", "8", "--bytes", "4", "--in-network", "--algorithm", "ring"), "in place of --algorithm"),
            (("--world", "8", "--workload", "resnet50", "--in-network", "--compress", "bf16"), "leave out --compress"),
            (("--world", "8", "--bytes", "4", "--in-network", "--crash", "1:1"), "leave out one"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(simulate(*words), 2, part)

    def test_one_rank_sends_nothing_however_much(self):
        self.assertEqual(as_json("--bytes", "500000G", "--world", "1")["step_ns"], 0)

    def test_of_programs_that_take_long_to_make_is_no_matter_of_many_seconds(self):
        def for_15_seconds():
            resource.setrlimit(resource.RLIMIT_CPU, (15, 15))

        words = ("--world", "131072", "--bytes", "100M", "--topology", "fat_tree:64", "--algorithm", "swing")
        self.assert_sentence(simulate(*words, preexec_fn=for_15_seconds), 2, "try fewer ranks, or ")

    def test_an_impossible_world_is_named_before_any_is_simulated(self):
        words = ("--workload", "resnet50", "--world", "16..64", "--topology", "torus:4x4")
        result = simulate(*words)
        self.assert_sentence(result, 2, "torus")
        self.assertEqual(result.stdout, "")
        result = simulate("--workload", "resnet50", "--world", "4096..8192", "--jitter", "0.1x4")
        self.assert_sentence(result, 2, "8192 replicas")
        self.assertEqual(result.stdout, "")

    def test_of_a_cut_port_goes_over_another_npu(self):
        found = as_json("--bytes", "10M", "--world", "12", "--topology", "RI(4)_SW(3)", "--cut", "0-s0")
        self.assertGreater(found["step_ns"], found["algorithms"][0]["whole_ns"])
        self.assertTrue(all("ns" in each for each in found["algorithms"]))
        alone = ("--bytes", "10M", "--world", "4", "--topology", "SW(4)", "--cut", "0-s0")
        self.assert_sentence(simulate(*alone), 2, "rank 0 has no way to rank 1", "no algorithm runs")

    def test_what_replicas_gather_is_as_large_for_any_number_of_them(self):
        """FSDP of 4 GB in all, at 1 GB/s and recorded on four ranks, by `simulate` and by `design`."""
        layer = '[[layer]]\ncommunications = [{ pass = "forward", collective = "all_gather", bytes = 1e9, role = "data" }]\n'
        with temporary_folder() as folder:
            file = folder / "w.toml"
            file.write_text(f"ranks = 4\n{layer}")
            for world in (4, 64):
                found = as_json("--workload", str(file), "--world", str(world), "--link-rate", "8Gbit", "--latency-us", "0")
                self.assertAlmostEqual(found["step_ns"] / 4e9, 1 - 1 / world, delta=1e-3)
                words = ("--workload", str(file), "--network", f"SW({world})", "--budget", "1GB/s", "--json", "-")
                designed = json.loads(run("design", *words).stdout)
                self.assertAlmostEqual(designed["time_ns"] / 4e9, 1 - 1 / world, delta=1e-6)

    def test_of_an_image_split_by_rows_exchanges_borders_with_neighbours(self):
        """100 kB each way along a line, at 1 GB/s: both at once by links of their own, in turn by one link to a switch."""
        row = '{ pass = "forward", collective = "neighbor_exchange", bytes = 100000, role = "tensor" }'
        with temporary_folder() as folder:
            file = folder / "w.toml"
            file.write_text(f"[degrees]\ntensor = 8\n[[layer]]\ncommunications = [{row}]\n")
            words = ("--workload", str(file), "--world", "8", "--link-rate", "8Gbit", "--latency-us", "0", "--topology")
            self.assertAlmostEqual(as_json(*words, "mesh:8")["step_ns"], 1e5, delta=10)
            self.assertAlmostEqual(as_json(*words, "star")["step_ns"], 2e5, delta=10)

    def test_of_astra_sims_text_has_the_groups_of_its_header(self):
        """1 GB of activations among four of sixteen ranks; all of them would send 5/4 as much."""
        with temporary_folder() as folder:
            file = folder / "w.txt"
            file.write_text("HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n1\nQ -1 0 ALLREDUCE 1000000000 0 NONE 0 0 NONE 0 0\n")
            found = as_json("--workload", str(file), "--world", "16", "--link-rate", "8Gbit", "--latency-us", "0")
            self.assertEqual([role["role"] for role in found["roles"]], ["tensor"])
            self.assertAlmostEqual(found["step_ns"] / 1.5e9, 1, delta=1e-3)

    def test_of_astra_sims_text_may_have_the_groups_of_libras_communicator(self):
        """Of 32 NPUs: activations in rings and half of each full connection, gradients in the rest, and in the switches."""
        with temporary_folder() as folder:
            text, groups, plan = folder / "w.txt", folder / "groups.yml", str(folder / "plan.toml")
            text.write_text("Q -1 0 ALLREDUCE 100000000 0 ALLREDUCE 100000000 0 ALLREDUCE 60000000 0\n")
            groups.write_text("Forward: [2, 2, -1]\nInputGrad: [2, 2, -1]\nWeightGrad: [-1, 2, 4]\n")
            network = ("--topology", "SW(2)_SW(4)_SW(4)", "--link-rate", "8Gbit", "--latency-us", "0")
            words = ("--workload", str(text), *network, "--communicator", str(groups), "--world", "32")
            found = as_json(*words, "--algorithm", "multi_dimensional:2x4")
            by_pass = {role["role"]: role["communication_ns"] for role in found["roles"]}
            # The same groups: four in a row, and the eight at the same place in such rows.
            text.write_text("HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n1\n" + text.read_text())
            divided = as_json(*words[:2], *network, "--world", "32", "--algorithm", "multi_dimensional:2x4")
            by_role = {role["role"]: role["communication_ns"] for role in divided["roles"]}
            self.assertAlmostEqual(by_pass["forward"] * 2, by_role["tensor"], delta=1)
            self.assertAlmostEqual(by_pass["input_gradient"] * 2, by_role["tensor"], delta=1)
            self.assertAlmostEqual(by_pass["weight_gradient"], by_role["data"], delta=1)
            for flag in (("--sync", "local:4"), ("--jitter", "0.1x4")):
                self.assert_sentence(simulate(*words, *flag), 2, f"{flag[0]} is of replicas, and groups by pass")
                self.assert_sentence(run("plan", *words, *flag), 2, "are of replicas, and groups by pass")
            on_a_star = (*words[:2], *words[-4:])
            self.assert_sentence(simulate(*on_a_star), 2, "and star has none; give a shape as --topology, such as RI(4)_SW(8)")
            self.assertEqual(run("plan", *words, "--compress", "none", "--output", plan, limit=100).returncode, 0)
            again = as_json("--plan", plan)
            self.assertAlmostEqual(again["step_ns"], again["planned_step_ns"], delta=1)
            groups.write_text("Forward: [2, 3, -1]\nInputGrad: [2, 2, -1]\nWeightGrad: [-1, 2, 4]\n")
            self.assert_sentence(simulate(*words), 2, "groups of 3 do not divide dimension 1 of SW(2)_SW(4)_SW(4)")

    def test_a_file_that_is_no_workload_is_named(self):
        with temporary_folder() as folder:
            for name, content in (("w.toml", "[[laier]]\n"), ("w.et", "x"), ("w.txt", "a b\n")):
                (folder / name).write_text(content)
                self.assert_sentence(simulate("--world", "2", "--workload", str(folder / name)), 1, str(folder / name))


class OfATrace(ProgramTest):
    """Pairs of neighbours average beside computing, everybody behind it; every link carries a byte a ns."""

    NODES = (
        {"after": [], "us": 100},
        {"after": [0], "bytes": 40_000, "group": "1"},
        {"after": [0], "us": 30},
        {"after": [1, 2], "bytes": 80_000, "group": "0"},
    )
    LINKS = ("--link-rate", "8Gbit", "--latency-us", "0")

    def setUp(self):
        folder = self.enterContext(temporary_folder())
        self.trace, self.groups = folder / "step.0.et", folder / "groups.json"
        self.trace.write_bytes(chakra(list(self.NODES)))
        self.groups.write_text(json.dumps({"1": [2, 3]}))
        self.words = ("--workload", str(self.trace), *self.LINKS, "--communicator", str(self.groups))

    def test_goes_by_its_graph_and_groups(self):
        found = as_json(*self.words, "--world", "4")
        self.assertAlmostEqual(found["step_ns"], 100_000 + 40_000 + 2 * 3 / 4 * 80_000, delta=1)
        self.assertAlmostEqual(found["exposed_communication_ns"], 10_000 + 120_000, delta=1)
        self.assertAlmostEqual(found["hidden_communication_ns"], 30_000, delta=1)
        self.assertEqual([each["role"] for each in found["roles"]], ["all ranks", "process group 1"])
        self.assertEqual([each["end_ns"] for each in found["critical_path"]], [100_000, 140_000, found["step_ns"]])
        said = simulate(*self.words, "--world", "4").stdout
        self.assertIn("process group 1 communicate for 0.0400 ms, 0.0100 of them exposed\n", said)
        many = as_json(*self.words, "--world", "1..16")
        self.assertEqual([each["world"] for each in many["worlds"]], [4, 8, 16])
        self.assertEqual([each["world"] for each in many["left_out"]], [1, 2])

    def test_may_be_compressed_with_gzip(self):
        """In several members, as tools that append to a file leave it, and whatever its name."""
        self.trace.write_bytes(chakra([{"after": [], "us": 10}, {"after": [0], "bytes": 8_000}]))
        plain, bytes_of = as_json(*self.words, "--world", "4"), self.trace.read_bytes()
        packed = self.trace.with_name("step.0.et.gz")
        packed.write_bytes(gzip.compress(bytes_of[:20]) + gzip.compress(bytes_of[20:]))
        words = ("--workload", str(packed), *self.words[2:], "--world", "4")
        self.assertEqual(as_json(*words)["critical_path"], plain["critical_path"])
        self.trace.write_bytes(packed.read_bytes())
        self.assertEqual(as_json(*self.words, "--world", "4")["step_ns"], plain["step_ns"])
        plan = str(self.trace.with_name("plan.toml"))
        self.assertEqual(run("plan", *words, "--output", plan, limit=100).returncode, 0)
        self.assertEqual(as_json("--plan", plan)["world"], 4)
        of_design = ("design", "--workload", str(packed), "--network", "RI(2)_SW(2)", "--budget", "9")
        self.assertEqual(run(*of_design).returncode, 0)
        whole = gzip.compress(bytes_of)
        for content, sentence in (
            (whole[:-9], f"{packed}: it is gzip-compressed and ends too early, after {len(whole) - 9} bytes; is it whole?"),
            (whole[:2], f"{packed}: it is gzip-compressed and ends too early, after 2 bytes; is it whole?"),
            (whole[:12] + b"\xff\xff" + whole[14:], f"{packed}: it is gzip-compressed and damaged at byte "),
            (whole[:-8] + bytes(8), f"{packed}: it is gzip-compressed and damaged at byte "),
            (whole + b"more", f"behind what is gzip-compressed it has 4 bytes that are not, from byte {len(whole)} on"),
        ):
            packed.write_bytes(content)
            self.assert_sentence(simulate(*words), 1, sentence)
            self.assert_sentence(run(*of_design), 1, sentence)
        text = self.trace.with_name("w.txt")
        text.write_bytes(gzip.compress(b" " * (65 << 20)))
        self.assert_sentence(simulate("--workload", str(text), "--world", "2"), 1, "it unpacks to more than 64 MiB")

    def test_needs_to_be_told_its_groups(self):
        words = ("--workload", str(self.trace), *self.LINKS, "--world", "4")
        self.assert_sentence(simulate(*words), 2, "of process group '1', and nothing says which ranks that has")
        self.groups.write_text(json.dumps({"1": [1, 2]}))
        self.assert_sentence(simulate(*self.words, "--world", "4"), 2, "4 ranks do not divide into groups like it")
        for flag in (("--compress", "bf16"), ("--sync", "local:4"), ("--bucket", "1M"), ("--jitter", "0.1x4")):
            self.assert_sentence(simulate(*self.words, "--world", "4", *flag), 2, f"{flag[0]} is of gradients that")
        of_a_name = ("--workload", "resnet50", "--world", "4", "--communicator", str(self.groups))
        self.assert_sentence(simulate(*of_a_name), 2, "leave it out")

    def test_is_planned_by_its_graph(self):
        plan = self.trace.with_name("plan.toml")
        words = ("plan", *self.words, "--world", "4", "--output", str(plan), "--json", "-")
        found = run(*words, limit=100)
        self.assertEqual((found.returncode, found.stderr), (0, ""))
        choices = json.loads(found.stdout)["choices"]
        self.assertGreater(len(choices), 1)
        for choice in choices:
            # What it says of each algorithm is what that takes.
            self.assertEqual((choice["codec"], choice["sync"]), ("", "bsp"))
            if choice["algorithm"] == "by_size":
                continue
            alone = as_json(*self.words, "--world", "4", "--algorithm", choice["algorithm"])
            self.assertAlmostEqual(alone["step_ns"], choice["step_ns"], delta=1)
            self.assertGreaterEqual(alone["step_ns"], choices[0]["step_ns"] * (1 - 1e-9))
        said = run(*words[:-2], limit=100).stdout
        self.assertRegex(said, r"\nchosen +[^,]+: a step of [\d.]+ ms")
        self.assertIn("so that no buckets, codecs and policies were weighed", said)
        again = as_json("--plan", str(plan))
        self.assertAlmostEqual(again["step_ns"], choices[0]["step_ns"], delta=1)
        self.assertEqual([each["role"] for each in again["roles"]], ["all ranks", "process group 1"])

    def test_is_planned_in_layers_where_everybody_averages(self):
        words = ("plan", "--workload", str(self.trace), "--world", "4")
        self.assert_sentence(run(*words), 2, "of process group '1', and nothing says which ranks that has")
        of_gradients = (*words, "--communicator", str(self.groups), "--compress", "int8")
        self.assert_sentence(run(*of_gradients), 2, "--compress is of gradients that replicas average, which")
        of_a_name = ("plan", "--workload", "resnet50", "--world", "4", "--communicator", str(self.groups))
        self.assert_sentence(run(*of_a_name), 2, "--communicator is of Chakra traces and of ASTRA-sim's text")
        self.trace.write_bytes(chakra([*self.NODES[:1], self.NODES[3] | {"after": [0]}]))
        self.assertEqual(run(*words, "--compress", "none", "--sync", "bsp", limit=100).returncode, 0)
        self.trace.write_bytes(chakra([{"after": [], "us": 1}, {"after": [0], "bytes": 4}]))
        self.assertEqual(run(*words, limit=100).returncode, 0)


if __name__ == "__main__":
    main()
