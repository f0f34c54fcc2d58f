"""scripts/demo.py, which `make demo` runs: the real trainings, cut short, and what it makes of their results."""

import json
import pathlib
import subprocess
import sys

from program import RANVIER, main
from training import TrainingTest

DEMO = pathlib.Path(__file__).parents[2] / "scripts" / "demo.py"

# Stands in for ranvier: keeps the words that it was called with, and "trains" to an accuracy that depends on the codec.
STAND_IN = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
with open({called!r}, "a") as called:
    print(json.dumps(words), file=called)
accuracy = 0.91 if words[words.index("--compress") + 1] == "none" else {coded}
result = {{"accuracy": accuracy, "seconds": 12.34, "samples_per_second": 5678.9, "bytes_sent_per_worker": 9.87e6,
          "exposed_communication_share": 0.456}}
pathlib.Path(words[words.index("--json") + 1]).write_text(json.dumps(result))
"""


class Demo(TrainingTest):
    def demo(self, *words: object) -> subprocess.CompletedProcess:
        command = [sys.executable, DEMO, *words]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=120)

    def rows(self, table: str) -> dict[str, list[str]]:
        return {line[:28].strip(): line[28:].split() for line in table.splitlines() if line[:1].strip()}

    def test_trains_plain_and_coded_and_puts_them_side_by_side(self):
        # The cheapest run in which the network matters, and in which a network that learns nothing fails.
        train = ("--data", self.data, "--batch", "16", "--lr", "0.05", "--steps", "20", "--evaluate-every", "0")
        done = self.demo(RANVIER, "--link-rate", "1Gbit", "--least-accuracy", "0.2", *train)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("4 workers, each sending at 1Gbit/s", done.stdout)
        rows = self.rows(done.stdout)
        sent = [float(each) for each in rows["MB sent by each worker"]]
        self.assertAlmostEqual(sent[1] / sent[0], 0.5, delta=0.02)
        for title in ("test accuracy", "seconds", "samples/s", "time lost to communication"):
            self.assertEqual(len(rows[title]), 2, done.stdout)
        self.assert_nothing_left()

    def stand_in(self, coded_accuracy: float) -> tuple[pathlib.Path, pathlib.Path]:
        program, called = self.folder / "ranvier", self.folder / "called"
        program.write_text(STAND_IN.format(python=sys.executable, called=str(called), coded=coded_accuracy))
        program.chmod(0o755)
        return program, called

    def test_fails_where_either_run_learns_too_little(self):
        program, called = self.stand_in(0.8799)
        done = self.demo(program, "--data", "a folder")
        self.assertEqual(done.returncode, 1)
        self.assertIn("demo: 87.99% is below the 88% that", done.stderr)
        plain, coded = map(json.loads, called.read_text().splitlines())
        for words in (plain, coded):
            flags = dict(zip(words[1::2], words[2::2], strict=True))
            self.assertEqual(words[0], "train")
            expected = {"--workers": "4", "--link-rate": "200Mbit", "--transport": "tcp", "--data": "a folder"}
            self.assertLessEqual(expected.items(), flags.items())
        self.assertEqual(plain[plain.index("--compress") + 1], "none")
        self.assertEqual(coded[coded.index("--compress") + 1], "bf16")
        rows = self.rows(done.stdout)
        self.assertEqual(rows["test accuracy"], ["91.00%", "87.99%"])
        self.assertEqual(rows["seconds"], ["12.3"] * 2)
        self.assertEqual(rows["samples/s"], ["5,679"] * 2)
        self.assertEqual(rows["MB sent by each worker"], ["9.9"] * 2)
        self.assertEqual(rows["time lost to communication"], ["46%"] * 2)

    def test_a_training_that_fails_ends_it(self):
        done = self.demo("/bin/false")
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("test accuracy", done.stdout)


if __name__ == "__main__":
    main()
