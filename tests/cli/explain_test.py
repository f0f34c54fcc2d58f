"""ranvier bench --explain: schedules drawn, proven and put on networks, without a rank that runs."""

import json
import pathlib

from program import ProgramTest, clean_environment, main, run, temporary_folder


def explain(*words: str, **options):
    return run("bench", "--explain", *words, limit=60, **options)


class OneAlgorithm(ProgramTest):
    def test_is_drawn_proven_and_put_on_each_network(self):
        result = explain("--ranks", "4", "--algorithm", "ring", "--topology", "ring", "--topology", "mesh:2x2")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0], "all_reduce by ring: 4 ranks, 4 chunks, 6 rounds")
        self.assertEqual(lines[2].split(), "round rank 0 rank 1 rank 2 rank 3".split())
        self.assertEqual(lines[3].split()[:3], ["0", "0>1", "3+3"])
        self.assertIn("\nproven: ", result.stdout)
        self.assertIn("cost: 6 rounds; the busiest rank sends 1.5 n in 6 messages", result.stdout)
        self.assertIn("on ring: at most 1 transfer on one link in a round, first in round 0", result.stdout)
        self.assertIn("all links 6 n\n  neighbours only", result.stdout)
        self.assertIn("on mesh:2x2: at most 1 transfer", result.stdout)
        self.assertIn("not neighbours only: in round 0 rank 1 sends to rank 2", result.stdout)

    def test_with_dims_suits_the_network_that_it_is_made_for(self):
        result = explain("--ranks", "8", "--algorithm", "torus:2x4", "--topology", "torus:2x4", "--topology", "ring")
        self.assertEqual(result.returncode, 0, result.stderr)
        torus, ring = result.stdout[result.stdout.index("on torus:2x4:") :].split("on ring:")
        self.assertIn("at most 1 transfer on one link", torus)
        self.assertIn("  neighbours only", torus)
        self.assertIn("  not neighbours only", ring)

    def test_with_periods_joins_ends_that_a_mesh_leaves_open(self):
        words = ("--ranks", "6", "--collective", "neighbor_exchange", "--topology", "mesh:2x3", "--topology", "torus:2x3")
        result = explain(*words, "--algorithm", "neighbor_exchange:2x3,periods=0x1")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("nothing deadlocks\ncost: 2 rounds; the busiest rank sends 0.75 n in 3 messages", result.stdout)
        mesh, torus = result.stdout[result.stdout.index("on mesh:2x3:") :].split("on torus:2x3:")
        self.assertIn("  not neighbours only", mesh)
        self.assertIn("at most 1 transfer on one link", torus)
        self.assertIn("  neighbours only", torus)

    def test_stands_on_a_star_where_no_network_is_named(self):
        result = explain("--ranks", "8", "--algorithm", "direct", "--collective", "all_to_all")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("on star: at most 7 transfers on one link in a round", result.stdout)
        self.assertIn("in place it needs links that buffer a slice", result.stdout)

    def test_is_not_drawn_where_no_screen_is_wide_enough(self):
        result = explain("--ranks", "200", "--algorithm", "binomial_tree", "--collective", "broadcast")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("broadcast by binomial_tree: 200 ranks, 1 chunk; more than 64 ranks are not drawn", result.stdout)
        self.assertIn("proven", result.stdout)
        self.assertLess(max(map(len, result.stdout.splitlines())), 200)

    def test_of_one_rank_has_nothing_to_send(self):
        result = explain("--ranks", "1", "--algorithm", "ring")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("on star: nobody sends", result.stdout)


class EveryAlgorithm(ProgramTest):
    def test_has_a_row_with_its_contention_on_each_network(self):
        networks = ("ring", "fat_tree:4,oversubscription=4")
        result = explain("--ranks", "16", "--topology", networks[0], "--topology", networks[1])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = {
            line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if not line.startswith("#")
        }
        self.assertEqual(rows["ring"], ["proven", "30", "30", "1.875", "1", "1.875", "1", "1.875"])
        self.assertEqual(rows["direct"], ["proven", "2", "30", "1.875", "32", "4", "48", "6"])
        self.assertTrue(all(row[0] == "proven" for row in rows.values()), result.stdout)
        for network in networks:
            self.assertIn(network, result.stdout)

    def test_is_in_the_documents_as_it_is_here(self):
        """Every row of the contention table in docs/algorithms.md is what the program says."""
        text = (pathlib.Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
        table = text[text.index("| all_reduce, 16 ranks") :].split("\n\n")[0].splitlines()
        title, _, *rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]
        words = [word for network in title[1:] for word in ("--topology", network)]
        with temporary_folder() as folder:
            file = folder / "explained.json"
            self.assertEqual(explain("--ranks", "16", *words, "--json", str(file)).returncode, 0)
            found = {
                each["algorithm"]: [f"{on['most_transfers']}, {on['load_by_rounds']:.4g}" for on in each["contention"]]
                for each in json.loads(file.read_text())["schedules"]
            }
        self.assertGreaterEqual(len(rows), 5)
        for algorithm, *cells in rows:
            self.assertEqual(cells, found[algorithm], algorithm)

    def test_of_every_collective_is_proven(self):
        for collective in "reduce broadcast all_gather reduce_scatter all_to_all gather scatter".split():
            with self.subTest(collective=collective):
                result = explain("--ranks", "6", "--collective", collective, "--topology", "torus:2x3")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertIn(" proven ", result.stdout)
                self.assertNotIn(" wrong ", result.stdout)

    def test_is_of_the_root_that_was_named(self):
        words = ("--ranks", "4", "--collective", "broadcast", "--topology", "mesh:4")
        self.assertIn("neighbours only: no rank", explain(*words, "--algorithm", "ring").stdout)
        result = explain(*words, "--algorithm", "ring", "--root", "2")
        self.assertIn("rank 3 sends to rank 0", result.stdout)
        self.assertIn("4 ranks, root 2;", explain(*words, "--root", "2").stdout)
        self.assert_sentence(explain(*words, "--root", "4"), 2, "not in a world of 4 ranks")

    def test_stands_in_the_json_file_too(self):
        with temporary_folder() as folder:
            file = folder / "explained.json"
            result = explain("--ranks", "8", "--topology", "star", "--topology", "torus:2x4", "--json", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(file.read_text())
        self.assertIn("arguments", found["environment"])
        schedules = {each["algorithm"]: each for each in found["schedules"]}
        ring = schedules["ring"]
        self.assertEqual((ring["collective"], ring["ranks"], ring["chunks"], ring["root"]), ("all_reduce", 8, 8, 0))
        self.assertEqual((ring["proven"], ring["problem"]), (True, ""))
        self.assertEqual((ring["rounds"], ring["messages"], ring["sent"]), (14, 14, 1.75))
        star, torus = ring["contention"]
        self.assertEqual((star["topology"], star["most_transfers"], star["round"]), ("star", 1, 0))
        self.assertEqual(star["link"], {"from": "rank 0", "to": "switch 0"})
        self.assertEqual((star["load_by_rounds"], star["traffic"], star["missing_link"]), (1.75, 28, ""))
        self.assertEqual(torus["topology"], "torus:2x4")
        self.assertIn("rank 3 sends to rank 4", torus["missing_link"])


class WrongUsage(ProgramTest):
    def test_is_one_sentence_with_its_remedy(self):
        for words, part in (
            (("--ranks", "8", "--topology", "torus:4x4"), "write torus:2x4"),
            (("--ranks", "8", "--topology", "tours:2x4"), "did you mean 'torus'?"),
            (("--ranks", "8", "--topology", ""), "''"),
            (("--ranks", "8", "--topology", "mesh"), "sizes of its dimensions"),
            (("--ranks", "8", "--algorithm", "swing", "--collective", "broadcast"), "binomial_tree"),
            (("--ranks", "8", "--algorithm", "rnig"), "did you mean 'ring'?"),
            (("--ranks", "8", "--algorithm", "torus:4x4"), "multiply to 8"),
            (("--ranks", "8", "--algorithm", "ring:2x4"), "write ring"),
            (("--ranks", "8", "--collective", "barrier"), "barrier has no schedule"),
            (("--ranks", "8", "--collective", "sendrecv"), "sendrecv has no schedule"),
            (("--ranks", "8", "--baseline", "mpi"), "leave out --baseline"),
            (("--ranks", "0"), "--ranks '0'"),
            ((), "--explain needs --ranks N"),
        ):
            with self.subTest(words=words):
                result = explain(*words)
                self.assert_sentence(result, 2, part)
                self.assertEqual(result.stdout, "")

    def test_several_topologies_are_for_comparing_schedules_only(self):
        words = ("--ranks", "2", "--topology", "ring", "--topology", "star")
        self.assert_sentence(run("bench", *words, limit=10), 2, "add --explain")

    def test_a_file_that_cannot_be_written_is_found_before_the_work(self):
        result = explain("--ranks", "4", "--json", "/nowhere/explained.json")
        self.assert_sentence(result, 1, "/nowhere/explained.json")
        self.assertEqual(result.stdout, "")

    def test_the_algorithm_may_come_from_the_environment(self):
        result = explain("--ranks", "4", env=clean_environment(RANVIER_ALGORITHM="one_round"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("all_reduce by one_round: 4 ranks", result.stdout)


if __name__ == "__main__":
    main()
