"""Wrong words, settings, environments and data: one sentence that names the thing and the remedy, and the right exit code."""

import contextlib
import gzip
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import threading
import time

from program import main, run
from training import TrainingTest, idx, write_data

IMAGES = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"


class Words(TrainingTest):
    def test_an_unknown_option_gets_the_nearest_right_one(self):
        self.assert_sentence(self.train("--worker", "2"), 2, "--worker", "did you mean '--workers'?")
        self.assert_sentence(self.train("extra"), 2, "'extra'")

    def test_an_option_without_its_value_says_what_to_write(self):
        result = run("train", "--workers", env=self.environment())
        self.assert_sentence(result, 2, "--workers needs a value; write --workers N (see ranvier train --help)")

    def test_an_unknown_value_gets_the_nearest_right_one(self):
        for option, value, near in (
            ("--model", "cn", "cnn"),
            ("--transport", "tpc", "tcp"),
            ("--algorithm", "rinq", "ring"),
            ("--compress", "bf61", "bf16"),
        ):
            with self.subTest(option=option):
                self.assert_sentence(self.train("--workers", "2", option, value), 2, f"'{value}'", f"did you mean '{near}'?")

    def test_impossible_numbers_are_refused(self):
        for option, value in (
            ("--workers", "0"),
            ("--batch", "-1"),
            ("--epochs", "many"),
            ("--epochs", "0"),
            ("--lr", "0"),
            ("--lr", "nan"),
            ("--lr-batch", "0.5"),
            ("--target-accuracy", "88"),
            ("--timeout", "0"),
            ("--link-rate", "fast"),
            ("--bucket", "12X"),
        ):
            with self.subTest(option=option, value=value):
                self.assert_sentence(self.train(option, value), 2, option, f"'{value}'")

    def test_settings_come_from_flags_then_variables_then_a_file(self):
        file = self.folder / "settings.toml"
        file.write_text('batch = 4\nlr = 0.5\nmodel = "mlp"\nlink-rate = "100Gbit"\nsteps = 2\n')
        result = self.folder / "result.json"
        words = ["train", "--data", str(self.data), "--workers", "2", "--config", str(file), "--json", str(result)]
        done = run(*words, "--lr", "0.25", env=self.environment(RANVIER_BATCH="8", RANVIER_LR="0.125"))
        self.assertEqual(done.returncode, 0, done.stderr)
        settings = json.loads(result.read_text())["settings"]
        self.assertEqual(settings["lr"], 0.25)
        self.assertEqual(settings["batch"], 8)
        self.assertEqual(settings["model"], "mlp")
        self.assertEqual(settings["link_bytes_per_second"], 12.5e9)

    def test_openmp_says_how_many_threads_where_no_flag_does(self):
        cores = len(os.sched_getaffinity(0))
        words = ("--steps", "1", "--model", "mlp")
        for more, variables, threads in (
            (("--workers", "2"), {}, max(1, cores // 2)),
            ((), {"OMP_NUM_THREADS": "1"}, 1),
            (("--threads", "4"), {"OMP_NUM_THREADS": "1"}, 4),
            (("--workers", "2"), {"RANVIER_THREADS": "2"}, 2),
        ):
            with self.subTest(words=more, variables=variables):
                run = self.results(*words, *more, variables=variables)
                self.assertEqual(run["settings"]["threads"], threads)

    def test_a_file_with_an_unknown_key_is_refused(self):
        file = self.folder / "settings.toml"
        file.write_text("bacth = 4\n")
        self.assert_sentence(self.train("--config", str(file)), 2, str(file), "'bacth'", "did you mean 'batch'?")
        file.write_text('model = "cn"\n')
        self.assert_sentence(self.train("--config", str(file)), 2, f"{file}: ", "did you mean 'cnn'?")
        self.assert_sentence(self.train("--config", str(self.folder / "none")), 1, str(self.folder / "none"))
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.assert_sentence(self.train("--config", str(pipe)), 1, str(pipe), "regular file")

    def test_what_is_neither_yes_nor_no_is_refused(self):
        file = self.folder / "settings.toml"
        for name, word, written in (("measure", "maybe", '"maybe"'), ("measure", "", '""'), ("survive", "3", "3")):
            file.write_text(f"{name} = {written}\n")
            for given, named in (((f"--{name}={word}",), f"--{name}"), (("--config", str(file)), f"{file}: {name}")):
                if word or given[0] == "--config":  # --measure= is --measure
                    self.assert_sentence(self.train(*given), 2, f"{named}: it is '{word}'; write 1 for yes, 0 for no")

    def test_a_variable_with_a_wrong_value_is_refused(self):
        result = self.train(variables={"RANVIER_TRANSPORT": "tpc"})
        self.assert_sentence(result, 2, "RANVIER_TRANSPORT: ", "'tpc'", "did you mean 'tcp'?")
        self.assert_sentence(self.train(variables={"RANVIER_SEED": "x"}), 2, "RANVIER_SEED: --seed 'x'")

    def test_a_misspelt_variable_gets_one_warning_of_all_workers(self):
        result = self.train("--workers", "2", "--steps", "1", "--model", "mlp", variables={"RANVIER_BACTH": "8"})
        self.assertEqual(result.returncode, 0, result.stderr)
        sentence = "ranvier train: RANVIER_BACTH is no setting of ranvier; did you mean RANVIER_BATCH?"
        self.assertEqual(result.stderr.splitlines().count(sentence), 1, result.stderr)

    def test_no_file_overwrites_another_one_of_the_run(self):
        same, folder = self.folder / "same", self.folder / "recorded"
        same.write_text("")
        for words in (
            ("--resume", same, "--save", same, "--json", same),
            ("--config", same, "--json", same),
            ("--data", same, "--save", same),
            ("--save", self.folder, "--json", self.folder / "checkpoint.ranvier"),
            ("--record", folder, "--json", folder / "workload.toml"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(self.train("--steps", "1", *map(str, words)), 2, "would overwrite what", words[-2])
                self.assertEqual(same.read_text(), "")
        save = str(self.folder / "kept")
        for words in (("--save", save), ("--save", save, "--resume", save, "--json", str(same))):
            result = self.train("--steps", "1", "--model", "mlp", *words)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_ports_are_one_for_each_worker(self):
        self.assert_sentence(self.train("--workers", "3", "--ports", "20000-20001"), 2, "--ports 20000-20001", "one for each")

    def test_a_limit_on_the_size_of_files_becomes_a_sentence(self):
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200 << 10, 200 << 10))

        for workers in ("1", "2"):
            words = ("--workers", workers, "--transport", "tcp", "--steps", "1", "--model", "mlp")
            result = self.train(*words, "--save", str(self.folder / "large"), preexec_fn=limit)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("File too large", result.stderr)

    def test_a_checkpoint_that_finds_no_room_costs_neither_training_nor_its_result(self):
        # 640 samples, 2 workers x 16: 20 steps an epoch.
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200 << 10, 200 << 10))

        words = ("--workers", "2", "--transport", "tcp", "--epochs", "3", "--steps", "45", "--model", "mlp", "--json", "-")
        result = self.train(*words, "--save", str(self.folder / "large"), preexec_fn=limit)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(json.loads(result.stdout)["steps"], 45)
        warned = [line for line in result.stderr.splitlines() if "training goes on" in line]
        self.assertEqual(len(warned), 2, result.stderr)
        self.assertIn("File too large", warned[0])
        self.assertIn("cannot write the checkpoint", result.stderr.splitlines()[-1])

    def test_a_run_goes_on_where_stderr_takes_nothing(self):
        with open("/dev/full", "w") as full:
            for workers in ("1", "2"):
                for options in ({"stderr": full}, {"stderr": None, "preexec_fn": lambda: os.close(2)}):
                    with self.subTest(workers=workers, closed="preexec_fn" in options):
                        file = self.folder / "result.json"
                        words = ("--workers", workers, "--steps", "1", "--model", "mlp", "--json", str(file))
                        self.assertEqual(self.train(*words, **options).returncode, 0)
                        self.assertEqual(json.loads(file.read_text())["steps"], 1)
                        file.unlink()

    def test_a_path_that_is_no_utf8_costs_no_result(self):
        data = str(self.folder / os.fsdecode(b"data\xff"))
        shutil.copytree(self.data, data)
        file = self.folder / "result.json"
        for words in ((), ("--json", str(file))):
            done = run("train", "--data", data, "--steps", "1", "--model", "mlp", *words, env=self.environment())
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(file.read_text(encoding="utf-8"))["steps"], 1)

    def test_a_large_file_that_is_no_checkpoint_is_refused_unread(self):
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

        large = self.folder / "large"
        for beginning, *parts in ((b"", "it is not a checkpoint"), (b"ranvier checkpoint 4\n", "not enough memory")):
            large.write_bytes(beginning)
            os.truncate(large, 8 << 30)
            with self.subTest(beginning=beginning):
                self.assert_sentence(self.train("--resume", str(large), preexec_fn=limit, limit=30), 1, *parts)

    def test_workers_that_nobody_asked_for_by_a_flag_are_named_as_they_were(self):
        place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        sentence = "--workers starts processes, and torchrun has started this one already as rank 0 of 1; leave it out"
        file = self.folder / "settings.toml"
        file.write_text("workers = 2\n")
        for words, variables, named in (
            (("--workers", "2"), {}, ""),
            ((), {"RANVIER_WORKERS": "2"}, "RANVIER_WORKERS: "),
            (("--config", str(file)), {}, f"{file}: "),
        ):
            with self.subTest(named=named):
                self.assert_sentence(self.train(*words, variables=place | variables), 2, f"train, rank 0: {named}{sentence}")

    def test_what_all_workers_would_find_is_said_once_before_they_start(self):
        missing = str(self.folder / "missing")
        for words, code, *parts in (
            (("--algorithm", "torus:2x2"), 2, "torus", "2x2"),
            (("--algorithm", "vendor"), 2, "no collectives of its own", "another algorithm"),
            (("--topology", "torus:2x4"), 2, "torus:2x4"),
            (("--topology", "tours:2x2"), 2, "did you mean 'torus'?"),
            (("--tuning", missing), 1, missing, "ranvier bench --tune"),
            (("--key", missing), 1, missing, "ranvier key new"),
            (("--certificate", missing), 1, "certificates take three files"),
            (("--key", ""), 2, "--key", "names no file"),
            (("--certificate", "", "--private-key", "", "--authority", ""), 2, "names no file"),
            (("--interface", "203.0.113.1"), 1, "203.0.113.1"),
            (("--interface", "eth99"), 1, "'eth99' is not an IPv4 or IPv6 address, nor an interface that has one"),
            (("--transport", "mpi"), 2, "mpirun -n 3 ranvier train", "--workers"),
            (("--transport", "udp:loss=0.01", "--link-rate", "10Mbit"), 2, "udp:loss=0.01", "--link-rate"),
        ):
            with self.subTest(words=words):
                self.assert_sentence(self.train("--workers", "3", *words), code, "ranvier train: ", *parts)
                self.assert_nothing_left()

    def test_a_half_set_environment_names_what_is_missing(self):
        self.assert_sentence(self.train(variables={"RANVIER_RANK": "0"}), 1, "RANVIER_WORLD")
        self.assert_sentence(self.train(variables={"RANK": "0", "WORLD_SIZE": "2"}), 1, "MASTER_ADDR")

    def test_what_cannot_be_written_is_found_before_training(self):
        nowhere = self.folder / "missing" / "file"
        self.assert_sentence(self.train("--workers", "2", "--json", str(nowhere)), 1, str(nowhere))
        self.assert_sentence(self.train("--workers", "2", "--save", str(nowhere)), 1, str(nowhere))
        self.assert_sentence(self.train("--workers", "2", "--save", "/proc/none"), 1, "/proc/none", "--save")
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.assert_sentence(self.train("--workers", "2", "--resume", str(pipe)), 1, str(pipe), "regular file")

    def test_a_failing_run_leaves_no_folder_of_its_recording(self):
        folder = self.folder / "new" / "recorded"
        for words in (("--data", str(self.folder / "nowhere")), ("--batch", "1000000"), ("--model", "lstm")):
            for workers in ("1", "2"):
                with self.subTest(words=words, workers=workers):
                    self.assert_sentence(self.train("--workers", workers, "--record", str(folder), *words), 2 if "lstm" in words else 1)
                    self.assertEqual(os.listdir(self.folder), ["tmp"])
        done = self.train("--workers", "2", "--steps", "8", "--model", "mlp", "--record", str(folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(folder), ["workload.toml"])
        self.assert_nothing_left()

    def test_a_batch_that_is_more_than_the_data_is_refused_once_for_all_workers(self):
        for words in (("--batch", "1000000"), ("--batch", "1000", "--accumulate", "1000"), ("--parallel", "tensor:2", "--batch", "321")):
            with self.subTest(words=words):
                self.assert_sentence(self.train("--workers", "4", *words), 1, "640 training samples", "--batch", "lower it")

    def test_the_last_of_two_words_for_one_option_counts(self):
        result = self.train("--steps", "1", "--model", "mlp", "--seed", "1", "--seed", "2", "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["settings"]["seed"], 2)


class Master(TrainingTest):
    """One rank of 2, whose MASTER_ADDR and MASTER_PORT are not those of a rank 0."""

    def join(self, port: int, host: str = "127.0.0.1", rank: int = 1) -> subprocess.CompletedProcess:
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        place |= {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
        return self.train("--join-timeout", "2", variables=place, limit=60)

    def test_one_that_is_not_there(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.assert_sentence(self.join(port), 1, f"127.0.0.1:{port}", "MASTER_PORT", "refused")
        self.assert_sentence(self.join(port, "nowhere.invalid"), 1, f"nowhere.invalid:{port}", "MASTER_ADDR")

    def test_one_that_accepts_and_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            result = self.join(port)
        self.assert_sentence(result, 1, f"torch's store at 127.0.0.1:{port} does not answer", "MASTER_PORT")

    def test_one_that_speaks_another_protocol(self):
        # The second answers when the time is over: then it is torch's exception that ends the wait, not the deadline.
        for seconds in (0, 2.05):
            with self.subTest(seconds=seconds):
                self.join_a_web_server(seconds)

    def join_a_web_server(self, seconds: float):
        def answer():
            with contextlib.suppress(OSError):  # closed below
                while True:
                    connection, _ = web.accept()
                    with connection:
                        if not connection.recv(64):  # it looked whether anybody is there
                            continue
                        time.sleep(seconds)
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        with socket.create_server(("127.0.0.1", 0)) as web:
            port = web.getsockname()[1]
            threading.Thread(target=answer, daemon=True).start()
            result = self.join(port)
            web.shutdown(socket.SHUT_RDWR)
        self.assert_sentence(result, 1, f"127.0.0.1:{port}", "does not answer as torch's store does", "MASTER_PORT")

    def test_a_port_that_is_taken_where_rank_0_is_to_serve(self):
        with socket.create_server(("", 0)) as taken:
            port = taken.getsockname()[1]
            result = self.join(port, rank=0)
        self.assert_sentence(result, 1, f"127.0.0.1:{port}", "port taken", "MASTER_PORT")

    def test_a_batch_that_is_more_than_the_data_is_refused(self):
        result = self.train("--batch", "1000")
        self.assert_sentence(result, 1, "640 training samples", "--batch")


class Data(TrainingTest):
    def setUp(self):
        super().setUp()
        self.copy = self.folder / "data"
        write_data(self.copy, train=64, test=20, compressed=False)

    def refused(self, file: pathlib.Path | str, *parts: str):
        result = self.train("--workers", "4", "--steps", "1", "--data", str(self.copy))
        self.assert_sentence(result, 1, str(file), *parts)
        self.assert_nothing_left()

    def replace(self, name: str, content: bytes) -> pathlib.Path:
        (self.copy / name).write_bytes(content)
        return self.copy / name

    def test_plain_files_are_read_too(self):
        result = self.train("--workers", "2", "--steps", "1", "--data", str(self.copy))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_pipe(self):
        (self.copy / IMAGES).unlink()
        os.mkfifo(self.copy / IMAGES)
        self.refused(self.copy / IMAGES, "regular file")

    def test_a_missing_folder(self):
        self.copy = self.folder / "nowhere"
        self.refused(self.copy, "no folder")
        self.copy = ""
        self.refused("''", "no folder")

    def test_a_missing_file(self):
        (self.copy / LABELS).unlink()
        self.refused(self.copy / LABELS, "missing")

    def test_a_truncated_file(self):
        content = (self.copy / IMAGES).read_bytes()
        for size in (0, 3, 10, 17, len(content) - 1):
            with self.subTest(size=size):
                self.refused(self.replace(IMAGES, content[:size]))

    def test_a_truncated_or_corrupt_gzip_file(self):
        content = gzip.compress((self.copy / IMAGES).read_bytes())
        (self.copy / IMAGES).unlink()
        file = self.copy / f"{IMAGES}.gz"
        for name, damaged in (
            ("truncated", content[:-1000]),
            ("without checksum", content[:-4]),
            ("corrupt", content[:1000] + bytes(16) + content[1016:]),
        ):
            with self.subTest(name):
                file.write_bytes(damaged)
                self.refused(file)

    def test_bytes_behind_the_end(self):
        self.refused(self.replace(LABELS, (self.copy / LABELS).read_bytes() + b"\0"), "behind")

    def test_another_format(self):
        self.refused(self.replace(IMAGES, b"\x89PNG" + bytes(1000)), "not an IDX file")
        self.refused(self.replace(IMAGES, b"\0\0\x0d\x03" + bytes(1000)), "unsigned bytes")
        self.refused(self.replace(IMAGES, (self.copy / LABELS).read_bytes()), "dimensions")

    def test_sizes_that_cannot_be(self):
        self.refused(self.replace(IMAGES, idx(b"", 2**32 - 1, 2**32 - 1, 2**32 - 1)), "4 GiB")
        self.refused(self.replace(IMAGES, idx(b"", 0, 28, 28)), "0")
        self.refused(self.replace(IMAGES, idx(bytes(64), 64, 1, 1)), "1 x 1")

    def test_files_that_do_not_belong_together(self):
        self.refused(self.replace(LABELS, idx(bytes(63), 63)), "63 labels")
        self.replace(LABELS, idx(bytes(i % 10 for i in range(64)), 64))
        self.refused(self.replace("t10k-images-idx3-ubyte", idx(bytes(20 * 20 * 20), 20, 20, 20)), "20 x 20")

    def test_a_label_out_of_range(self):
        labels = bytearray(i % 10 for i in range(64))
        labels[33] = 200
        self.refused(self.replace(LABELS, idx(bytes(labels), 64)), "label 200 at item 33")
        shutil.copy(self.data / f"{LABELS}.gz", self.copy)
        self.replace(LABELS, idx(bytes(i % 10 for i in range(64)), 64))
        self.refused(self.replace("t10k-labels-idx1-ubyte", idx(bytes([10] * 20), 20)), "label 10 at item 0")


if __name__ == "__main__":
    main()
