"""ranvier probe: every link measured, and its file read by simulate."""

import json

from program import ProgramTest, clean_environment, main, run, start, temporary_folder


class Probe(ProgramTest):
    def test_measures_every_link_of_each_world(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks), temporary_folder() as folder:
                toml, found = folder / "topology.toml", folder / "topology.json"
                result = run("probe", "--ranks", str(ranks), "--transport", "tcp", "--samples", "3", "--bytes", "256K",
                             "--output", str(toml), "--json", str(found), limit=60)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                found = json.loads(found.read_text())
                self.assertIn(found["pairs_measured_again"], range(2) if ranks == 2 else range(4))
                links = found["links"]
                pairs = [(link["from"], link["to"]) for link in links]
                self.assertEqual(pairs, [(a, b) for a in range(ranks) for b in range(ranks) if a != b])
                [machine] = found["machines"]
                self.assertEqual(machine["ranks"], list(range(ranks)))
                self.assertGreater(machine["gbit_together"], 0)
                self.assertTrue(all(link["latency_us"] > 0 and link["gbit_per_second"] > 0 for link in links))
                again = run("simulate", "--bytes", "1M", "--world", str(ranks), "--topology", str(toml), "--json", "-")
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assertGreater(json.loads(again.stdout)["step_ns"], 0)

    def test_sees_how_fast_a_paced_link_is(self):
        with temporary_folder() as folder:
            found = folder / "topology.json"
            result = run("probe", "--ranks", "2", "--transport", "tcp", "--link-rate", "400Mbit", "--samples", "3",
                         "--bytes", "4M", "--json", str(found), limit=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            for link in json.loads(found.read_text())["links"]:
                self.assertLess(link["gbit_per_second"], 0.5)

    def test_files_that_cannot_be_written_are_named_once_before_anything_is_measured(self):
        with temporary_folder() as folder:
            absent = str(folder / "absent" / "file.toml")
            for flag in ("--output", "--json"):
                # So many samples would take minutes.
                words = ("probe", "--transport", "tcp", "--samples", "10000", "--bytes", "64M", flag, absent)
                with self.subTest(flag=flag, launcher="ranvier"):
                    self.assert_sentence(run(*words, "--ranks", "3", limit=30), 1, f"cannot write {absent}", flag)
                with self.subTest(flag=flag, launcher="another"):
                    store = folder / flag
                    store.mkdir()
                    place = {"RANVIER_WORLD": "3", "RANVIER_STORE": str(store)}
                    ranks = [start(*words, env=clean_environment(RANVIER_RANK=str(rank), **place)) for rank in range(3)]
                    said = [rank.communicate(timeout=30)[1] for rank in ranks]
                    self.assertEqual([rank.returncode for rank in ranks], [1] * 3)
                    self.assertEqual(len("".join(said).splitlines()), 1, said)
                    self.assertIn(f"cannot write {absent}", said[0])

    def test_what_rank_0_asks_for_all_measure(self):
        with temporary_folder() as store:
            place = {"RANVIER_WORLD": "2", "RANVIER_STORE": str(store)}
            words = (("--samples", "3", "--bytes", "64K"), ("--samples", "9", "--bytes", "1M"))
            ranks = [start("probe", "--transport", "tcp", *words[rank], env=clean_environment(RANVIER_RANK=str(rank), **place))
                     for rank in range(2)]  # fmt: skip
            for rank in ranks:
                out, err = rank.communicate(timeout=60)
                self.assertEqual((rank.returncode, err), (0, ""), out)

    def test_words_of_one_rank_that_cannot_be_followed_are_told_to_all(self):
        with temporary_folder() as store:
            place = {"RANVIER_WORLD": "2", "RANVIER_STORE": str(store)}
            ranks = [start("probe", *words, env=clean_environment(RANVIER_RANK=str(rank), **place))
                     for rank, words in enumerate(((), ("--bytes", "6")))]  # fmt: skip
            said = [rank.communicate(timeout=60)[1] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [1, 2], said)
            self.assertEqual(said[0], "ranvier probe: rank 1 cannot take part: --bytes is a multiple of 4 from 1024\n")

    def test_wrong_usage_is_one_sentence(self):
        for words, part in (
            ((), "nothing says how many ranks"),
            (("--ranks", "1"), "--ranks '1'"),
            (("--ranks", "2", "--bytes", "6"), "--bytes is a multiple of 4"),
            (("--ranks", "2", "--link-rate", "quick"), "--link-rate 'quick'"),
            (("--ranks", "2", "--output", "topology"), "let it end in .toml"),
            (("--ranks", "2", "--ports", "20000-20000"), "1 for 2 ranks"),
            (("--ranks", "2", "--interface", "nowhere"), "'nowhere'"),
            (("--ranks", "2", "--key", "/nonexistent/job.key"), "/nonexistent/job.key"),
        ):
            with self.subTest(words=words):
                result = run("probe", *words, limit=20)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(part, result.stderr)

    def test_ranks_listen_and_prove_themselves_as_in_other_commands(self):
        with temporary_folder() as folder:
            file, key = folder / "probe.json", folder / "job.key"
            key.write_text(run("key", "new", limit=20).stdout)
            key.chmod(0o600)
            words = ("probe", "--ranks", "2", "--samples", "3", "--bytes", "4M", "--json", str(file), "--interface", "127.0.0.1")
            variables = {"RANVIER_TRANSPORT": "tcp", "RANVIER_LINK_RATE": "400Mbit", "RANVIER_KEY": str(key),
                         "RANVIER_ENCRYPT_EVERYWHERE": "1", "RANVIER_SOCKETS": "2"}  # fmt: skip
            result = run(*words, limit=60, env=clean_environment(**variables))
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(file.read_text())
            self.assertEqual(found["transport"], "tcp")
            for link in found["links"]:
                self.assertLess(link["gbit_per_second"], 0.5)
            wrong = run(*words, limit=60, env=clean_environment(**variables, RANVIER_PORTS="20001-20000"))
            self.assert_sentence(wrong, 2, "RANVIER_PORTS", "20001-20000")


if __name__ == "__main__":
    main()
