"""ranvier simulate --plan: a plan's file is predicted as plan predicted it."""

import json
import os
import pathlib

from program import ProgramTest, main, run, temporary_folder
from simulate_test import as_json, simulate


class OfAPlan(ProgramTest):
    """What plan chose is predicted as plan predicted it, but for the codec's speed, which is measured each time."""

    def setUp(self):
        self.folder = self.enterContext(temporary_folder())
        self.file = str(self.folder / "plan.toml")

    def plan(self, *words: str) -> None:
        done = run("plan", *words, "--output", self.file, limit=100)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_is_what_the_plan_expects(self):
        self.plan("--workload", "resnet50", "--world", "8", "--link-rate", "10Gbit", "--latency-us", "20",
                  "--sync", "bsp", "--compress", "none")  # fmt: skip
        found = as_json("--plan", self.file)
        self.assertAlmostEqual(found["step_ns"] / found["planned_step_ns"], 1, delta=1e-6)  # the file has whole ns
        slower = as_json("--plan", self.file, "--link-rate", "1Gbit")
        self.assertGreater(slower["step_ns"], 2 * found["step_ns"])
        other = as_json("--plan", self.file, "--algorithm", "binomial_tree")
        self.assertGreater(other["step_ns"], found["step_ns"])
        said = simulate("--plan", self.file, "--trace", str(self.folder / "trace.json")).stdout
        self.assertIn("# resnet50 on star, ", said)
        self.assertIn(f"the plan expects {found['planned_step_ns'] / 1e6:.4f} ms a step", said)
        self.assertNotIn("the plan expects", simulate("--plan", self.file, "--workload", "dlrm").stdout)
        for other in ("--link-rate 1Gbit", "--latency-us 5", "--straggler 3:2", "--at-once 1", "--slice 64K"):
            changed = simulate("--plan", self.file, *other.split())
            self.assertEqual(changed.returncode, 0, changed.stderr)
            self.assertNotIn("the plan expects", changed.stdout, other)
        self.assertNotIn("planned_step_ns", slower)
        self.assertTrue(json.loads((self.folder / "trace.json").read_text())["traceEvents"])

    def test_names_its_files_in_utf_8(self):
        workload = os.fsencode(self.folder) + b"/a\xff.toml"
        pathlib.Path(os.fsdecode(workload)).write_text('name = "a"\n[[layer]]\nname = "a"\nforward_ns = 1000\n')
        table = self.folder / "tuning.txt"
        done = run("plan", "--workload", os.fsdecode(workload), "--world", "4", "--sync", "bsp", "--output", self.file,
                   "--tuning", str(table), errors="surrogateescape")  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("is no text in UTF-8", done.stderr)
        self.assertFalse(pathlib.Path(self.file).exists())
        self.assertFalse(table.exists(), "it is refused before the search")

    def test_has_its_policy_and_codec(self):
        self.plan("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit")
        text = (self.folder / "plan.toml").read_text()
        self.assertNotIn('compress = "none"', text)
        self.assertNotIn('sync = "bsp"', text)
        found = as_json("--plan", self.file)
        self.assertAlmostEqual(found["step_ns"] / found["planned_step_ns"], 1, delta=0.2)
        self.assertIn(f'sync = "{found["sync"]["spec"]}"', text)

    def write(self, rows: str, **values) -> None:
        lines = [f"{key} = {value!r}\n" for key, value in ({"ranks": 8, "bucket_bytes": 4096} | values).items()]
        (self.folder / "plan.toml").write_text("".join(lines) + f"[prediction]\nstep_ns = 1\n{rows}")

    def test_of_one_all_reduce_has_its_algorithm_by_size(self):
        self.write(
            "[[all_reduce]]\nalgorithm = 'recursive_doubling'\nup_to_bytes = 1000\n[[all_reduce]]\nalgorithm = 'ring'\n",
            network="star", link_gbit=8, latency_us=0.5,
        )  # fmt: skip
        large = as_json("--plan", self.file, "--bytes", "8000")
        self.assertAlmostEqual(large["step_ns"], 14 * (1000 + 2 * 500), delta=1e-3)
        self.assertNotIn("planned_step_ns", large)
        small = as_json("--plan", self.file, "--bytes", "1000")
        self.assertEqual(small["step_ns"], as_json("--bytes", "1000", "--world", "8", "--link-rate", "8Gbit", "--latency-us",
                                                   "0.5", "--algorithm", "recursive_doubling")["step_ns"])  # fmt: skip

    def test_has_its_placement(self):
        took = []
        for placement in ([0, 2, 4, 6, 1, 3, 5, 7], [0, 1, 2, 3, 4, 5, 6, 7]):  # the second makes all messages go to neighbours
            self.write("[[all_reduce]]\nalgorithm = 'ring'\n", network="ring", placement=placement)
            took.append(as_json("--plan", self.file, "--bytes", "8M")["step_ns"])
        self.assertLess(took[1], 0.8 * took[0])

    def test_sums_in_switches_are_of_ranks_as_they_are_numbered(self):
        placement = [0, 3, 6, 7, 4, 1, 2, 5, 8, 17, 11, 14, 13, 16, 10, 9, 12, 15]
        shape = "SW(3)_RI(3)_SW(2)"
        self.write("[[all_reduce]]\nalgorithm = 'ring'\n", network=shape, ranks=18, placement=placement)
        words = ("--bytes", "8M", "--in-network")
        placed, numbered = as_json("--plan", self.file, *words), as_json("--world", "18", "--topology", shape, *words)
        self.assertEqual(placed["step_ns"], numbered["step_ns"])

    def test_is_for_its_ranks(self):
        self.write("", network="star", workload="resnet50")
        self.assert_sentence(simulate("--plan", self.file, "--world", "16"), 2, "the plan is for 8 ranks; leave out --world")
        self.assert_sentence(simulate("--plan", str(self.folder / "none.toml")), 1, "none.toml")
        self.assert_sentence(simulate("--plan", self.file, "--json", self.file), 2, "--plan")


if __name__ == "__main__":
    main()
