"""ranvier plan: the way to communicate that is chosen, and a tuning table that other commands follow."""

import json
import re
import tomllib

from program import ProgramTest, main, run, temporary_folder


class Plan(ProgramTest):
    def test_is_said_in_words(self):
        result = run("plan", "--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit", limit=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"\nchosen  [\w ]+, .* buckets?, .*: a step of [\d.]+ ms")
        self.assertRegex(result.stdout, r"\nsecond  [\w ]+, .*% longer")
        self.assertRegex(result.stdout, r"\ncodec   at 1 Gbit/s bf16 gains [\d.]+ %: on")

    def test_lists_all_choices(self):
        result = run("plan", "--workload", "resnet50", "--world", "4", "--json", "-", limit=60)
        choices = json.loads(result.stdout)["choices"]
        steps = [choice["step_ns"] for choice in choices]
        self.assertEqual(steps, sorted(steps))
        self.assertEqual({choice["codec"] for choice in choices}, {"", "bf16", "int8", "hadamard:32+int4"})

    def test_writes_the_plan(self):
        with temporary_folder() as folder:
            words = ("--workload", "resnet50", "--world", "4", "--link-rate", "1Gbit", "--output", str(folder / "plan.toml"))
            said = run("plan", *words, limit=60)
            self.assertEqual(said.returncode, 0, said.stderr)
            plan = tomllib.loads((folder / "plan.toml").read_text())
            self.assertEqual((plan["ranks"], plan["transport"], plan["workload"]), (4, "tcp", "resnet50"))
            self.assertNotIn("up_to_bytes", plan["all_reduce"][-1])
            chosen = re.search(r"a step of ([\d.]+) ms", said.stdout).group(1)
            self.assertAlmostEqual(plan["prediction"]["step_ns"] / 1e6, float(chosen), delta=1e-4)
            self.assertEqual([reason.partition(":")[0] for reason in plan["because"][:2]], ["chosen", "second"])
            self.assertEqual(len(plan["because"]), 5)

    def test_writes_a_table_that_bench_follows(self):
        with temporary_folder() as folder:
            file = folder / "tuning.txt"
            words = ("--workload", "resnet50", "--world", "2", "--transport", "shm", "--tuning", str(file))
            self.assertEqual(run("plan", *words, limit=60).returncode, 0)
            self.assertIn("max", file.read_text())
            result = run("bench", "--ranks", "2", "--transport", "shm", "-b", "4", "-e", "4", "-n", "1", "--tuning", str(file),
                         limit=60)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_wrong_usage_is_one_sentence(self):
        for words, part in (
            ((), "plan needs --world"),
            (("--world", "4"), "plan needs --workload"),
            (("--world", "4", "--workload", "gpt3"), "which does not make 4 ranks"),
            (("--world", "4", "--workload", "resnet50", "--transport", "quic"), "unknown transport 'quic'"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(run("plan", *words, limit=60), 2, part)


if __name__ == "__main__":
    main()
