"""ranvier report: what it reads, refuses and says of files as `ranvier train --json` writes them."""

import json
import pathlib
import tempfile

from program import ProgramTest, main, run


def trained(accuracies: list[float | None], by_rank: list[float], **changed) -> dict:
    """A run evaluated every 2 seconds."""
    return {
        "seconds": 2.0 * len(accuracies),
        "bytes_sent_per_worker": 3 * 2.0**20,
        "rounds": {"inside": 4, "between": 3},
        "groups": [],
        "exposed_communication_share": sum(by_rank) / len(by_rank),
        "exposed_communication_by_rank": by_rank,
        "history": [
            {"step": i, "seconds": 2.0 * i, "accuracy": accuracy, "test_loss": 1.5 / i, "frechet_distance": None}
            for i, accuracy in enumerate(accuracies, 1)
        ],
        "settings": {"model": "cnn", "workers": 4, "sync": "bsp", "compress": "none", "place": "", "save": "", "seed": 0},
    } | changed


class Report(ProgramTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name: str, content: object) -> str:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def rows(self, *words: str) -> dict:
        result = run("report", *words, "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def two(self) -> tuple[str, str]:
        slow = trained([0.2, 0.5, 0.6], [0.6, 0.5, 0.7, 0.6])
        settings = slow["settings"] | {"sync": "node:8", "place": "node=2", "save": "there"}
        fast = trained([0.4, 0.7, 0.9, 0.8], [0.9, 0.9, 0.1, 0.9], settings=settings)
        return self.file("bsp.json", slow), self.file("node.json", fast)

    def test_runs_are_judged_by_what_all_of_them_have_reached(self):
        found = self.rows(*self.two())
        self.assertEqual(found["target"], {"of": "accuracy", "value": 0.6})
        bsp, node = found["rows"]
        self.assertEqual((bsp["score"], bsp["seconds_to_target"], bsp["differs_by"]), (0.6, 6, "sync bsp"))
        self.assertEqual((node["score"], node["seconds_to_target"]), (0.8, 4))
        self.assertEqual(node["differs_by"], "place node=2, sync node:8")
        self.assertEqual((bsp["rounds"], bsp["bytes_sent_per_worker"], node["seconds"]), (7, 3 * 2**20, 8))

    def test_a_target_may_be_given_and_be_out_of_reach(self):
        files = self.two()
        accuracy = self.rows(*files, "--target-accuracy", "0.85")
        self.assertEqual([each["seconds_to_target"] for each in accuracy["rows"]], [None, 6])
        loss = self.rows(*files, "--target-loss", "0.5")
        self.assertEqual([each["seconds_to_target"] for each in loss["rows"]], [6, 6])
        self.assertEqual(loss["target"], {"of": "loss", "value": 0.5})

    def test_no_file_commands_the_terminal(self):
        coloured = trained([0.5], [0.9, 0.9])
        coloured["settings"]["sync"] = "\x1b[31mred\nline"
        result = run("report", str(self.file("plain", trained([0.5], [0.9, 0.9]))), str(self.file("na\x1b[31m\nme", coloured)))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("\x1b", result.stdout)
        self.assertIn("?[31mred?line", result.stdout)

    def test_names_the_bottleneck(self):
        asynchronous = trained([0.5], [0.9, 0.9, 0.1, 0.9], groups=[0, 1, 2, 3])
        older = trained([0.5], [0.9, 0.9])
        del older["exposed_communication_by_rank"], older["groups"]
        for name, content, expected in (
            ("link", trained([0.5], [0.6, 0.5, 0.7, 0.6]), "communication (50 %)"),
            ("slow", trained([0.5], [0.9, 0.9, 0.1, 0.9]), "rank 2, for which others wait (60 %)"),
            ("busy", trained([0.5], [0.1, 0.2, 0.1, 0.2]), "computing (85 %)"),
            ("async", asynchronous, "communication (70 %)"),
            ("older", older, "communication (90 %)"),
            ("served", trained([0.5], [0.8, 0.9, 0], groups=[0, 1, -1]), "communication (85 %)"),
        ):
            with self.subTest(name=name):
                row = self.rows(self.file(name, content))["rows"][0]["bottleneck"]
                self.assertEqual(row["text"], expected)
                self.assertAlmostEqual(row["computing"] + row["communication"] + row["waiting"], 1)
                if name in ("slow", "served"):
                    self.assertEqual(row["slowest"], 2 if name == "slow" else 0)

    def test_says_which_runs_did_without_what_was_lost(self):
        exact = self.file("exact", trained([0.5], [0.1]))
        lossy = self.file("lossy", trained([0.5], [0.1], lost_share=0.0125))
        self.assertEqual([each["lost_share"] for each in self.rows(exact, lossy)["rows"]], [0, 0.0125])
        words = run("report", exact, lossy).stdout
        self.assertIn(f"{lossy} did without 1.25 % of the entries of gradients", words)
        self.assertEqual(words.count("did without"), 1)

    def test_the_time_of_a_resumed_run_counts_from_the_very_start(self):
        whole = trained([0.2, 0.5, 0.6], [0.1])
        resumed = trained([0.2, 0.5, 0.6], [0.1], seconds=2.5, settings=whole["settings"] | {"resume": "middle"})
        for each in resumed["history"]:
            each["seconds"] += 4
        rows = self.rows(self.file("whole", whole), self.file("resumed", resumed))["rows"]
        self.assertEqual([(row["seconds"], row["differs_by"]) for row in rows], [(6, ""), (10, "resume middle")])

    def test_the_table_has_a_line_for_each_run(self):
        files = self.two()
        result = run("report", *files)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        target, header, *lines = result.stdout.splitlines()
        self.assertEqual(target, "target: accuracy 60.00 %, the best that all of them have reached")
        self.assertEqual([line.split()[0] for line in lines], list(files))
        for line, cells in zip(lines, ("sync bsp 60.00 % 6.0 6.0 3 MiB 7 60.0 %", "80.00 % 4.0 8.0 3 MiB 7 70.0 %"), strict=True):
            self.assertIn(cells, " ".join(line.split()))
        self.assertEqual(header.index("s to target") + len("s to target"), lines[0].index("6.0") + len("6.0"))

    def test_a_run_that_diverged_has_no_score_and_is_not_judged_by_it(self):
        diverged = trained([0.1, 0.1], [0.1, 0.1])
        for each in diverged["history"]:
            each["test_loss"] = None
        file = self.file("diverged", diverged)
        self.assertEqual(self.rows(file)["target"]["of"], "accuracy")
        self.assert_sentence(run("report", file, "--target-loss", "1"), 2, "no Fréchet distance or loss in common")

    def test_what_is_no_result_of_a_run_is_refused_in_a_sentence(self):
        whole = trained([0.5], [0.1])
        for name, content, *parts in (
            ("words", "not JSON", "words is not what `ranvier train --json` writes: it is no JSON; give the files of finished runs"),
            ("list", [1, 2], "list is not what `ranvier train --json` writes: it is no object; give"),
            ("bench", {"rows": []}, "bench is not what `ranvier train --json` writes: it has no 'settings'; give"),
            ("empty", whole | {"history": []}, "holds no evaluation"),
            ("null", whole | {"history": None}, "it has no 'history'"),
            ("no list", whole | {"history": {}}, "'history' is no list"),
            ("unlike", whole | {"history": [{"step": 1}]}, "'history[0]' has no 'seconds'"),
            ("negative", whole | {"history": [{"step": -1, "seconds": 1}]}, "'history[0].step' is no whole number from"),
            ("half", whole | {"groups": [0.5]}, "'groups[0]' is no whole number from"),
            ("huge", whole | {"groups": [2**40]}, "'groups[0]' is no whole number from"),
            ("rounds", whole | {"rounds": {"inside": 1}}, "'rounds' has no 'between'"),
            ("text", whole | {"seconds": "long"}, "'seconds' is no number"),
            ("texts", whole | {"exposed_communication_by_rank": ["x"]}, "'exposed_communication_by_rank[0]' is no number"),
            ("deep", whole | {"settings": [1]}, "deep is not what", "'settings' is no object"),
            ("deepest", '{"settings": {"x": ' + "[" * 200_000 + "]" * 200_000 + "}}", "deepest: setting 'x' is neither a value"),
            ("object", whole | {"settings": {"x\n": {"y": [1]}}}, "neither a value nor a list of values"),
            ("large", '{"seconds": 1e999}', "large is not what", "a number in it is too large"),
        ):
            with self.subTest(name=name):
                self.assert_sentence(run("report", self.file(name, content)), 1, *parts)
        self.assert_sentence(run("report", str(self.folder / "missing")), 1, "cannot read", "missing")
        self.assert_sentence(run("report", str(self.folder)), 1, "it is a folder")
        good = self.file("good", whole)
        self.assert_sentence(run("report"), 2, "FILE")
        self.assert_sentence(run("report", good, "--target-accuracy", "high"), 2, "'high' is not a number")
        self.assert_sentence(run("report", good, "--target-accuracy", "85"), 2, "up to 1, such as 0.85")
        self.assert_sentence(run("report", good, "--target-loss", "inf"), 2, "'inf' is not a number")
        self.assert_sentence(run("report", good, "--target-accuracy", "1", "--target-loss", "1"), 2, "--target-")
        gan = trained([None], [0.1])
        gan["history"][0] |= {"test_loss": None, "frechet_distance": 3.0}
        self.assert_sentence(run("report", good, self.file("gan", gan)), 2, "in common")


if __name__ == "__main__":
    main()
