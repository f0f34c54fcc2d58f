"""The transports beside tcp and shm, those in modules over the real libraries, started as users start them."""

import json
import os
import shutil
import subprocess
import unittest

import program
from program import BASELINES, ProgramTest, clean_environment, main, run, start, temporary_folder

QUICK = ("-b", "4", "-e", "256K", "-f", "512", "--samples", "2", "--iters", "3", "--no-measure")


def has(module: str) -> bool:
    return BASELINES and (program.RANVIER.parent / f"libranvier_{module}.so").exists()


def mpirun(*words: str, ranks: int = 2, **options) -> subprocess.CompletedProcess:
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return subprocess.run([*command, *words], env=clean_environment(), capture_output=True, text=True, timeout=60, **options)


@unittest.skipUnless(has("mpi") and shutil.which("mpirun"), "this build has no transport mpi, or no mpirun")
class Mpi(ProgramTest):
    def test_mpirun_starts_the_ranks_and_vendor_is_right(self):
        for collective in ("all_reduce", "scatter"):
            result = mpirun(str(program.RANVIER), "bench", "--transport", "mpi", "--algorithm", "vendor", "--collective",
                            collective, "-b", "4K", "-e", "4K", "--samples", "1", "--iters", "2")
            self.assertEqual(result.returncode, 0, collective + result.stderr)

    def test_a_row_names_the_algorithm_that_ran_where_the_library_cannot(self):
        with temporary_folder() as folder:
            for dtype, algorithm in (("f32", "vendor"), ("bf16", "auto")):
                file = folder / f"{dtype}.json"
                result = run("bench", "--ranks", "2", "--transport", "mpi", "--algorithm", "vendor", "--dtype", dtype, "-b", "4K",
                             "-e", "4K", "--samples", "1", "--iters", "2", "--no-measure", "--json", str(file))  # fmt: skip
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual("vendor cannot" in result.stdout, algorithm == "auto", result.stdout)
                row = json.loads(file.read_text())["rows"][0]
                self.assertEqual((row["algorithm"], row["wrong"]), (algorithm, 0))

    def test_a_rank_that_cannot_take_part_tells_the_others_at_once(self):
        """MPI starts when all processes start it: who declines has to start it too."""
        with temporary_folder() as folder:
            words = [str(program.RANVIER), "bench", "--transport", "mpi", *QUICK, "--join-timeout", "300", "--key"]
            key = folder / "job.key"
            key.write_text(run("key", "new").stdout)
            key.chmod(0o600)
            result = mpirun(*words, str(key), ":", "-n", "1", *words, str(folder / "none"), ranks=1)  # in 60 s
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("rank 1 cannot take part: the key file", result.stderr)

    def test_bench_calls_mpirun_itself(self):
        result = run("bench", "--ranks", "3", "--transport", "mpi", *QUICK)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("3 ranks, mpi", result.stdout)

    def test_ranks_that_mpirun_did_not_start_are_told_to_use_it(self):
        result = run("probe", "--ranks", "2", "--transport", "mpi", "--samples", "2")
        self.assertEqual(result.returncode, 1)
        self.assertIn("start them with mpirun", result.stderr)


class Choice(ProgramTest):
    def test_a_transport_without_collectives_has_no_vendor(self):
        words = ("bench", "--ranks", "2", "--transport", "tcp", "--algorithm", "vendor", *QUICK)
        self.assert_sentence(run(*words), 2, "use transport mpi")

    def test_wrong_names_get_the_nearest_right_one(self):
        self.assert_sentence(run("bench", "--ranks", "2", "--transport", "mpj"), 2, "mpi")
        self.assert_sentence(run("bench", "--ranks", "2", "--transport", "tcp+mpi"), 2, "shm+tcp")

    def test_gradients_may_be_lost_over_udp_and_the_report_says_how_many(self):
        with temporary_folder() as folder:
            file = folder / "rows.json"
            result = run("bench", "--ranks", "2", "--transport", "udp:loss=0.01", "-b", "512K", "-e", "1M", "-f", "2",
                         "--samples", "2", "--iters", "3", "--no-measure", "--json", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("lost", result.stdout)
            rows = json.loads(file.read_text())["rows"]
        self.assertEqual([row["transport"] for row in rows], ["udp:loss=0.01"] * 2)
        for row in rows:
            self.assertEqual(row["wrong"], 0)
            self.assertTrue(0 <= row["lost_share"] <= 1, row["lost_share"])
            self.assertEqual(len(row["samples_us"]), 2)

    def test_losses_that_make_no_sense_are_refused(self):
        for spec, problem in (("udp:loss=2", "at most 0.5"), ("udp:loss=0.01,resync=0", "resync"), ("udp:los=1", "not known"),
                              ("shm+udp:loss=0.01", "udp serves all ranks")):
            self.assert_sentence(run("bench", "--ranks", "2", "--transport", spec), 2, problem)
        words = ("bench", "--ranks", "2", "--transport", "udp:loss=0.01", "--link-rate", "200Mbit", *QUICK)
        self.assert_sentence(run(*words), 1, "a link that is not paced")

    def test_hosts_that_are_pretended_share_no_memory(self):
        for nodes, name in (("1", "shm"), ("2", "shm+tcp"), ("4", "tcp")):
            result = run("bench", "--ranks", "4", "--nodes", nodes, *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"4 ranks, {name},", result.stdout)

    def test_grpc_serves_between_hosts_too(self):
        result = run("bench", "--ranks", "4", "--nodes", "2", "--transport", "shm+grpc", "--algorithm", "hierarchical:2", *QUICK)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("4 ranks, shm+grpc,", result.stdout)

    def test_ranks_meet_at_an_address_of_their_link_alone(self):
        # IPv6 that means something together with the name of an interface only: "%ca0" is no escape of a URI's. Nothing is
        # encrypted, nor need be on one host.
        host = ("unshare", "--net", "sh", "-c", "ip link set lo up && ip link add ca0 type veth peer name ca1 && ip link set ca1 up"
                " && ip link set ca0 up && ip address add fe80::77/64 dev ca0 nodad && \"$@\"", "host")  # fmt: skip
        if subprocess.run([*host, "true"], capture_output=True).returncode != 0:
            self.skipTest("no network namespaces, or no IPv6, can be had here")
        for transport in ("tcp", "udp", "grpc"):
            with self.subTest(transport=transport):
                words = ("bench", "--ranks", "2", "--transport", transport, "--interface", "fe80::77%ca0", *QUICK)
                result = subprocess.run([*host, program.RANVIER, *words], env=clean_environment(), capture_output=True, text=True,
                                        timeout=100)  # fmt: skip
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(f"2 ranks, {transport},", result.stdout)

    def test_all_are_compared_in_one_table(self):
        with temporary_folder() as folder:
            file = folder / "compared.json"
            result = run("bench", "--ranks", "2", "--compare-transports", "-e", "64K", "--samples", "3", "--json", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("did not exit", result.stderr)  # each world leaves by itself while others stand
            found = json.loads(file.read_text())
        self.assert_compared(found)

    def test_ranks_of_a_launcher_are_compared_too(self):
        with temporary_folder() as folder:
            file = folder / "compared.json"
            words = ("bench", "--compare-transports", "--no-pin", "-e", "512K", "--samples", "2", "--latency-samples", "5",
                     "--json", str(file))
            place = {"RANVIER_WORLD": "2", "RANVIER_LOCAL_WORLD": "2", "RANVIER_STORE": str(folder / "store")}
            ranks = [start(*words, env=clean_environment(RANVIER_RANK=str(rank), RANVIER_LOCAL_RANK=str(rank), **place))
                     for rank in range(2)]
            said = [rank.communicate(timeout=100) for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
            self.assertIn("on one host", said[0][0])
            self.assertEqual(said[1][0], "")
            found = json.loads(file.read_text())
        self.assert_compared(found)
        self.assertRegex(found["absent"]["mpi"], "mpirun|this build has no transport mpi")  # as under sanitizers

    def test_one_that_cannot_meet_is_absent_and_says_why(self):
        with temporary_folder() as folder:
            file = folder / "compared.json"
            # Ranks that count as on two hosts share no memory, and what loses gradients is not paced.
            result = run("bench", "--ranks", "2", "--nodes", "2", "--link-rate", "1Gbit", "--compare-transports", "-e", "64K",
                         "--samples", "2", "--latency-samples", "3", "--json", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(file.read_text())
        self.assertIn("tcp", [row["transport"] for row in found["rows"]])
        self.assertIn("shm", found["absent"])
        self.assertIn("udp:loss", " ".join(found["absent"]))
        self.assertNotEqual(found["absent"]["shm"], "")

    def test_what_it_cannot_compare_is_refused(self):
        self.assert_sentence(run("bench", "--ranks", "2", "--compare-transports", "--collective", "barrier"), 2, "barrier")
        self.assert_sentence(run("bench", "--ranks", "1", "--compare-transports"), 2, "--ranks 2")

    def assert_compared(self, found: dict) -> None:
        rows = {row["transport"]: row for row in found["rows"]}
        self.assertLessEqual({"shm", "tcp", "udp", "udp:loss=0.01", "grpc"}, rows.keys())
        self.assertEqual(rows.keys() | set(found["absent"]), {"shm", "tcp", "udp", "udp:loss=0.01", "mpi", "ucx", "grpc"})
        for row in rows.values():
            self.assertEqual(row["wrong"], 0)
            self.assertLessEqual(row["latency_us"], row["latency_p99_us"])
            self.assertGreater(row["cpu_seconds_per_gb"], 0)
            self.assertTrue(0 <= row["late_share"] < 0.5, row)
        self.assertIsNone(rows["shm"]["packets_sent"])
        self.assertGreater(rows["udp"]["packets_sent"], 0)
        self.assertEqual([row["relative_error"] for name, row in rows.items() if name != "udp:loss=0.01"], [0] * (len(rows) - 1))

    def test_a_comparison_of_all_transports_takes_no_single_one(self):
        for words in (("--transport", "tcp"), ("--ranks", "2", "--transport", "tcp")):
            environment = clean_environment(RANVIER_RANK="0", RANVIER_WORLD="1", RANVIER_STORE="/nonexistent")
            self.assert_sentence(run("bench", "--compare-transports", *words, env=environment), 2, "leave out --transport")
        self.assert_sentence(run("bench", "--compare-transports", "--probe", "--ranks", "2"), 2, "--compare-transports measures")

    def test_what_cannot_be_encrypted_without_certificates_is_absent(self):
        with temporary_folder() as folder:
            file = folder / "compared.json"
            result = run("bench", "--ranks", "2", "--compare-transports", "--encrypt-everywhere", "-e", "4K", "--samples", "3",
                         "--json", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(file.read_text())
        self.assertIn("--certificate", found["absent"]["grpc"])
        self.assertLessEqual({"shm", "tcp", "udp"}, {row["transport"] for row in found["rows"]})


@unittest.skipUnless(shutil.which("openssl"), "there is no openssl")
class Certificates(ProgramTest):
    def authority(self, folder, name: str, host: str = "ranvier") -> None:
        subject = ("-subj", f"/CN={name}")
        make = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        quiet = {"check": True, "capture_output": True}
        subprocess.run([*make, "-x509", "-days", "2", *subject, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"], **quiet)
        subprocess.run([*make, "-subj", "/CN=ranvier", "-keyout", folder / f"{name}.rank.key", "-out", folder / f"{name}.csr"], **quiet)
        (folder / "extensions").write_text(f"subjectAltName=DNS:{host}")
        subprocess.run(["openssl", "x509", "-req", "-days", "2", "-in", folder / f"{name}.csr", "-CA", folder / f"{name}.pem", "-CAkey",
                        folder / f"{name}.key", "-CAcreateserial", "-extfile", folder / "extensions", "-out",
                        folder / f"{name}.rank.pem"], **quiet)

    def test_certificates_of_one_authority_meet_and_others_do_not(self):
        with temporary_folder() as folder:
            for name in ("ours", "theirs"):
                self.authority(folder, name)
            files = {"--private-key": "ours.rank.key", "--certificate": "ours.rank.pem", "--authority": "ours.pem"}
            words = [word for flag, file in files.items() for word in (flag, str(folder / file))]
            result = run("bench", "--ranks", "2", "--transport", "grpc", *words, *QUICK)
            self.assertEqual(result.returncode, 0, result.stderr)
            words[1], words[3] = str(folder / "theirs.rank.key"), str(folder / "theirs.rank.pem")
            result = run("bench", "--ranks", "2", "--transport", "grpc", *words, *QUICK)
            self.assertEqual(result.returncode, 1)
            self.assertIn("ours.pem' does not vouch for it", result.stderr)
            result = run("bench", "--ranks", "2", "--transport", "grpc", *words[:2], *QUICK)
            self.assertIn("three files", result.stderr)

    def test_a_certificate_that_does_not_name_the_host_of_grpc_is_refused_by_its_own_rank(self):
        with temporary_folder() as folder:
            self.authority(folder, "ours", "other")
            files = {"--private-key": "ours.rank.key", "--certificate": "ours.rank.pem", "--authority": "ours.pem"}
            words = [word for flag, file in files.items() for word in (flag, str(folder / file))]
            result = run("bench", "--ranks", "2", "--transport", "grpc", *words, *QUICK)
            self.assertEqual(result.returncode, 1)
            self.assertIn("it does not name the host 'ranvier'", result.stderr)
            self.assertEqual(run("bench", "--ranks", "2", "--transport", "tcp", *words, *QUICK).returncode, 0)


if __name__ == "__main__":
    main()
