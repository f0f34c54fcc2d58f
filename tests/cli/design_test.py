"""ranvier design: bandwidth split over dimensions, from the command line to the proof in its JSON."""

import json
import math
import pathlib
import random
import re
from xml.etree import ElementTree

from protobuf_bytes import chakra
from program import ProgramTest, main, run, temporary_folder

NETWORK = "RI(4)_FC(8)_RI(4)_SW(32)"
# GPT-3 of the published tool: time, weight and bytes by dimension.
TRAFFIC = {
    "compute_ns": 684448242,
    "terms": [
        {"weight": 8, "bytes": [1207959552, 301989888, 0, 0]},
        {"weight": 1, "bytes": [0, 452984832, 339738624, 109707264]},
        {"weight": 2, "bytes": [603979776, 150994944, 0, 0]},
    ],
}
LIBRA_COSTS = "2.00001,4.00002,4.00003,57.40012"


def design(*words: str):
    return run("design", *words, limit=30)


def as_json(*words: str) -> dict:
    result = design(*words, "--json", "-")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def proven_bound(certificate: dict) -> float:
    """The bound that weights and prices prove, for whoever trusts no solver."""
    bound = sum(case["weight"] * case["constant"] for case in certificate["cases"])
    carried = [0.0] * certificate["variables"]
    price = [0.0] * certificate["variables"]
    for k, term in enumerate(certificate["terms"]):
        allowed = sum(case["weight"] * case["term_weights"][k] for case in certificate["cases"])
        assert sum(load["weight"] for load in term) <= allowed * (1 + 1e-12)
        for load in term:
            carried[load["variable"]] += load["weight"] * load["amount"]
    for row in certificate["constraints"]:
        assert row["relation"] == "=" or (row["relation"] == "<=" and row["price"] >= 0)
        bound -= row["price"] * row["limit"]
        price = [old + row["price"] * each for old, each in zip(price, row["coefficients"])]
    return certificate["scale"] * (bound + sum(2 * math.sqrt(q * a) for q, a in zip(carried, price)))


class PublishedCases(ProgramTest):
    def test_are_reached_and_proven(self):
        cases = (
            (("--budget", "500GB/s"), "time", 7.2241177e08),
            (("--budget", "1000GB/s"), "time-cost", 720116.28),
            (("--budget", "1TB/s", *(w for c in ("b0=500", "b0>=b1>=b2", "b2+b3=200") for w in ("--constraint", c))),
             "time", 7.0843874e08),
        )
        with temporary_folder() as folder:
            traffic = folder / "traffic.json"
            traffic.write_text(json.dumps(TRAFFIC))
            for words, objective, value in cases:
                with self.subTest(words=words):
                    found = as_json("--traffic", str(traffic), "--network", NETWORK, "--unit-cost", LIBRA_COSTS,
                                    "--objective", objective, *words)
                    self.assertAlmostEqual(found["objective"] / value, 1, delta=1e-7)
                    self.assertAlmostEqual(proven_bound(found["certificate"]) / found["objective"], 1, delta=1e-6)
                    self.assertAlmostEqual(found["lower_bound"] / found["objective"], 1, delta=1e-6)
                    times = [
                        term["weight"] * max(v / b for v, b in zip(term["bytes"], found["bandwidth_gbps"]))
                        for term in TRAFFIC["terms"]
                    ]
                    self.assertAlmostEqual(TRAFFIC["compute_ns"] + sum(times), found["time_ns"], delta=1)

    def test_take_constraints_one_by_one_or_together(self):
        words = ("--workload", "gpt3", "--network", NETWORK, "--budget", "1000GB/s")
        apart = as_json(*words, "--constraint", "b0=500", "--constraint", "b2+b3=200")
        together = as_json(*words, "--constraint", "b0=500", "b2+b3=200")
        self.assertEqual(apart["bandwidth_gbps"], together["bandwidth_gbps"])
        self.assertAlmostEqual(apart["bandwidth_gbps"][0], 500, delta=1e-6)

    def test_are_reached_from_the_model_alone(self):
        found = as_json("--workload", "gpt3", "--network", NETWORK, "--budget", "500GB/s", "--npus", "4096")
        self.assertAlmostEqual(found["objective"] / 7.2241177e08, 1, delta=1e-7)
        self.assertEqual(found["npus"], 4096)
        cost = 4096 * sum(u * b for u, b in zip((2, 4, 4, 57.4), found["bandwidth_gbps"]))
        self.assertAlmostEqual(found["cost_usd"] / cost, 1, delta=1e-9)


class Output(ProgramTest):
    def test_is_a_table_that_people_read(self):
        result = design("--workload", "gpt3", "--network", NETWORK, "--budget", "1000GB/s")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertIn(NETWORK + ": 4096 NPUs, the least time", lines[0])
        self.assertEqual(lines[2].split()[:3], ["b0", "RI(4)", "676.8994"])
        self.assertIn("step  703.4300 ms", result.stdout)
        self.assertRegex(result.stdout, r"proof nothing is better than \d+ ns: a gap")

    def test_of_every_ready_made_workload_has_a_proof(self):
        for name in "resnet50 dlrm turing-nlg gpt3 msft-1t llama3-8b llama3-70b llama3-405b mixtral-8x7b".split():
            for objective in ("time", "time-cost"):
                with self.subTest(name=name, objective=objective):
                    found = as_json("--workload", name, "--network", NETWORK, "--budget", "800GB/s", "--objective", objective)
                    self.assertAlmostEqual(proven_bound(found["certificate"]) / found["objective"], 1, delta=1e-6)
                    self.assertTrue(all(each >= 0 for each in found["marginal_ns_per_gbps"]))

    def test_of_a_ready_made_workload_does_not_mind_what_the_folder_holds(self):
        with temporary_folder() as folder:
            (folder / "gpt3").mkdir()
            result = run("design", "--workload", "gpt3", "--network", NETWORK, "--budget", "9", limit=30, cwd=folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_of_several_workloads_lies_between_theirs(self):
        both = as_json("--workload", "resnet50", "--workload", "gpt3", "--weight", "3,1", "--network", NETWORK,
                       "--budget", "500GB/s")
        alone = [as_json("--workload", name, "--network", NETWORK, "--budget", "500GB/s")["time_ns"]
                 for name in ("resnet50", "gpt3")]
        self.assertGreater(both["time_ns"], 3 * alone[0] + alone[1])
        # With the bandwidths that they are given together each takes its own time.
        fixed = [word for i, gbps in enumerate(both["bandwidth_gbps"]) for word in ("--constraint", f"b{i}={gbps!r}")]
        times = [as_json("--workload", name, "--network", NETWORK, *fixed)["time_ns"] for name in ("resnet50", "gpt3")]
        self.assertAlmostEqual(both["time_ns"] / (3 * times[0] + times[1]), 1, 9)


class Beyond(ProgramTest):
    """What the published model leaves out, each against the plain design."""

    WORDS = ("--workload", "gpt3", "--network", NETWORK, "--budget", "500GB/s")

    def test_effects_move_the_time_the_right_way(self):
        plain = as_json(*self.WORDS)["time_ns"]
        for words, slower in (
            (("--overlap",), False),
            (("--in-network-reduction", "0,0,0,1"), False),
            (("--partial-groups",), True),
            (("--oversubscription", "1,1,1,4"), True),
            (("--latency-ns", "100,100,100,1000"), True),
            (("--survive-failure", "4"), True),
            (("--link-gbps", "10,10,10,5"), True),
        ):
            with self.subTest(words=words):
                time = as_json(*self.WORDS, *words)["time_ns"]
                self.assertTrue(time > plain if slower else time < plain, f"{time} after {plain}")

    def test_overlap_goes_with_all_else(self):
        plain = as_json(*self.WORDS, "--overlap")["time_ns"]
        for words in (("--survive-failure", "4"), ("--link-gbps", "10,10,10,5"),
                      ("--survive-failure", "4", "--link-gbps", "10,10,10,5")):
            with self.subTest(words=words):
                found = as_json(*self.WORDS, "--overlap", *words)
                self.assertGreater(found["time_ns"], plain)
                self.assertLess(found["time_ns"], as_json(*self.WORDS, *words)["time_ns"])
                self.assertLessEqual(1 - found["lower_bound"] / found["objective"], 1e-6)
        both = as_json(*self.WORDS, "--workload", "dlrm", "--weight", "2,1", "--overlap")
        dlrm = as_json("--workload", "dlrm", *self.WORDS[2:], "--overlap")
        self.assertGreaterEqual(both["time_ns"], (2 * plain + dlrm["time_ns"]) * (1 - 1e-6))
        self.assertAlmostEqual(proven_bound(both["certificate"]) / both["objective"], 1, delta=1e-6)

    def test_what_hides_behind_computing_keeps_dimensions_busy(self):
        """By --overlap the longest way has none of the weight gradients in it, which are all that the outer dimensions carry."""
        found = as_json(*self.WORDS, "--overlap")
        for dimension, sent in ((2, 339738624), (3, 109707264)):
            busy = sent / found["bandwidth_gbps"][dimension] / found["time_ns"]
            self.assertGreater(busy, 0.01)
            self.assertAlmostEqual(found["utilisation"][dimension] / busy, 1, delta=1e-6)

    def test_whole_links_are_whole(self):
        found = as_json(*self.WORDS, "--link-gbps", "25,25,12.5,12.5")
        for bandwidth, unit in zip(found["bandwidth_gbps"], (25, 25, 12.5, 12.5)):
            self.assertAlmostEqual(bandwidth / unit, round(bandwidth / unit), delta=1e-6)
        self.assertLessEqual(sum(found["bandwidth_gbps"]), 500 + 1e-6)
        # Where none is whole the budget is spent, as it is without the flag.
        any_size = as_json(*self.WORDS, "--link-gbps", "0,0,0,0", "--objective", "time-cost")
        self.assertAlmostEqual(sum(any_size["bandwidth_gbps"]), 500, delta=1e-6)
        # What is proven by weights and prices holds for all designs, those without whole links among them.
        anything = as_json(*self.WORDS)["objective"]
        self.assertAlmostEqual(proven_bound(found["certificate"]) / anything, 1, delta=2e-6)
        self.assertGreater(found["lower_bound"], anything)

    def test_mixed_orders_are_named_and_not_slower(self):
        plain = as_json(*self.WORDS)["time_ns"]
        self.assertLess(as_json(*self.WORDS, "--chunk-order", "mixed")["time_ns"], plain * (1 + 1e-6))
        found = as_json("--workload", "resnet50", "--network", NETWORK, "--budget", "500GB/s", "--chunk-order", "mixed")
        many = design("--workload", "resnet50", "--network", "_".join(["RI(2)"] * 7), "--budget", "500GB/s", "--chunk-order", "mixed")
        self.assertEqual(many.returncode, 2)
        self.assertIn("span 7 of the dimensions RI(2)_RI(2)_RI(2)", many.stderr)
        orders = found["chunk_orders"][0]
        # Each all_reduce takes as long as the dimension that its orders keep busy longest.
        computing = as_json("--workload", "resnet50", "--network", NETWORK, "--budget", "1e15GB/s")["time_ns"]
        self.assertAlmostEqual(max(found["utilisation"]) / (1 - computing / found["time_ns"]), 1, delta=1e-3)
        self.assertEqual(orders["collective"], "all_reduce")
        self.assertAlmostEqual(sum(each["share"] for each in orders["orders"]), 1, delta=1e-6)

    def test_shapes_are_enumerated_and_sorted(self):
        result = design("--workload", "resnet50", "--enumerate", "2..3", "--npus", "64", "--budget", "100GB/s")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("# 315 shapes of 64 NPUs", result.stdout)
        found = as_json("--workload", "resnet50", "--enumerate", "2..3", "--npus", "64", "--budget", "800Gbit")
        self.assertTrue(all(len(each["marginal_ns_per_gbps"]) == len(each["bandwidth_gbps"]) for each in found["designs"]))
        designs = found["designs"]
        self.assertEqual(len(designs), 315)
        for one, other in zip(designs, designs[1:]):
            worse = other["objective"] / one["objective"] - 1
            self.assertGreaterEqual(worse, -1e-6)
        # Of all that are equally good as far as is proven the cheapest comes first.
        for words in (("--npus", "64", "--budget", "100GB/s"), ("--npus", "1024", "--budget", "500GB/s")):
            designs = as_json("--workload", "resnet50", "--enumerate", "2..3", *words)["designs"]
            least = min(each["objective"] for each in designs)
            equal = [each["cost_usd"] for each in designs if each["objective"] <= least * (1 + 1e-6)]
            self.assertGreater(len(equal), 1)
            self.assertEqual([each["cost_usd"] for each in designs[: len(equal)]], sorted(equal))

    def test_orders_of_chunks_are_those_of_collectives_that_have_any(self):
        words = ("--workload", "llama3-8b:pp=4", "--network", "RI(4)_FC(2)_SW(2)", "--budget", "500", "--chunk-order", "mixed")
        result = design(*words)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("order of all_reduce over", result.stdout)
        self.assertNotIn("order of send", result.stdout)

    def test_a_pareto_front_is_drawn(self):
        with temporary_folder() as folder:
            file = folder / "front.svg"
            self.assertEqual(design(*self.WORDS, "--pareto", str(file)).returncode, 0)
            root = ElementTree.parse(file).getroot()
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}circle")), 40)

    def test_each_point_of_a_front_can_be_built(self):
        def points(*words: str) -> list[tuple[float, list[float]]]:
            with temporary_folder() as folder:
                file = folder / "front.svg"
                result = design(*words, "--pareto", str(file))
                self.assertEqual(result.returncode, 0, result.stderr)
                root = ElementTree.parse(file).getroot()
            titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
            parts = [re.fullmatch(r".*, (\S+) ms: (.*) GB/s", title).groups() for title in titles]
            return [(float(ms) * 1e6, [float(b) for b in gbps.split(", ")]) for ms, gbps in parts]

        for _, gbps in points("--workload", "gpt3", "--network", "RI(4)_SW(16)", "--budget", "500GB/s", "--link-gbps", "50,50"):
            self.assertEqual([b % 50 for b in gbps], [0, 0])
        words = ("--workload", "mixtral-8x7b", "--network", "RI(4)_FC(8)_SW(8)", "--overlap")
        found = points(*words, "--budget", "100GB/s")
        self.assertEqual(len(found), 40)
        ns, gbps = found[0]
        fixed = (word for i, b in enumerate(gbps) for word in ("--constraint", f"b{i}={b}"))
        self.assertAlmostEqual(as_json(*words, *fixed)["time_ns"] / ns, 1, delta=2e-3)

    def test_a_front_keeps_to_equalities(self):
        words = (*self.WORDS, "--constraint", "2*b0+b1+b2+b3=600")
        with temporary_folder() as folder:
            file = folder / "front.svg"
            result = design(*words, "--pareto", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            titles = [each.text for each in ElementTree.parse(file).getroot().iter("{http://www.w3.org/2000/svg}title")]
        self.assertGreater(len(titles), 3)
        for title in titles:
            b = [float(each) for each in re.fullmatch(r".*: (.*) GB/s", title).group(1).split(", ")]
            self.assertAlmostEqual((2 * b[0] + b[1] + b[2] + b[3]) / 600, 1, delta=2e-3)

    def test_bandwidth_that_costs_nothing_and_carries_everything_makes_the_step_free(self):
        with temporary_folder() as folder:
            traffic = folder / "traffic.json"
            traffic.write_text('{"compute_ns": 5, "terms": [{"bytes": [40, 0]}]}')
            words = ("--traffic", str(traffic), "--network", "RI(4)_SW(2)", "--budget", "10", "--unit-cost", "0,4")
            found = as_json(*words, "--objective", "time-cost")
            self.assertEqual((found["objective"], found["lower_bound"], found["cost_usd"]), (0, 0, 0))
            self.assertAlmostEqual(found["time_ns"], 9, delta=1e-6)
            self.assertEqual(proven_bound(found["certificate"]), 0)
            traffic.write_text('{"compute_ns": 5, "terms": [{"bytes": [40, 1]}]}')
            kept = as_json(*words, "--objective", "time-cost", "--constraint", "b1>=2")
            self.assertAlmostEqual(kept["bandwidth_gbps"][1], 2, delta=1e-6)

    def test_libras_files_stand_for_a_shape_and_its_costs(self):
        with temporary_folder() as folder:
            network, cost = folder / "network.yml", folder / "cost.yml"
            network.write_text(
                "Topology: [Ring, FullyConnected, Ring, Switch]\nNpusCount: [4, 8, 4, 32]\n"
                "CostDimension: [InterChiplet, InterPackage, InterNode, InterPod]\n"
            )
            words = ("--workload", "gpt3", "--budget", "500GB/s", "--objective", "time-cost")

            def cost_of(*more: str) -> float:
                return as_json(*words, *more)["cost_usd"]

            self.assertEqual(cost_of("--network", str(network)), cost_of("--network", NETWORK))
            cost.write_text("InterPod:\n  Link: 10\n  Switch: 20\n  Nic: 30\n")
            by_file = cost_of("--network", NETWORK, "--cost", str(cost))
            self.assertAlmostEqual(by_file / cost_of("--network", NETWORK, "--unit-cost", "2,4,4,60"), 1, delta=1e-4)
            self.assertNotAlmostEqual(by_file / cost_of("--network", NETWORK), 1, delta=1e-4)
            cost.write_text("InterPod:\n  Link: ten\n")
            self.assert_sentence(design(*words, "--network", NETWORK, "--cost", str(cost)), 1, "cost.yml, line 2")

    def test_the_header_of_a_text_says_its_groups(self):
        """As LIBRA's communicator does for GPT-3: tensor groups of 16 NPUs, data groups of the others."""
        with temporary_folder() as folder:
            text, groups = folder / "gpt3.txt", folder / "groups.yml"
            layer = "block -1 1000 ALLREDUCE 100663296 1000 ALLREDUCE 100663296 1000 ALLREDUCE 50331648 10\n"
            text.write_text(f"HYBRID_TRANSFORMER model_parallel_NPU_group: 16\n2\n{layer * 2}")
            groups.write_text("Forward: [4, 4, -1, -1]\nInputGrad: [4, 4, -1, -1]\nWeightGrad: [-1, 2, 4, 32]\n")
            words = ("--workload", str(text), "--network", NETWORK, "--budget", "500GB/s")
            alone, told = as_json(*words), as_json(*words, "--communicator", str(groups))
            self.assertAlmostEqual(alone["time_ns"] / told["time_ns"], 1, delta=1e-7)
            text.write_text(f"HYBRID_DATA_MODEL\n2\n{layer * 2}")
            self.assert_sentence(design(*words), 1, "HYBRID_DATA_MODEL does not say how many NPUs divide the model; write HYBRID_TR")
            text.write_text(f"DATA\n2\n{layer * 2}")
            all_of_them = as_json(*words)
            groups.write_text("".join(f"{each}: [4, 8, 4, 32]\n" for each in ("Forward", "InputGrad", "WeightGrad")))
            self.assertAlmostEqual(all_of_them["time_ns"] / as_json(*words, "--communicator", str(groups))["time_ns"], 1, delta=1e-7)

    def test_a_step_that_only_sends_has_the_best_proportions_at_any_scale(self):
        with temporary_folder() as folder:
            traffic = folder / "traffic.json"
            traffic.write_text(json.dumps({"compute_ns": 0, "terms": TRAFFIC["terms"]}))
            words = ("--traffic", str(traffic), "--network", NETWORK, "--objective", "time-cost")
            result = design(*words, "--constraint", "b0+b1+b2+b3<=500")
            self.assertIn("any part of these bandwidths, the same of each, has the same time x cost", result.stdout)
            found = as_json(*words, "--constraint", "b0+b1+b2+b3<=500")
            spent = as_json(*words, "--budget", "3GB/s")
        self.assertEqual((found["any_scale"], spent["any_scale"]), (True, False))
        self.assertAlmostEqual(sum(found["bandwidth_gbps"]), 500, delta=1e-6)
        self.assertAlmostEqual(found["objective"] / spent["objective"], 1, delta=2e-6)
        self.assertAlmostEqual(proven_bound(found["certificate"]) / found["objective"], 1, delta=1e-6)
        draw = random.Random(7)
        for _ in range(2000):
            b = [draw.expovariate(1) * each for each in found["bandwidth_gbps"]]
            time = sum(term["weight"] * max(v / each for v, each in zip(term["bytes"], b)) for term in TRAFFIC["terms"])
            dollars = 4096 * sum(u * each for u, each in zip(found["unit_cost"], b))
            self.assertGreaterEqual(time * dollars / 1e10, found["lower_bound"])

    def test_the_study_is_one_command(self):
        result = design("--study")
        self.assertEqual(result.returncode, 0, result.stderr)
        printed = [line for line in result.stdout.splitlines() if line.startswith("| ")]
        self.assertEqual(sum(line.startswith("| gpt3 |") for line in printed), 6)
        page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "network_design.md"
        self.assertEqual([line for line in printed if line not in page.read_text().splitlines()], [])

    def test_a_row_of_the_study_is_what_a_design_by_itself_says(self):
        rows = as_json("--study")["rows"]
        self.assertEqual(len(rows), 30)
        for row in rows:
            nic = 31.6 * 4096 * row["bandwidth_gbps"][-1]  # $ per GB/s and NPU, on the one dimension between pods
            self.assertAlmostEqual(row["nic_usd"] / nic, 1, 9, row)
        for row in rows[9:12] + rows[24:27]:
            words = ("--workload", row["workload"], "--network", row["network"], "--budget", "500GB/s")
            alone = as_json(*words, "--objective", row["objective"])
            for key in ("time_ns", "cost_usd"):
                self.assertAlmostEqual(row[key] / alone[key], 1, 9, row)
            even = 500 / len(row["bandwidth_gbps"])
            fixed = [word for i in range(len(row["bandwidth_gbps"])) for word in ("--constraint", f"b{i}={even!r}")]
            self.assertAlmostEqual(row["even_split_ns"] / as_json(*words, *fixed)["time_ns"], 1, 9, row)


class Traces(ProgramTest):
    """Chakra traces, designed for by the graph that they have."""

    NETWORK = ("--network", "RI(4)_FC(8)_SW(4)")
    GROUPS = {"1": [0, 1, 2, 3], "2": list(range(0, 128, 4))}
    SIZES = {"0": (4, 8, 4), "1": (4, 1, 1), "2": (1, 8, 4)}

    @staticmethod
    def step(nodes: list[dict], gbps: list[float]) -> float:
        """The longest way through the trace; of what computes, and of each group's collectives, one at a time."""
        ends, free = [], {}
        for node in nodes:
            begin = max([0.0, free.get(node.get("group"), 0.0), *(ends[before] for before in node["after"])])
            if "us" in node:
                takes = node["us"] * 1e3
            else:
                left, takes = 2.0 * node["bytes"], 0.0
                for size, b in zip(Traces.SIZES[node["group"]], gbps):
                    if size > 1:
                        takes, left = max(takes, left * (size - 1) / size / b), left / size
            ends.append(begin + takes)
            free[node.get("group")] = ends[-1]
        return max(ends)

    def nodes(self, layers: int, compute_us: int, gradient: int) -> list[dict]:
        """Tensor groups reduce activations, which is waited for; replicas reduce gradients, which is not."""
        nodes: list[dict] = []

        def add(**node) -> int:
            nodes.append(node)
            return len(nodes) - 1

        last = add(after=[], us=compute_us)
        for _ in range(layers):
            last = add(after=[add(after=[last], bytes=2_000_000, group="1")], us=compute_us)
        gradients = []
        for layer in range(layers):
            last = add(after=[add(after=[last], bytes=1_000_000, group="1")], us=compute_us * 2)
            gradients.append(add(after=[last], bytes=gradient * (1 + layer % 3), group="2" if layer % 2 else "0"))
        add(after=gradients, us=compute_us // 2)  # the optimizer
        return nodes

    def test_give_the_longest_way_through_them(self):
        draw = random.Random(3)
        with temporary_folder() as folder:
            trace, groups = folder / "step.0.et", folder / "groups.json"
            groups.write_text(json.dumps(self.GROUPS))
            words = ("--workload", str(trace), "--communicator", str(groups), *self.NETWORK, "--budget", "200GB/s")
            for layers, compute_us, gradient in ((1, 5, 50_000_000), (4, 200, 30_000_000), (6, 0, 8_000_000), (9, 900, 3_000_000)):
                for objective in ("time", "time-cost"):
                    with self.subTest(layers=layers, objective=objective):
                        nodes = self.nodes(layers, compute_us, gradient)
                        trace.write_bytes(chakra(nodes))
                        found = as_json(*words, "--overlap", "--objective", objective)
                        self.assertAlmostEqual(self.step(nodes, found["bandwidth_gbps"]) / found["time_ns"], 1, delta=1e-9)
                        bound = proven_bound(found["certificate"])
                        self.assertAlmostEqual(bound / found["objective"], 1, delta=1e-6)
                        costs = [128 * each for each in found["unit_cost"]]
                        for _ in range(200):
                            shares = [draw.expovariate(1) for _ in costs]
                            gbps = [200 * each / sum(shares) for each in shares]
                            time = self.step(nodes, gbps)
                            dollars = sum(u * b for u, b in zip(costs, gbps))
                            self.assertGreaterEqual(time if objective == "time" else time * dollars / 1e10, bound * (1 - 1e-9))
                        waiting = as_json(*words, "--objective", objective)
                        self.assertLessEqual(found["objective"], waiting["objective"] * (1 + 1e-6))

    def test_are_of_process_groups_that_somebody_has_to_name(self):
        with temporary_folder() as folder:
            trace = folder / "step.0.et"
            trace.write_bytes(chakra(self.nodes(2, 10, 1000)))
            words = ("--workload", str(trace), *self.NETWORK, "--budget", "200GB/s", "--overlap")
            self.assert_sentence(design(*words), 2, "is of process group '1', and nothing says which ranks that has; add --communicator")
            groups = folder / "groups.json"
            groups.write_text('{"1": [0, 1, 2, 3], "2": [0, 5]}')
            with_groups = (*words, "--communicator", str(groups))
            self.assert_sentence(design(*with_groups), 2, "is of process group '2', whose ranks are no block of RI(4)_FC(8)_SW(4)")
            groups.write_text('{"1": [0, 1],\n "2": 5}')
            self.assert_sentence(design(*with_groups), 1, "groups.json, line 2, column 7: 2 is 5; expected a list of one rank or more")

    def test_of_many_operations_take_no_long_time(self):
        with temporary_folder() as folder:
            trace, groups = folder / "long.0.et", folder / "groups.json"
            groups.write_text(json.dumps(self.GROUPS))
            nodes = self.nodes(2000, 300, 1_000_000)
            for index, node in enumerate(nodes):
                if "bytes" in node:
                    node["bytes"] += index  # no two alike
            trace.write_bytes(chakra(nodes))
            found = as_json("--workload", str(trace), "--communicator", str(groups), *self.NETWORK, "--budget", "200GB/s", "--overlap")
            self.assertAlmostEqual(self.step(nodes, found["bandwidth_gbps"]) / found["time_ns"], 1, delta=1e-9)


class WrongUsage(ProgramTest):
    def test_is_one_sentence_with_its_remedy(self):
        network = ("--network", NETWORK)
        gpt3 = ("--workload", "gpt3", *network)
        for words, part in (
            ((), "design needs --network"),
            ((*network, "--budget", "5"), "either --workload or --traffic"),
            (gpt3, "design needs a limit on bandwidth"),
            ((*gpt3, "--budget", "0"), "a budget of 0"),
            ((*gpt3, "--budget", "0GB/s"), "a budget of 0"),
            ((*gpt3, "--budget", "-3GB/s"), "--budget '-3GB/s' is not a bandwidth"),
            ((*gpt3, "--budget", "1e308TB/s"), "--budget '1e308TB/s' is not a bandwidth"),
            *((words, "is not between the 1e-09 and 1e+15 GB/s that are designed") for words in (
                (*gpt3, "--budget", "1e300"), (*gpt3, "--budget", "1e-300GB/s"), (*gpt3, "--budget", "1e300", "--link-gbps", "1,1,1,1"),
                ("--workload", "gpt3", "--npus", "64", "--enumerate", "2", "--budget", "1e300"), ("--study", "--budget", "1e300"))),
            *(((*gpt3, "--budget", "5", "--constraint", text), f"'{text}' is about a bandwidth that is not between")
              for text in ("b0<=1e300", "b1>=1e-300", "1e-300*b0<=5")),
            ((*gpt3, "--budget", "15", "--link-gbps", "10,10,10,10"),
             "'b3 >= 10 (whole links of --link-gbps)' contradict one another"),
            ((*gpt3, "--budget", "500", "--objective", "time-cost", "--unit-cost", "0,4,4,57"),
             "the bandwidths that cost something shrink together: no constraint keeps any of them up; add one, such as b1 >= 1"),
            ((*gpt3, "--budget", "lots"), "--budget 'lots' is not a bandwidth"),
            (("--workload", "gpt3", "--network", "RI(4)_XX(8)", "--budget", "5"), "column 7"),
            ((*gpt3, "--budget", "5", "--npus", "4000"), "multiply to 4096 NPUs, not to the 4000"),
            (("--workload", "resnet50", "--npus", "1", "--enumerate", "1", "--budget", "5"), "--npus '1' is not a whole number from 2"),
            (("--workload", "gtp3", *network, "--budget", "5"), "did you mean 'gpt3'?"),
            (("--workload", "gpt3:tp=0", *network, "--budget", "5"), "tp=0 of a workload"),
            *((("--workload", f"gpt3:{rest}", *network, "--budget", "5"),
               f"workload 'gpt3:{rest}' has an empty setting; write gpt3, or gpt3:tp=8,batch=16")
              for rest in ("", "tp=8,", ",tp=8", "tp=8,,pp=2")),
            (("--workload", "gpt3:ttp=4", *network, "--budget", "5"), "unknown setting of a workload 'ttp'"),
            (("--workload", "gpt3:tp=16,dp=3", *network, "--budget", "5"), "16 x 3 x 1 = 48, but"),
            ((*gpt3, "--budget", "500", "--constraint", "b0>=400", "--constraint", "b1>=200"),
             "'--budget 500', 'b0>=400', 'b1>=200' contradict one another"),
            ((*gpt3, "--budget", "500", "--constraint", "b0≤3"), "constraint 'b0≤3', column 3: "),
            ((*gpt3, "--budget", "500", "--constraint", "b0>=b9"), "column 5: there is no b9"),
            ((*gpt3, "--budget", "500", "--unit-cost", "1,2"), "has 2 numbers for 4 dimensions; give one for each"),
            ((*gpt3, "--budget", "500", "--unit-cost", "0,0,0,0", "--pareto", "/tmp/front.svg"), "this network costs nothing"),
            ((*gpt3, "--budget", "500", "--weight", "1,2"), "has 2 numbers for 1 workload; give one for each"),
            ((*gpt3, "--budget", "500", "--unit-cost", "1,x,2,3"), "column 3: 'x' is not a number"),
            ((*gpt3, "--budget", "500", "--objective", "tmie"), "did you mean 'time'?"),
            ((*gpt3, "--budget", "500", "--blocks", "RI"), "--blocks is of --enumerate"),
            (("--study", "--objective", "time"), "--objective is not of it; give --budget alone"),
            (("--study", "--link-gbps", "5,5"), "--link-gbps is not of it"),
            (("--study", "--survive-failure", "2"), "--survive-failure is not of it"),
            (("--study", "--network", NETWORK), "--network is not of it"),
            *(((*network, "--traffic", "t.json", "--budget", "5", *flag), flag[0] + " is of a workload, and --traffic") for flag in (
                ("--latency-ns", "1,1,1,1"), ("--oversubscription", "1,1,1,2"), ("--chunk-order", "mixed"),
                ("--partial-groups",), ("--in-network-reduction", "0,0,0,1"))),
            (("--workload", "resnet50", "--npus", "64", "--budget", "9", "--enumerate", "2.9..3.2"), "--enumerate '2.9..3.2'"),
            (("--workload", "resnet50", "--npus", "64", "--budget", "9", "--enumerate", "2", "--blocks", "SW,RI(4)_FC"),
             "column 4: unknown kind of dimension 'RI(4)_FC'"),
            ((*gpt3, "--bugdet", "500"), "did you mean '--budget'?"),
            (("--workload", "gpt3:layers=10000,pp=10000", *network, "--budget", "5"), "of 16 x 10000 does not divide the 4096 NPUs"),
            (("--workload", "x" * 9000, *network, "--budget", "5"), "ranvier design: unknown workload 'xxx"),
            ((*gpt3, "--budget", "500", "--weight", "0"), "--weight '0' leaves no workload that counts"),
            ((*gpt3, "--budget", "500", "--constraint", "b0<=b1", "b1=0"), "'b0<=b1', 'b1=0' leave dimension 0 (b0) no bandwidth"),
            (("--workload", "gpt3", "--budget", "5", "--network", "RI(4)\n_SW(2)"), "network 'RI(4)?_SW(2)', column 6"),
            (("--workload", "gpt3", "--budget", "5", "--network", "(" * 9000), "(…', column 1"),
            ((*gpt3, "--budget", "500", "--communicator", "missing.yml"), "--communicator is of workloads in ASTRA-sim's text"),
            ((*gpt3, "--budget", "500", "--unit-cost", "1,1e300,1,1"), "column 3: '1e300' is not a number from 1e-06 to 1e+09, or 0"),
            ((*gpt3, "--budget", "500", "--oversubscription", "1,1,0.5,1"), "column 5: '0.5' is not a number from 1 to 1e+06"),
            ((*gpt3, "--budget", "500", "--latency-ns", "1e300,1,1,1"), "column 1: '1e300' is not a number from 0 to 1e+12"),
            ((*gpt3, "--budget", "500", "--in-network-reduction", "0,0,7,0"), "column 5: '7' is not 1 or 0"),
            ((*gpt3, "--budget", "500", "--weight", "1e-300"), "'1e-300' is not a number from 1e-09 to 1e+09, or 0"),
            ((*gpt3, "--budget", "500", "--link-gbps", "1e-9,1,1,1"), "'1e-9' is not a number from 0.001 to 1e+09, or 0"),
        ):
            with self.subTest(words=words):
                result = design(*words)
                self.assert_sentence(result, 2, part)
                self.assertEqual(result.stdout, "")

    def test_of_files_names_line_and_column(self):
        with temporary_folder() as folder:
            traffic = folder / "traffic.json"
            traffic.write_text('{"compute_ns": 1,\n "terms": [}')
            result = design("--traffic", str(traffic), "--network", NETWORK, "--budget", "5")
            self.assert_sentence(result, 1, "traffic.json, line 2, column 12")
            aliases = folder / "aliases.yml"
            lines = ["a0: &a0 {b: x}", *(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}" for i in range(1, 40))]
            aliases.write_text("\n".join([*lines, "Topology: [Ring]", "NpusCount: [4]", "CostDimension: [InterPod]"]))
            result = design("--network", str(aliases), "--workload", "resnet50", "--budget", "5")
            self.assert_sentence(result, 1, "the file has more than 10000 maps")
            traffic.write_text('{"terms": [\n{"weight": -1, "bytes": [1, 2, 3, 4]}]}')
            result = design("--traffic", str(traffic), "--network", NETWORK, "--budget", "5")
            self.assert_sentence(result, 1, "traffic.json, line 2, column 12: terms[0].weight is -1; expected")
            workload = folder / "workload.txt"
            workload.write_text("layer -1 5 NONE\n")
            groups = folder / "groups.yml"
            groups.write_text("Forward: [4, 4, -1, -1]\nInputGrad: [4, 4, -1, -1]\nWeightGrad: [-1, 2, 4, 32]\n")
            words = ("--workload", str(workload), "--network", NETWORK, "--budget", "5")
            self.assert_sentence(design(*words), 2, "add --communicator")
            self.assert_sentence(design(*words, "--communicator", str(groups)), 1, "workload.txt, line 1, column 12")

    def test_of_many_limits_on_the_same_sum_the_tightest_counts(self):
        words = ("--workload", "gpt3", "--network", NETWORK, "--budget", "500GB/s")
        many = [word for least in range(300) for word in ("--constraint", f"b1>={least}")]
        self.assertEqual(as_json(*words, *many)["bandwidth_gbps"], as_json(*words, *many[-2:])["bandwidth_gbps"])
        self.assert_sentence(design(*words, *many, "--constraint", "b0>=300"), 2, "'--budget 500GB/s', 'b1>=299', 'b0>=300' contra")

    def test_of_very_many_links_ends(self):
        words = ("--workload", "gpt3", "--network", NETWORK, "--budget", "1e9GB/s")
        found = as_json(*words, "--link-gbps", "7,11,13,17")
        self.assertAlmostEqual(found["time_ns"] / as_json(*words)["time_ns"], 1, delta=1e-6)

    def test_a_collective_of_no_bytes_has_no_order(self):
        with temporary_folder() as folder:
            workload = folder / "w.toml"
            workload.write_text('[[layer]]\nforward_ns = 5\ncommunications = [{pass = "weight_gradient", '
                                'collective = "all_reduce", bytes = 0, role = "data"}]\n')
            found = as_json("--workload", str(workload), "--network", NETWORK, "--budget", "5", "--chunk-order", "mixed")
        self.assertEqual(found["time_ns"], 5)

    def test_a_workload_without_communication_takes_its_compute_time(self):
        with temporary_folder() as folder:
            traffic = folder / "traffic.json"
            traffic.write_text('{"compute_ns": 5, "terms": []}')
            found = as_json("--traffic", str(traffic), "--network", "RI(4)_SW(2)", "--budget", "5")
        self.assertEqual((found["time_ns"], found["lower_bound"]), (5, 5))
        self.assertEqual(found["bandwidth_gbps"], [5, 0])  # the cheapest


if __name__ == "__main__":
    main()
