"""ranvier bench with real ranks: results, files, and what happens when something is missing."""

import json
import os
import shutil
import stat
import subprocess
import time
import unittest

from program import (
    BASELINES,
    RANVIER,
    ProgramTest,
    clean_environment,
    main,
    run,
    start,
    temporary_folder,
)

QUICK = ("-b", "4", "-e", "4K", "-f", "32", "--samples", "2", "--iters", "3")
COLLECTIVES = "all_reduce reduce broadcast all_gather reduce_scatter all_to_all gather scatter barrier sendrecv".split()
OPEN_MPI = BASELINES and (RANVIER.parent / "ranvier-bench-mpi").exists()
TORCH_PYTHON = os.environ.get("RANVIER_TEST_TORCH_PYTHON", "")


def rows_of(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line and not line.startswith("#")]


class Results(ProgramTest):
    def test_every_collective_is_right_on_every_transport(self):
        for ranks, transport in ((2, "shm"), (4, "tcp")):
            for collective in COLLECTIVES:
                with self.subTest(collective=collective, transport=transport):
                    result = run(
                        "bench", "--ranks", str(ranks), "--transport", transport, "--collective", collective, *QUICK
                    )
                    self.assertEqual(result.returncode, 0, result.stderr)
                    rows = rows_of(result.stdout)
                    self.assertEqual(len(rows), 1 if collective == "barrier" else 3)
                    self.assertTrue(all(row[7] == "0" for row in rows), result.stdout)

    def test_any_rank_may_be_the_root(self):
        quick = ("-b", "48", "-e", "48", "--samples", "2", "--iters", "3")
        for collective in ("broadcast", "reduce", "gather", "scatter"):
            words = ("bench", "--ranks", "3", "--collective", collective, *quick)
            for place in ("--in-place", "--out-of-place"):
                with self.subTest(collective=collective, place=place), temporary_folder() as folder:
                    file = folder / "bench.json"
                    result = run(*words, "--root", "2", place, "--json", str(file))
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertIn("3 ranks, root 2,", result.stdout)
                    (row,) = json.loads(file.read_text())["rows"]
                    self.assertEqual((row["root"], row["wrong"]), (2, 0))
            self.assert_sentence(run(*words, "-r", "3"), 2, "--root 3 is not in a world of 3 ranks", "ranks 0 to 2")
        self.assert_sentence(run("bench", "--ranks", "2", "-r", "1"), 2, "all_reduce has no root", "leave out --root")

    def test_neighbours_in_any_grid_get_their_parts(self):
        for ranks, grid in (("2", ()), ("4", ("--algorithm", "neighbor_exchange:2x2,periods=1x0"))):
            with self.subTest(grid=grid):
                result = run("bench", "--ranks", ranks, "--collective", "neighbor_exchange", *grid, *QUICK)
                self.assertEqual(result.returncode, 0, result.stderr)
                rows = rows_of(result.stdout)
                self.assertEqual([row[1] for row in rows], ["2", "32", "1024"] if not grid else ["4", "32", "1024"])
                self.assertTrue(all(row[7] == "0" for row in rows), result.stdout)
        words = ("bench", "--collective", "neighbor_exchange", "--ranks", "4")
        self.assert_sentence(run(*words, "--algorithm", "neighbor_exchange:2x3"), 2, "6 ranks", "multiply to 4")
        self.assert_sentence(run(*words, "--tune", "t"), 2, "another collective")
        self.assert_sentence(run(*words, "--baseline", "mpi"), 2, "sendrecv")
        words = ("bench", "--collective", "sendrecv", "--ranks", "2", "--algorithm", "ring")
        self.assert_sentence(run(*words), 2, "none does: name none for it")

    def test_flags_are_those_of_nccl_tests(self):
        result = run("bench", "--ranks", "1", "-b", "8", "-e", "8", "-d", "double", "-o", "max", "-n", "2", "--samples", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("all_reduce of f64, 1 rank, ", result.stdout)
        self.assertEqual(rows_of(result.stdout)[0][2:4], ["f64", "max"])

    def test_an_algorithm_may_have_another_name(self):
        with temporary_folder() as folder:
            file = folder / "bench.json"
            for words in (("--algorithm", "butterfly"), ("--tuning", str(folder / "tuning.txt"))):
                (folder / "tuning.txt").write_text("all_reduce shm 2 max butterfly\n")
                with self.subTest(words=words):
                    result = run("bench", "--ranks", "2", "--transport", "shm", *words, *QUICK, "--json", str(file))
                    self.assertEqual(result.returncode, 0, result.stderr)
                    name = json.loads(file.read_text())["rows"][0]["algorithm"]
                    self.assertEqual(name, "halving_doubling" if "--algorithm" in words else "auto")

    def test_columns_are_those_of_nccl_tests(self):
        result = run("bench", "--ranks", "2", "--dtype", "f64", "--op", "max", "--in-place", "-w", "1", "-c", "3", *QUICK)
        titles = [line for line in result.stdout.splitlines() if line.startswith("#")][-2]
        self.assertEqual(
            titles.lstrip("#").split(), "size count type redop time algbw busbw #wrong".split(), result.stdout
        )
        self.assertEqual([row[:4] for row in rows_of(result.stdout)][:2], [["8", "1", "f64", "max"], ["128", "16", "f64", "max"]])

    def test_every_type_is_checked(self):
        for dtype in ("f16", "bf16", "i8", "i64", "bool"):
            result = run("bench", "--ranks", "2", "--dtype", dtype, "--collective", "reduce_scatter", *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_json_holds_what_is_promised(self):
        with temporary_folder() as folder:
            file = folder / "result.json"
            result = run("bench", "--ranks", "4", "--transport", "tcp", "--algorithm", "ring", "--json", str(file), *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(file.read_text())
            self.assertEqual([path.name for path in folder.iterdir()], ["result.json"])
        self.assertEqual([row["bytes"] for row in found["rows"]], [4, 128, 4096])
        for row in found["rows"]:
            self.assertEqual(row["collective"], "all_reduce")
            self.assertEqual((row["transport"], row["algorithm"]), ("tcp", "ring"))
            self.assertEqual((row["dtype"], row["ranks"], row["wrong"]), ("f32", 4, 0))
            self.assertEqual(row["baseline"], {})
            self.assertLessEqual(row["time_us_min"], row["time_us_p25"])
            self.assertLessEqual(row["time_us_p25"], row["time_us"])
            self.assertLessEqual(row["time_us"], row["time_us_p75"])
            self.assertAlmostEqual(row["algbw_gbps"], row["bytes"] / row["time_us"] / 1e3)
            self.assertAlmostEqual(row["busbw_gbps"], row["algbw_gbps"] * 1.5)
        for key in ("cpu", "cores", "system", "ranvier", "arguments", "time"):
            self.assertIn(key, found["environment"])

    def test_json_on_stdout_stands_there_alone(self):
        quick = ("--ranks", "2", "-b", "4", "-e", "4", "--samples", "2", "--json", "-")
        with temporary_folder() as folder:
            for words in ((), ("--tune", str(folder / "tuning.txt")), ("--compare-transports", "--latency-samples", "2")):
                with self.subTest(words=words):
                    result = run("bench", *quick, *words)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertTrue(json.loads(result.stdout)["rows"])
        explained = run("bench", "--explain", "--ranks", "4", "--json", "-")
        self.assertTrue(json.loads(explained.stdout)["schedules"])

    def test_several_sockets_a_link_give_the_same_results(self):
        result = run("bench", "--ranks", "3", "--transport", "tcp", "--sockets", "4", *QUICK)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(rows_of(result.stdout)), 3)

    def test_link_rate_paces_the_ranks(self):
        # 1 MB at 16 MB/s takes 62 ms, and all_reduce sends it once.
        with temporary_folder() as folder:
            file = folder / "result.json"
            words = ("-b", "1000000", "-e", "1000000", "--samples", "1", "--iters", "3", "--json", str(file))
            result = run("bench", "--ranks", "2", "--link-rate", "128Mbit", *words)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertGreater(json.loads(file.read_text())["rows"][0]["time_us"], 40_000)


class Launchers(ProgramTest):
    """Without --ranks, a process is one rank of the world that started it."""

    def ranks(self, environments: list[dict[str, str]]) -> list[subprocess.CompletedProcess]:
        processes = [start("bench", *QUICK, env=clean_environment(**each)) for each in environments]
        results = []
        for process in processes:
            out, err = process.communicate(timeout=60)
            results.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        return results

    def assert_rank_0_reports(self, results: list[subprocess.CompletedProcess]) -> None:
        self.assertEqual([result.returncode for result in results], [0] * len(results), results)
        self.assertEqual([len(rows_of(result.stdout)) for result in results], [3] + [0] * (len(results) - 1))

    def test_reads_ranviers_own_variables(self):
        with temporary_folder() as store:
            self.assert_rank_0_reports(
                self.ranks(
                    [{"RANVIER_RANK": str(i), "RANVIER_WORLD": "3", "RANVIER_STORE": str(store)} for i in range(3)]
                )
            )

    def test_reads_torchruns_variables(self):
        with temporary_folder() as temporary:
            common = {
                "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29123",
                "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0", "TMPDIR": str(temporary),
            }  # fmt: skip
            self.assert_rank_0_reports(self.ranks([{**common, "RANK": str(i), "LOCAL_RANK": str(i)} for i in range(2)]))
            self.assertEqual(list(temporary.iterdir()), [])

    @unittest.skipUnless(BASELINES and shutil.which("mpirun"), "needs Open MPI")
    def test_runs_under_mpirun(self):
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", RANVIER, "bench", *QUICK]
        result = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(rows_of(result.stdout)), 3, result.stdout)

    def test_a_world_that_does_not_fill_up_names_who_is_missing(self):
        with temporary_folder() as store:
            environment = clean_environment(RANVIER_RANK="0", RANVIER_WORLD="2", RANVIER_STORE=str(store))
            result = run("bench", *QUICK, "--join-timeout", "1", env=environment, limit=30)
            self.assert_sentence(result, 1, "1")
            self.assertEqual(result.stdout, "")

    def test_a_world_that_does_not_fill_up_leaves_nothing_behind(self):
        with temporary_folder() as temporary:
            environment = clean_environment(
                WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", RANK="0", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                MASTER_PORT="29124", TMPDIR=str(temporary),
            )  # fmt: skip
            result = run("bench", *QUICK, "--join-timeout", "1", env=environment, limit=30)
            self.assert_sentence(result, 1, "1")
            self.assertEqual(list(temporary.iterdir()), [])

    def test_half_an_environment_is_refused(self):
        result = run("bench", env=clean_environment(RANVIER_RANK="0"), limit=10)
        self.assert_sentence(result, 1, "RANVIER_WORLD is not set")


class Baselines(ProgramTest):
    @unittest.skipUnless(OPEN_MPI, "needs Open MPI")
    def test_open_mpi_is_measured_beside_and_checked_too(self):
        with temporary_folder() as folder:
            file = folder / "result.json"
            result = run("bench", "--ranks", "2", "--baseline", "mpi", "--json", str(file), *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("Open MPI", result.stdout)
            found = json.loads(file.read_text())
        for row in found["rows"]:
            mpi = row["baseline"]["mpi"]
            self.assertEqual(len(mpi["samples_us"]), len(row["samples_us"]), "each has its pair")
            self.assertGreater(mpi["time_us"], 0)
            self.assertGreater(mpi["ratio"], 0)
            self.assertEqual(mpi["wrong"], 0)
        self.assertEqual([len(row) for row in rows_of(result.stdout)], [10] * 3)

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI")
    def test_what_a_baseline_cannot_do_is_left_out_and_explained(self):
        with temporary_folder() as folder:
            file = folder / "result.json"
            result = run("bench", "--ranks", "2", "--baseline", "mpi", "--dtype", "bf16", "--json", str(file), *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)
            row = json.loads(file.read_text())["rows"][0]
        self.assertEqual(row["baseline"]["mpi"], {"time_us": None, "unsupported": "MPI has no bf16"})
        self.assertEqual(rows_of(result.stdout)[0][8:], ["-", "-"])

    def test_one_that_is_not_there_is_refused_by_name_and_passed_over_in_all(self):
        with temporary_folder() as folder:
            python = folder / "python-without-torch"
            python.write_text("#!/bin/sh\nexit 1\n")
            python.chmod(python.stat().st_mode | stat.S_IXUSR)
            words = ("--ranks", "2", "--python", str(python), *QUICK)
            for name in ("gloo", "torch"):
                result = run("bench", "--baseline", name, *words, limit=10)
                self.assert_sentence(result, 1, f"no baseline {name}", "cannot import torch", "--python")
            # "all" may well find Open MPI, which sanitizers dislike: an empty PATH hides it.
            result = run("bench", "--baseline", "all", *words, env=clean_environment(PATH=""))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("# not beside it: gloo", result.stdout)

    @unittest.skipUnless(BASELINES and TORCH_PYTHON, "needs a build with torch, and no sanitizer, which Python cannot load")
    def test_gloo_and_open_mpi_are_measured_in_one_run(self):
        names = ["gloo", "mpi"] if OPEN_MPI else ["gloo"]
        with temporary_folder() as folder:
            file = folder / "result.json"
            words = ("--ranks", "2", "--baseline", ",".join(names), "--python", TORCH_PYTHON, "--json", str(file))
            result = run("bench", *words, *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = json.loads(file.read_text())["rows"]
        self.assertEqual([row["bytes"] for row in rows], [4, 128, 4096])
        for row in rows:
            self.assertEqual(set(row["baseline"]), set(names))
            for name, measured in row["baseline"].items():
                self.assertGreater(measured["time_us"], 0, name)
                self.assertGreater(measured["ratio"], 0, name)
                self.assertEqual(measured["wrong"], 0, name)
        self.assertEqual([len(row) for row in rows_of(result.stdout)], [8 + 2 * len(names)] * 3, result.stdout)


class Tuning(ProgramTest):
    def test_a_table_is_written_completed_and_followed(self):
        with temporary_folder() as folder:
            table = folder / "tuning.txt"
            times_file = folder / "times.json"
            size = ("-b", "4", "-e", "64K", "-f", "128", "--samples", "3", "--iters", "2")
            for collective in ("all_reduce", "broadcast"):
                words = ("--collective", collective, "--tune", str(table), "--json", str(times_file))
                result = run("bench", "--ranks", "2", *words, *size)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual([row[0] for row in rows_of(result.stdout)], ["4", "512", "65536"])
                times = json.loads(times_file.read_text())["rows"]
                self.assertIn("auto", {row["algorithm"] for row in times})
                self.assertTrue(all(len(row["samples_us"]) == 3 for row in times))
            rows = rows_of(table.read_text())
            self.assertEqual({row[0] for row in rows}, {"all_reduce", "broadcast"})
            self.assertTrue(all(row[1:3] == ["shm", "2"] for row in rows), rows)
            self.assertEqual([row[3] for row in rows].count("max"), 2)

            for flags, variables in ((("--tuning", str(table)), {}), ((), {"RANVIER_TUNING": str(table)})):
                result = run("bench", "--ranks", "2", *flags, *QUICK, env=clean_environment(**variables))
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_what_the_links_can_do_is_a_table_that_can_be_followed(self):
        with temporary_folder() as folder:
            table = folder / "tuning.txt"
            for words in ((), ("--no-measure",)):
                probed = run("bench", "--ranks", "4", "--transport", "tcp", "--probe", *words)
                self.assertEqual(probed.returncode, 0, probed.stderr)
                self.assertRegex(probed.stdout, r"^# tcp, 4 ranks.*: a message's way [0-9.e+-]+ us, its work")
                rows = rows_of(probed.stdout)
                self.assertEqual([row[3] for row in rows].count("max"), 8, "one last row for each collective")
            self.assertEqual(run("bench", "--ranks", "4", "--transport", "tcp", "--probe", *words).stdout, probed.stdout)
            table.write_text(probed.stdout)
            result = run("bench", "--ranks", "4", "--transport", "tcp", "--tuning", str(table), *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)
            again = run("bench", "--ranks", "4", "--transport", "tcp", "--tuning", str(table), "--probe")
            self.assertEqual(rows_of(again.stdout), rows)
        for words in (("--explain",), ("--baseline", "mpi"), ("--tune", "t"), ("--json", "-")):
            self.assert_sentence(run("bench", "--ranks", "2", "--probe", *words), 2, "leave out")

    def test_data_keeps_to_the_links_of_a_topology(self):
        words = ("bench", "--ranks", "4", "--topology")
        result = run(*words, "mesh:2x2", *QUICK)
        self.assertEqual(result.returncode, 0, result.stderr)
        named = run(*words, "mesh:2x2", "--algorithm", "direct", *QUICK)
        self.assert_sentence(named, 2, "all_reduce by direct needs a link that is not there: in round 0 rank 0 sends to rank 3")
        with temporary_folder() as folder:
            table = folder / "tuning.txt"
            table.write_text("all_reduce shm 4 max direct\n")
            tuned = run(*words, "mesh:2x2", "--transport", "shm", "--tuning", str(table), *QUICK)
            self.assert_sentence(tuned, 2, "rank 0 sends to rank 3", "make its row in the tuning table one of auto")
        self.assert_sentence(run(*words, "mesh:2x3", *QUICK), 2, "multiply to the 4 ranks")
        self.assert_sentence(run(*words, "ring", "--topology", "star", *QUICK), 2, "name one --topology")

    def test_a_corrupt_table_is_refused_before_anything_starts(self):
        with temporary_folder() as folder:
            table = folder / "tuning.txt"
            table.write_text("all_reduce shm 2 max rign\n")
            tuned = run("bench", "--ranks", "2", "--tune", str(table), *QUICK)
            self.assert_sentence(tuned, 1, "line 1", "did you mean 'ring'")
            self.assertEqual(table.read_text(), "all_reduce shm 2 max rign\n")
            followed = run("bench", "--ranks", "2", "--tuning", str(table), *QUICK)
            self.assertEqual(followed.returncode, 1)
            self.assertIn("did you mean 'ring'", followed.stderr)
            missing = run("bench", "--ranks", "2", "--tuning", str(folder / "none"), *QUICK)
            self.assertEqual(missing.returncode, 1)
            self.assertIn("cannot read the tuning table", missing.stderr)

    def test_a_pipe_or_a_device_is_no_table(self):
        with temporary_folder() as folder:
            pipe = folder / "pipe"
            os.mkfifo(pipe)
            for file in (str(pipe), "/dev/zero"):
                self.assert_sentence(run("bench", "--ranks", "2", "--tune", file, *QUICK), 1, file)
                for words in (("--tuning", file), ("--tuning", file, "--learn")):
                    refused = run("bench", "--ranks", "2", *words, *QUICK)
                    self.assertEqual(refused.returncode, 1)
                    self.assertIn(f"cannot read the tuning table {file} (it is no regular file)", refused.stderr)

    def test_auto_may_learn_and_what_it_learned_is_a_table(self):
        with temporary_folder() as folder:
            table = folder / "tuning.txt"
            words = ("--ranks", "2", "--transport", "tcp", "--tuning", str(table), "-b", "4K", "-e", "4K")
            result = run("bench", *words, "--learn", "--samples", "3", "--iters", "100")
            self.assertEqual(result.returncode, 0, result.stderr)
            # Whether something else is faster is the machine's business.
            rows = rows_of(table.read_text()) if table.exists() else []
            self.assertTrue(all(row[4] == "auto" or row[5:] == ["learned"] for row in rows), rows)

            table.write_text("all_reduce tcp 2 1K auto\nall_reduce tcp 2 max ring learned\n")
            probed = run("bench", "--ranks", "2", "--transport", "tcp", "--tuning", str(table), "--probe")
            self.assertEqual(probed.returncode, 0, probed.stderr)
            self.assertRegex(probed.stdout, r"(?m)^all_reduce +tcp +2 +max +ring learned$")
            self.assertNotRegex(probed.stdout, r"(?m)\bauto\b")

    def test_flags_that_make_no_sense_together_are_refused(self):
        self.assert_sentence(run("bench", "--ranks", "2", "--learn", "--algorithm", "ring"), 2, "--learn corrects auto")
        for mode in ("--explain", "--probe"):
            self.assert_sentence(run("bench", "--ranks", "2", "--learn", mode), 2, mode, "leave out --learn")
            told = run("bench", "--ranks", "2", mode, env=clean_environment(RANVIER_LEARN="1"))
            self.assert_sentence(told, 2, mode, "RANVIER_LEARN=0")
        for words in (("--learn",), ("--algorithm", "ring"), ("--baseline", "gloo"), ("--explain",)):
            self.assert_sentence(run("bench", "--ranks", "2", "--tune", "t", *words), 2, "leave out")
        self.assert_sentence(run("bench", "--ranks", "2", "--tune", "t", "--collective", "barrier"), 2, "another collective")
        self.assert_sentence(run("bench", "--ranks", "2", "--nodes", "3"), 2, "--nodes 3 is too many for 2 ranks")


if __name__ == "__main__":
    main()
