"""ranvier plan: the way to communicate that is chosen, and a tuning table that other commands follow."""

import json
import re
import tomllib

from program import ProgramTest, main, run, temporary_folder


class Plan(ProgramTest):
    def test_is_said_in_words(self):
        result = run("plan", "--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit", limit=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"\nchosen +[\w ]+, .* buckets?, .*: a step of [\d.]+ ms")
        self.assertRegex(result.stdout, r"\nsecond +[\w ]+, .*%")
        self.assertRegex(result.stdout, r"\ncompression +pays here, .* most: it gains [\d.]+ %")
        self.assertRegex(result.stdout, r"\ncodec +at 1 Gbit/s bf16 gains [\d.]+ %: on")
        self.assertRegex(result.stdout, r"\npolicy +local:16 gains [\d.]+ % against bsp, and has to gain 10 % .*: on")

    def test_compression_that_gains_nothing_is_off(self):
        result = run("plan", "--workload", "resnet50", "--world", "4", "--link-rate", "10000Gbit", "--compress", "int8", limit=60)
        self.assertRegex(result.stdout, r"\ncompression +does not pay here; at best it .*, with int8")
        self.assertRegex(result.stdout, r"\ncodec +at 10000 Gbit/s int8 .*: off")

    def test_no_codec_is_chosen_for_a_gain_that_nothing_tells_apart(self):
        step = (
            '[[layer]]\nname = "a"\nweight_gradient_ns = 10000000\ncommunications = [\n'
            '  { pass = "weight_gradient", collective = "all_reduce", bytes = 4000, role = "data" },\n]\n'
        )
        with temporary_folder() as folder:
            (folder / "small.toml").write_text(step)
            words = ("--workload", str(folder / "small.toml"), "--world", "4", "--link-rate", "1Gbit", "--compress", "bf16")
            choices = json.loads(run("plan", *words, "--json", "-", limit=60).stdout)["choices"]
            said = run("plan", *words, limit=60).stdout
        best = {codec: min(each["step_ns"] for each in choices if each["codec"] == codec) for codec in ("", "bf16")}
        self.assertLess(best["bf16"], best[""])
        self.assertGreater(best["bf16"], best[""] * 0.995)
        self.assertEqual(choices[0]["codec"], "")
        self.assertRegex(said, r"\nchosen .*, no codec")
        self.assertRegex(said, r"\ncodec .* bf16 .*: off")

    def test_lists_all_choices(self):
        result = run("plan", "--workload", "resnet50", "--world", "4", "--json", "-", limit=60)
        choices = json.loads(result.stdout)["choices"]
        costs = [choice["step_ns"] * (1 + choice["margin"]) for choice in choices]
        self.assertEqual(costs, sorted(costs))
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
            for what in ("compression", "codec", "policy"):
                self.assertTrue(any(reason.startswith(what + ": ") for reason in plan["because"]), what)

    def test_of_a_workload_that_does_nothing_has_no_gains(self):
        with temporary_folder() as folder:
            (folder / "zero.toml").write_text('[[layer]]\nname = "a"\n')
            result = run("plan", "--workload", str(folder / "zero.toml"), "--world", "4", "--compress", "bf16", limit=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("a step of 0.0000 ms", result.stdout)
        self.assertNotRegex(result.stdout, r"\b(nan|inf)\b")

    def test_refuses_degrees_that_multiply_beyond_the_world(self):
        degrees = 'name = "wide"\n[degrees]\ntensor = 65536\npipeline = 65536\n'
        with temporary_folder() as folder:
            (folder / "wide.toml").write_text(degrees + '[[layer]]\nname = "a"\nforward_ns = 1000\n')
            plan = f"workload = '{folder}/wide.toml'\nnetwork = 'star'\nranks = 4\nbucket_bytes = 4096\n"
            (folder / "plan.toml").write_text(plan + "[prediction]\nstep_ns = 1000\n")
            again = ("--again", str(folder / "plan.toml"), "--took-ms", "5", "--waited-ms", "1")
            of_replicas = ("--workload", str(folder / "wide.toml"), "--world", "4", "--speeds", "1,1,1,0.5")
            for words in (of_replicas[:4], of_replicas, again):
                with self.subTest(words=words):
                    refused = run("plan", *words, "--output", str(folder / "next.toml"), limit=60)
                    self.assert_sentence(refused, 2, "tp=65536, pp=65536", "which does not make 4 ranks")

    def test_a_recording_that_does_not_fit_is_refused(self):
        average = '{ pass = "weight_gradient", collective = "all_reduce", bytes = 4e8, role = "data" }'
        with temporary_folder() as folder:
            (folder / "w.toml").write_text(f'[[layer]]\nname = "a"\nweight_gradient_ns = 1000\ncommunications = [{average}]\n')
            words = ("--workload", str(folder / "w.toml"), "--world", "4", "--sync", "bsp", "--compress", "none", "--memory")
            self.assertEqual(run("plan", *words, "1.7", limit=60).returncode, 0)
            self.assert_sentence(run("plan", *words, "1.5", limit=60), 2, "w.toml does not fit: it has 1.6 GB")

    def test_divides_models_and_places_ranks(self):
        words = ("--workload", "llama3-8b:layers=4", "--world", "8", "--topology", "mesh:2x4", "--sync", "bsp", "--json", "-")
        found = json.loads(run("plan", *words, limit=100).stdout)
        self.assertGreater(len({choice["workload"] for choice in found["choices"]}), 3)
        self.assertEqual({choice["sync"] for choice in found["choices"]}, {"bsp"})
        placements = {tuple(choice["placement"]) for choice in found["choices"]}
        self.assertEqual(len(placements), 2)  # as numbered, and around the mesh
        for placement in placements - {()}:
            self.assertEqual(sorted(placement), list(range(8)))

    def test_weighs_transports_that_were_measured(self):
        link = '[[link]]\nfrom = {0}\nto = {1}\nlatency_us = 20\ngbit_per_second = {2}\n'
        with temporary_folder() as folder:
            words = []
            for transport, rate in (("tcp", 1), ("udp", 2)):
                file = folder / f"{transport}.toml"
                links = "".join(link.format(*pair, rate) for pair in ((0, 1), (1, 0)))
                file.write_text(f'world = 2\ntransport = "{transport}"\n{links}')
                words += ["--topology", str(file)]
            said = run("plan", "--workload", "resnet50", *words, limit=60)
            self.assertRegex(said.stdout, r"\ntransport +tcp loses [\d.]+ % against udp")
            mixed = run("plan", "--workload", "resnet50", *words[:2], "--topology", "star", limit=60)
            self.assert_sentence(mixed, 2, "are files of ranvier probe")
            twice = run("plan", "--workload", "resnet50", *words, "--transport", "tcp", limit=60)
            self.assert_sentence(twice, 2, "--transport is of one network, and several --topology say themselves")

    def test_says_which_transport_of_measured_networks_is_wrong(self):
        link = "[[link]]\nfrom = {0}\nto = {1}\nlatency_us = 20\ngbit_per_second = 1\n"
        with temporary_folder() as folder:
            def measured(name: str, line: str) -> tuple[str, str]:
                file = folder / name
                file.write_text("world = 2\n" + line + "".join(link.format(*pair) for pair in ((0, 1), (1, 0))))
                return "--topology", str(file)

            tcp = measured("a.toml", 'transport = "tcp"\n')
            for other, code, parts in (
                (measured("b.toml", 'transport = "tpc"\n'), 1, ("b.toml, line 2, column 13", "unknown transport 'tpc'; did you mean 'tcp'?")),
                (measured("b2.toml", 'transport = "tcp"\n'), 2, ("a.toml and", "b2.toml were both measured over tcp")),
                (measured("b3.toml", ""), 2, ("b3.toml does not say over which transport it was measured",)),
            ):
                with self.subTest(other=other, parts=parts):
                    result = run("plan", "--workload", "resnet50", *tcp, *other, "--sync", "bsp", limit=60)
                    self.assert_sentence(result, code, *parts)
            # One alone may leave it out; wherever a file is read, a wrong name is found.
            self.assertEqual(run("plan", "--workload", "resnet50", *measured("c.toml", ""), "--sync", "bsp", limit=60).returncode, 0)
            wrong = measured("d.toml", 'transport = "shm+tpc"\n')
            for words in (("plan", "--workload", "resnet50"), ("simulate", "--bytes", "1M", "--world", "2")):
                self.assert_sentence(run(*words, *wrong, limit=60), 1, "d.toml, line 2, column 13")

    def test_says_how_far_the_loss_that_was_measured_counts(self):
        link = "[[link]]\nfrom = {}\nto = {}\nlatency_us = 20\ngbit_per_second = 1\npackets = 1000\nloss = {}\nloss_most = 1\n"
        with temporary_folder() as folder:
            for losses, said in (((0, 0.02), True), ((0, 0), False)):
                file = folder / "t.toml"
                file.write_text("world = 2\n" + "".join(link.format(*pair, loss) for pair, loss in zip(((0, 1), (1, 0)), losses)))
                words = ("--workload", "resnet50", "--topology", str(file))
                for result in (run("plan", *words, "--sync", "bsp", limit=60), run("simulate", *words, limit=60)):
                    self.assertEqual(result.returncode, 0, result.stderr)
                    found = re.search(r"\nloss:? +up to 2 % of packets, from rank 1 to rank 0: counted as far as", result.stdout)
                    self.assertEqual(found is not None, said, result.stdout)

    def test_weighs_nodes_and_servers_of_unequal_replicas(self):
        with temporary_folder() as folder:
            file, plan = folder / "plan.json", folder / "plan.toml"
            words = ("plan", "--workload", "resnet50", "--link-rate", "10Gbit", "--output", str(plan))
            slow = ("--speeds", "1,1,0.1,0.1")
            fast = ("--world", "4", "--link-rate", "100Gbit")
            nodes = ("--place", "node=2", "--topology", "fat_tree:4,oversubscription=4", "--world", "8")
            said = run(*words, *nodes, "--compress", "none", limit=60)
            self.assertRegex(said.stdout, r"\npolicy +node:16 gains [\d.]+ % against bsp, and has to gain 5 %")
            self.assertNotIn("async", said.stdout)
            self.assertEqual(run(*words, *nodes, "--sync", "node:16", limit=60).returncode, 0)
            chosen = tomllib.loads(plan.read_text())
            self.assertEqual((chosen["sync"], chosen["place"]), ("node:16", "node=2"))
            # Of several policies each is placed by its own levels.
            racks = ("--place", "node=2,rack=1", "--sync", "hierarchy:node=1,rack=8,world=64", "--sync", "node:16")
            self.assertEqual(run(*words, *nodes[2:], *racks, "--compress", "none", limit=60).returncode, 0)
            chosen = tomllib.loads(plan.read_text())
            self.assertEqual(chosen["place"], "node=2" if chosen["sync"] == "node:16" else "node=2,rack=1")
            # By a codec, too, simulate comes to the same step.
            said = run(*words, *nodes, "--sync", "node:16", "--compress", "int8", limit=60)
            self.assertRegex(said.stdout, "int8, by node:16")
            planned = tomllib.loads(plan.read_text())["prediction"]["step_ns"]
            predicted = run("simulate", "--plan", str(plan), "--json", str(file), limit=60)
            self.assertEqual(predicted.returncode, 0, predicted.stderr)
            again = json.loads(file.read_text())
            self.assertEqual(again["planned_step_ns"], planned)
            self.assertAlmostEqual(again["step_ns"] / planned, 1, delta=0.05)
            self.assertEqual(run("simulate", "--plan", str(plan), "--sync", "local:16", limit=60).returncode, 0)
            # Those that wait for nobody are chosen where somebody is slow and the network is not.
            said = run(*words[:3], *fast, *slow, "--json", str(file), limit=60)
            weighed = r"async gains [\d.]+ % against bsp, and has to gain 15 % since its gradients are late: on"
            self.assertRegex(said.stdout, weighed)
            choices = json.loads(file.read_text())["choices"]
            self.assertIn(choices[0]["sync"], ("async", "group"))
            # Slow replicas make bsp slower, too.
            bsp = {}
            for more in ((), slow):
                run(*words[:3], *fast, *more, "--sync", "bsp", "--json", str(file), limit=60)
                bsp[bool(more)] = min(each["step_ns"] for each in json.loads(file.read_text())["choices"])
            self.assertGreater(bsp[True], 5 * bsp[False])
            # How slow they are stands in the plan.
            run(*words, *fast, *slow, "--sync", "bsp", limit=60)
            self.assertEqual(run("simulate", "--plan", str(plan), "--json", str(file), limit=60).returncode, 0)
            self.assertAlmostEqual(json.loads(file.read_text())["step_ns"] / bsp[True], 1, delta=0.05)

    def test_writes_a_table_that_bench_follows(self):
        with temporary_folder() as folder:
            file = folder / "tuning.txt"
            words = ("--workload", "resnet50", "--world", "2", "--transport", "shm", "--tuning", str(file))
            self.assertEqual(run("plan", *words, limit=60).returncode, 0)
            self.assertIn("max", file.read_text())
            result = run("bench", "--ranks", "2", "--transport", "shm", "-b", "4", "-e", "4", "-n", "1", "--tuning", str(file),
                         limit=60)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_search_for_many_ranks_ends_with_what_it_knows_by_then(self):
        words = ("plan", "--workload", "resnet50", "--world", "512", "--link-rate", "10Gbit", "--limit")
        self.assert_sentence(run(*words, "0.001", limit=60), 1, "no way to communicate is known after the 0.001 s of --limit")
        seconds = 0.25  # whole, it takes seven times as long as to the first way to communicate
        while (result := run(*words, f"{seconds:g}", limit=60)).returncode and seconds < 32:
            self.assert_sentence(result, 1, "give it longer")
            seconds *= 2
        self.assertRegex(result.stdout, r"chosen +.* a step of ")
        self.assertRegex(result.stdout, rf"search +cut short by the {seconds:g} s of --limit")

    def test_plans_again_for_the_network_that_explains_what_was_measured(self):
        with temporary_folder() as folder:
            first, second, third = (str(folder / f"{name}.toml") for name in ("first", "second", "third"))
            words = ("--workload", "resnet50", "--world", "8", "--link-rate", "10Gbit", "--compress", "none", "--sync", "bsp")
            self.assertEqual(run("plan", *words, "--output", first, limit=60).returncode, 0)
            planned = tomllib.loads((folder / "first.toml").read_text())
            ms = {key: planned["prediction"][f"{key}_ns"] / 1e6 for key in ("step", "compute", "exposed_communication")}
            # Ten times slower: what simulating the same plan on that network says a step takes, and waits.
            slow = json.loads(run("simulate", "--plan", first, "--link-rate", "1Gbit", "--json", "-", limit=60).stdout)
            took, waited = slow["step_ns"] / 1e6, slow["exposed_communication_ns"] / 1e6
            self.assertGreater(took, ms["step"])
            again = ("plan", "--again", first, "--took-ms", str(took), "--waited-ms", str(waited), "--limit", "50", "--output")
            said = run(*again, second, limit=60)
            self.assertEqual((said.returncode, said.stderr), (0, ""))
            self.assertRegex(said.stdout, rf"^a step takes {took:.2f} ms and not {ms['step']:.2f}: .* as if the network were "
                                          r"(9\.\d|10) times slower than planned; from now on .*, expected to take [\d.]+\n$")  # fmt: skip
            new = tomllib.loads((folder / "second.toml").read_text())
            self.assertEqual(new["because"], ["again: " + said.stdout.strip()])
            self.assertLess(new["prediction"]["step_ns"] / 1e6, took)
            # It names the network's speed as before: what is simulated by that is faster, and told why.
            told = run("simulate", "--plan", second, limit=60).stdout
            self.assertIn("since it was made again by what was measured: a step takes ", told)
            self.assertNotIn("made again", run("simulate", "--plan", first, limit=60).stdout)
            self.assertEqual(planned["compress"], "none")
            self.assertNotEqual(new["compress"], "none")
            for same in ("workload", "network", "link_gbit", "latency_us", "ranks", "transport", "sync"):
                self.assertEqual(new[same], planned[same])
            self.assert_sentence(run(*again, first, limit=60), 2, "--output")
            # What has to stay, stays.
            self.assertEqual(run(*again, third, "--keep-compress", "--bucket", "1000000", limit=60).returncode, 0)
            kept = tomllib.loads((folder / "third.toml").read_text())
            self.assertEqual((kept["compress"], kept["bucket_bytes"]), (planned["compress"], 1000000))

    def test_what_takes_as_long_as_planned_is_by_a_network_as_planned(self):
        """Whose pipelines fill, whose nodes average without the codec of all, whose replicas are several ranks."""
        model = ("--memory", "1000", "--world", "8", "--link-rate", "100Gbit", "--sync", "bsp", "--compress", "none")
        nodes = ("--workload", "resnet50", "--world", "8", "--link-rate", "1Gbit", "--place", "node=2", "--sync", "node:16")
        slow = ("--speeds", "0.5,0.5,0.5,0.5")
        with temporary_folder() as folder:
            first, second = (folder / f"{name}.toml" for name in ("first", "second"))
            for words in (
                ("--workload", "llama3-8b:tp=1,pp=4,microbatches=4", *model),
                ("--workload", "llama3-8b:tp=2,pp=1", *model, *slow),
                (*nodes, "--compress", "int8"),
                (*nodes, "--compress", "none"),
            ):
                with self.subTest(words=words):
                    self.assertEqual(run("plan", *words, "--output", str(first), limit=60).returncode, 0)
                    step = tomllib.loads(first.read_text())["prediction"]
                    speeds = 2 if "--speeds" in words else 1
                    took = step["step_ns"] / 1e6
                    waited = took - step["compute_ns"] / 1e6 * speeds
                    said = run("plan", "--again", str(first), "--took-ms", str(took), "--waited-ms", str(waited), "--limit", "30",
                               "--output", str(second), limit=60)  # fmt: skip
                    self.assertRegex(said.stdout, "by a network as planned; ")
                    expected = float(re.search(r"expected to take ([\d.]+)", said.stdout)[1])
                    self.assertLess(expected, took * 1.01)
                    after = tomllib.loads(second.read_text())
                    if "node:16" in words:
                        self.assertEqual(after["bucket_bytes"], tomllib.loads(first.read_text())["bucket_bytes"])
                        self.assertAlmostEqual(after["prediction"]["step_ns"] / 1e6, expected, delta=0.01)

    def test_wrong_usage_is_one_sentence(self):
        for words, part in (
            (("--again", "plan.toml"), "needs --took-ms"),
            (("--again", "plan.toml", "--took-ms", "5"), "needs --waited-ms"),
            (("--again", "plan.toml", "--took-ms", "5", "--waited-ms", "6"), "--waited-ms 6 is no part of --took-ms 5"),
            (("--again", "plan.toml", "--took-ms", "0", "--waited-ms", "0"), "--took-ms 0 is no time"),
            (("--again", "plan.toml", "--took-ms", "5", "--waited-ms", "4", "--world", "4"), "leave --world out"),
            (("--again", "plan.toml", "--took-ms", "5", "--waited-ms", "4", "--gradient-bytes", "inf"), "--gradient-bytes inf is no number"),
            (("--took-ms", "5"), "add --again"),
            ((), "plan needs --world"),
            (("--world", "4"), "plan needs --workload"),
            (("--world", "6", "--workload", "gpt3:tp=16,pp=1"), "which does not make 6 ranks"),
            (("--world", "4", "--workload", "llama3-405b"), "does not fit"),
            (("--world", "8", "--workload", "llama3-405b:tp=1,pp=1"), "GB of weights, gradients and optimizer on each rank, and --memory says 80"),
            (("--world", "8", "--workload", "resnet50", "--memory", "0.1"), "resnet50 does not fit: it has 0.4"),
            (("--world", "8", "--workload", "step.json"), "mixtral-8x7b; or a file of ranvier train --record (.toml), Chakra (.et)"),
            (("--world", "8", "--workload", "resnet50", "--topology", "t.json"), "fully_connected; or a shape such as RI(4)_SW(8), or a file"),
            (("--world", "4", "--workload", "resnet50", "--sync", "locl:4"), "did you mean 'local'"),
            # At once: no search for so many ranks on a mesh is over within the limit.
            (("--world", "1024", "--topology", "mesh:32x32", "--workload", "llama3-70b", "--sync", "node:2"), "add --place node=2"),
            (("--world", "4", "--workload", "resnet50", "--place", "node=2", "--sync", "bsp"), "add --sync node:16"),
            (("--world", "4", "--workload", "resnet50", "--place", "node=5"), "5"),
            (("--world", "4", "--workload", "resnet50", "--place", "node=4"), "one rank in each node"),
            (("--world", "2048", "--workload", "resnet50", "--place", "node=4"), "1024 ranks at most"),
            (("--world", "4", "--workload", "resnet50", "--sync", "async:servers=1"), "leave out servers=1"),
            (("--world", "8", "--workload", "llama3-8b", "--speeds", "1,1,1,1,1,1,1,0.5"), "name its degrees"),
            (("--world", "4", "--workload", "resnet50", "--place", "rack=2", "--sync", "node:4"), "in which node it is"),
            (("--world", "8", "--workload", "resnet50", "--place", "node=4,rack=2", "--sync", "node:4"), "unknown level to place 'rack'"),
            (("--world", "4", "--workload", "resnet50", "--speeds", "1,1,1,1,0.5"), "5"),
            (("--world", "4", "--workload", "resnet50", "--sync", "ad-psgd"), "ranvier simulate --sync ad-psgd"),
            (("--world", "4", "--workload", "resnet50", "--sync", "local:4,adapt=1,most=8"), "without adapt"),
            (("--world", "4", "--workload", "resnet50", "--topology", "torus:2x2", "--link-rate", "1GB,2GB"), "of all links"),
            (("--world", "4", "--workload", "resnet50", "--transport", "quic"), "unknown transport 'quic'"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(run("plan", *words, limit=60), 2, part)


if __name__ == "__main__":
    main()
