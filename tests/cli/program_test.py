"""The command line as a whole: help, version, and what wrong words get."""

import itertools
import json
import os
import re
import shlex
import subprocess

import program
from program import ProgramTest, children_of, clean_environment, main, run, start, temporary_folder, wait_until


def examples_of(*command: str) -> list[list[str]]:
    """Of its help, those that no launcher starts; without what stands behind them in brackets or after "then:"."""
    text = run(*command, "--help").stdout.partition("Examples:\n")[2]
    lines = re.sub(r"\n {10,}", " ", text).splitlines()
    return [shlex.split(re.sub(r"  +(\(|then:).*", "", line))[1:] for line in lines if line.startswith("  ranvier ")]


class Help(ProgramTest):
    def test_examples_are_taken(self):
        """Where they say nothing wrong, most end before any work by a file that cannot be written or read.

        Those of train, which trains before it writes, are left out."""
        commands = re.findall(r"(?m)^  (\w+) +\w", run("--help").stdout.partition("Examples:")[0])
        examples = [each for command in commands if command != "train" for each in examples_of(command)]
        self.assertGreater(len(examples), 40)
        with temporary_folder() as folder:
            for words in examples:
                takes_no_json = "--again" in words or "--probe" in words
                with self.subTest(words=words):
                    unwritable = () if takes_no_json else ("--json", "/nonexistent/folder/x.json")
                    result = run(*words, *unwritable, cwd=folder, limit=60)
                    self.assertIn(result.returncode, (0,) if "--probe" in words else (1,), result.stderr)

    def test_every_subcommand_explains_itself_with_examples(self):
        for words in (["bench"], ["doctor"], []):
            for flag in ("--help", "-h"):
                result = run(*words, flag)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stderr, "")
                self.assertIn("Examples:", result.stdout)
                self.assertIn("ranvier bench" if words != ["doctor"] else "ranvier doctor", result.stdout)

    def test_help_of_a_subcommand_may_be_asked_for_in_front_of_it(self):
        self.assertEqual(run("help", "bench").stdout, run("bench", "--help").stdout)
        self.assert_sentence(run("help", "tain"), 2, "did you mean 'train'")

    def test_help_lists_every_subcommand(self):
        for name in ("train", "bench", "doctor"):
            self.assertRegex(run("--help").stdout, rf"(?m)^  {name} +\w")

    def test_version_names_the_build(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^ranvier \d+\.\d+\.\d+ \(\S+ [\d.]+, \w+.*\)\n$")

    def test_nothing_at_all_is_wrong_usage(self):
        result = run()
        self.assertEqual(result.returncode, 2)
        self.assertIn("Usage:", result.stdout)


class Output(ProgramTest):
    def test_devices_and_pipes_are_written_to_and_stay_what_they_are(self):
        with temporary_folder() as folder:
            pipe, link, file = folder / "pipe", folder / "link", folder / "file"
            os.mkfifo(pipe)
            file.write_text("old")
            link.symlink_to(file)
            words = ("design", "--workload", "gpt3", "--network", "RI(4)_SW(32)", "--budget", "100GB/s", "--json")
            unread = run(*words, str(pipe))
            self.assert_sentence(unread, 1, str(pipe), "--json")
            reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
            done = run(*words, str(pipe))
            while done.returncode != 0 and reader.poll() is None:  # it had not opened the pipe yet
                done = run(*words, str(pipe))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("bandwidth_gbps", json.loads(reader.communicate(timeout=60)[0]))
            self.assertTrue(pipe.is_fifo())
            self.assertEqual(run(*words, str(link)).returncode, 0)
            self.assertTrue(link.is_symlink())
            self.assertIn("bandwidth_gbps", json.loads(file.read_text()))

    def test_links_are_followed_to_what_is_not_there_yet(self):
        with temporary_folder() as folder:
            words = ("design", "--workload", "gpt3", "--network", "RI(4)_SW(32)", "--budget", "100GB/s", "--json")
            first, second, file, loop = folder / "first", folder / "second", folder / "file", folder / "loop"
            first.symlink_to(second)
            second.symlink_to("file")
            self.assertEqual(run(*words, str(first)).returncode, 0)
            self.assertTrue(first.is_symlink() and second.is_symlink())
            self.assertIn("bandwidth_gbps", json.loads(file.read_text()))
            loop.symlink_to(loop)
            self.assert_sentence(run(*words, str(loop)), 1, f"cannot write {loop}", "--json")

    def test_the_file_that_stdout_goes_to_is_written_to_and_not_replaced(self):
        with temporary_folder() as folder:
            path = folder / "out.txt"
            words = ("design", "--workload", "gpt3", "--network", "RI(4)_SW(32)", "--budget", "100GB/s", "--json")
            for name in ("/dev/stdout", str(path)):
                with path.open("w") as out:
                    out.write("before\n")
                    out.flush()
                    command = [program.RANVIER, *words, name]
                    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(os.fstat(out.fileno()).st_ino, path.stat().st_ino)
                text = path.read_text()
                self.assertTrue(text.startswith("before\n"), text)
                self.assertIn("bandwidth_gbps", text)
                self.assertEqual([each.name for each in folder.iterdir()], ["out.txt"])

    def test_no_file_overwrites_another_one_of_the_command(self):
        with temporary_folder() as folder:
            same, link = folder / "same", folder / "link"
            same.write_text("kept")
            link.symlink_to(same)
            bench = ("bench", "--ranks", "2", "-b", "4", "-e", "4")
            for words in (
                (*bench, "--tune", same, "--json", same),
                (*bench, "--tuning", same, "--json", link),
                (*bench, "--key", same, "--tune", link),
                ("probe", "--ranks", "2", "--output", same, "--json", f"{folder}/../{folder.name}/same"),
                ("plan", "--workload", "resnet50", "--world", "2", "--output", same, "--json", same),
                ("plan", "--workload", "resnet50", "--world", "2", "--output", same, "--tuning", same),
                ("simulate", "--bytes", "1M", "--world", "2", "--trace", same, "--json", same),
                ("design", "--workload", "gpt3", "--network", "SW(32)", "--budget", "1GB/s", "--pareto", same, "--json", same),
                ("design", "--traffic", same, "--network", "SW(32)", "--budget", "1GB/s", "--json", same),
                ("codec", same, "--spec", "int8", "--json", same),
                ("report", same, "--json", same),
            ):
                with self.subTest(words=words):
                    self.assert_sentence(run(*map(str, words), limit=10), 2, "would overwrite what", words[-2])
                    self.assertEqual(same.read_text(), "kept")
            new = str(folder / "new")  # nor one that neither has written yet
            result = run("simulate", "--bytes", "1M", "--world", "2", "--trace", new, "--json", new, cwd=folder, limit=10)
            self.assert_sentence(result, 2, "--json would overwrite what --trace names, too")
            result = run("simulate", "--bytes", "1M", "--world", "2", "--trace", "new", "--json", "./new", cwd=folder, limit=10)
            self.assert_sentence(result, 2, "--json would overwrite what --trace names, too")
            nothing = run("simulate", "--bytes", "1M", "--world", "2", "--trace", "/dev/null", "--json", "/dev/null")
            self.assertEqual(nothing.returncode, 0, nothing.stderr)

    def test_what_stdout_does_not_take_is_a_failure(self):
        with open("/dev/full", "w") as full:
            for words in (("--help",), ("design", "--help"), ("doctor",), ("codec", "list")):
                with self.subTest(words=words):
                    command = [program.RANVIER, *words]
                    done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn("No space left", done.stderr)


    def test_words_that_stderr_does_not_take_change_no_exit_code(self):
        with open("/dev/full", "w") as full:
            for words, code in ((("bnech",), 2), (("bench", "--rank=2"), 2), (("doctor", "--json", "/tmp"), 1)):
                for options in ({"stderr": full}, {"stderr": None, "preexec_fn": lambda: os.close(2)}):
                    with self.subTest(words=words, closed="preexec_fn" in options):
                        self.assertEqual(run(*words, limit=10, **options).returncode, code)

    def test_nothing_takes_the_number_of_a_closed_stream(self):
        words = ("bench", "--ranks", "2", "-b", "64M", "-e", "64M", "--samples", "100000")
        process = start(*words, preexec_fn=lambda: os.closerange(0, 3))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)

        def streams() -> list[str]:
            try:
                return [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
            except OSError:
                return []

        self.assertTrue(wait_until(lambda: children_of(process.pid), 10), "its sockets are open by then")
        self.assertEqual(streams(), ["/dev/null"] * 3)
        with temporary_folder() as folder:
            path = folder / "codecs.json"
            done = run("codec", "list", "--json", str(path), preexec_fn=lambda: os.close(1))
            self.assert_sentence(done, 1, "stdout did not take all of the output")
            self.assertIn("stages", json.loads(path.read_text()))

    def test_a_path_that_is_no_utf8_costs_no_result(self):
        with temporary_folder() as folder:
            file = os.path.join(os.fsencode(folder), b"rows\xff.json")
            words = (b"bench", b"--ranks", b"2", b"-b", b"4", b"-e", b"4", b"--samples", b"1", b"--iters", b"1")
            done = run(*words, b"--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(file, encoding="utf-8") as rows:
                self.assertEqual(len(json.load(rows)["rows"]), 1)
            trace = folder / "trace.json"
            workload = folder / "layers.txt"
            workload.write_bytes(b"DATA\n1\nlayer\xff -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 4096 1\n")
            done = run("simulate", "--workload", str(workload), "--world", "4", "--trace", str(trace))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("traceEvents", json.loads(trace.read_text(encoding="utf-8")))


class Variables(ProgramTest):
    def test_a_wrong_value_names_its_variable(self):
        for variable, value, *parts in (
            ("RANVIER_TRANSPORT", "tpc", "unknown transport 'tpc'"),
            ("RANVIER_LINK_RATE", "fast", "--link-rate 'fast' is not a rate"),
            ("RANVIER_LINK_RATE", "1e-300Mbit", "is not from 1kbit"),
            ("RANVIER_INSECURE", "perhaps", "perhaps"),
        ):
            with self.subTest(variable=variable):
                env = clean_environment(**{variable: value})
                self.assert_sentence(run("bench", "--ranks", "2", env=env, limit=10), 2, f"{variable}: ", *parts)
        env = clean_environment(RANVIER_TRANSPORT="tcp")
        wrong_flag = run("bench", "--ranks", "2", "--transport", "tpc", env=env, limit=10)
        self.assert_sentence(wrong_flag, 2, "ranvier bench: unknown transport 'tpc'")

    def test_garbage_in_any_is_one_sentence_that_tells_what_or_is_ignored(self):
        # Of these bench, which starts its ranks itself, reads nothing, or as a name.
        names = "DATA LOCAL_RANK LOCAL_WORLD MODULES NODE PYTHON RANK STORE WORLD"
        ignored = {f"RANVIER_{name}" for name in names.split()}
        told = {name: "" for name in "ALGORITHM DEAD_AFTER_MS LINK_RATE PORTS SOCKETS TOPOLOGY TRANSPORT".split()}
        told |= dict.fromkeys(("INSECURE", "ENCRYPT_EVERYWHERE", "MEASURE", "LEARN"), "")
        told |= dict.fromkeys(("CERTIFICATE", "PRIVATE_KEY", "AUTHORITY"), "certificates take three files")
        told |= {"INTERFACE": "is not an IPv4 or IPv6 address", "KEY": "key", "TUNING": "tuning table"}
        words = ("bench", "--ranks", "2", "-b", "4", "-e", "4", "--samples", "1", "--iters", "1")
        for name, value in itertools.product((*sorted(ignored), *told), ("-1", "a\nb", "\udcff\x01", "x" * 3000)):
            variable = name if name in ignored else f"RANVIER_{name}"
            given = () if name == "TRANSPORT" else ("--transport", "tcp")
            with self.subTest(variable=variable, value=value[:20]):
                environment = clean_environment(**{variable: value})
                result = run(*words, *given, env=environment, limit=60, errors="surrogateescape")
                if variable in ignored:
                    self.assertEqual((result.returncode, result.stderr), (0, ""))
                else:
                    self.assert_sentence(result, 1 if told[name] else 2, told[name] or f"{variable}: ")

    def test_a_misspelt_name_gets_a_warning_and_others_variables_do_not(self):
        words = ("bench", "--ranks", "2", "-b", "4", "-e", "4", "--samples", "1", "--iters", "1")
        others = {"RANVIER_CHECKOUT": "1", "RANVIER_HOME": "1", "RANVIER_NODE": "1", "RANVIER_DEAD_AFTER_MS": "9000"}
        others["RANVIER_PORT"] = "tcp://10.0.0.1:80"  # as Kubernetes does for a service called ranvier
        result = run(*words, env=clean_environment(RANVIER_TRANPORT="tcp", RANVIER_LNIK_RATE="1", **others))
        self.assertEqual(result.returncode, 0, result.stderr)
        warnings = {
            "ranvier bench: RANVIER_TRANPORT is no setting of ranvier; did you mean RANVIER_TRANSPORT?",
            "ranvier bench: RANVIER_LNIK_RATE is no setting of ranvier; did you mean RANVIER_LINK_RATE?",
        }
        self.assertEqual(sorted(result.stderr.splitlines()), sorted(warnings))

    def test_variables_of_another_command_are_no_misspelt_ones(self):
        for command in ("bench", "train"):
            help = run(command, "--help")
            if "without torch" in help.stderr:
                continue
            names = set(re.findall(r"\bRANVIER_[A-Z_]*[A-Z]\b", help.stdout))
            self.assertIn("RANVIER_TRANSPORT", names)
            result = run("codec", "list", env=clean_environment(**dict.fromkeys(names, "1")))
            self.assertEqual((result.returncode, result.stderr), (0, ""))


class WrongWords(ProgramTest):
    def test_each_gets_exit_code_2_and_one_sentence_with_the_remedy(self):
        bench = ["bench", "--ranks", "2"]
        for words, *parts in (
            (["bnech"], "unknown subcommand 'bnech'", "did you mean 'bench'", "One of: train, bench, probe, plan, simulate, design, report, key, codec, doctor"),
            (["--versoin"], "did you mean '--version'"),
            (["bench", "--colective", "all_reduce"], "unknown option '--colective'", "did you mean '--collective'"),
            (["bench", "--rank=2"], "unknown option '--rank'", "did you mean '--ranks'"),
            (["doctor", "--jsn"], "unknown option '--jsn'", "did you mean '--json'"),
            (["bench", "all_reduce"], "'all_reduce' is one word too many", "ranvier bench --help"),
            ([*bench, "--collective", "allreduce"], "unknown collective 'allreduce'", "did you mean 'all_reduce'"),
            ([*bench, "--dtype", "f23"], "unknown dtype 'f23'", "did you mean 'f32'"),
            ([*bench, "--op", "summ"], "unknown op 'summ'", "did you mean 'sum'"),
            ([*bench, "--transport", "tpc"], "unknown transport 'tpc'", "did you mean 'tcp'"),
            ([*bench, "--algorithm", "rign"], "unknown algorithm 'rign'", "did you mean 'ring'"),
            ([*bench, "--algorithm", "one_round", "--collective", "broadcast"], "one_round", "broadcast"),
            ([*bench, "--baseline", "open-mpi"], "unknown baseline 'open-mpi'", "mpi"),
            ([*bench, "-b", "4Q"], "--minbytes '4Q' is not a size", "64K"),
            ([*bench, "-b", "0"], "--minbytes '0' is not a size"),
            ([*bench, "-e", "-5"], "--maxbytes '-5' is not a size"),
            ([*bench, "-b", "1M", "-e", "1K"], "--minbytes 1048576 is more than --maxbytes 1024"),
            ([*bench, "-f", "1"], "--stepfactor '1'", "above 1"),
            ([*bench, "-f", "nan"], "--stepfactor 'nan'"),
            ([*bench, "-n", "0"], "--iters '0' is not a whole number from 1"),
            ([*bench, "-n", "3.5"], "--iters '3.5'"),
            ([*bench, "--samples", "many"], "--samples 'many'"),
            ([*bench, "--timeout", "soon"], "--timeout 'soon' is not a number of seconds"),
            ([*bench, "--timeout"], "--timeout needs a value; write --timeout SECONDS (see ranvier bench --help)"),
            ([*bench, "-b"], "--minbytes needs a value; write --minbytes SIZE"),
            ([*bench, "-d", "f23"], "unknown dtype 'f23'", "did you mean 'f32'"),
            ([*bench, "-o", "summ"], "unknown op 'summ'", "did you mean 'sum'"),
            ([*bench, "--dtype", "fp8"], "unknown dtype 'fp8'. One of: "),
            ([*bench, "--baseline", "nccl"], "unknown baseline 'nccl'. One of: "),
            ([*bench, "--latency-samples", "5"], "--latency-samples is of --compare-transports; give that, too"),
            ([*bench, "--sockets", "0"], "--sockets '0' is not a whole number from 1 to 16"),
            ([*bench, "--sockets", "17"], "--sockets '17' is not a whole number from 1 to 16"),
            ([*bench, "--link-rate", "fast"], "--link-rate 'fast'", "200Mbit"),
            ([*bench, "--link-rate", "1Gbit", "--baseline", "mpi"], "no fair comparison"),
            ([*bench, "--in-place", "--out-of-place"], "--out-of-place"),
            ([*bench, "--in-place", "--collective", "sendrecv"], "sendrecv", "--in-place"),
            ([*bench, "--in-place", "--collective", "all_to_all"], "all_to_all", "--in-place"),
            ([*bench, "--op", "and"], "--op and has no meaning on --dtype f32"),
            ([*bench, "--op", "average", "--dtype", "bool"], "--op average has no meaning on --dtype bool"),
            (["bench", "--ranks", "0"], "--ranks '0'", "from 1"),
            (["bench", "--ranks", "two"], "--ranks 'two'"),
            (["bench", "--ranks", "1", "--collective", "sendrecv"], "--ranks 2 or more"),
            (["bench"], "--ranks 2", "mpirun"),
            (["bench", "--baseline", "mpi"], "--ranks N"),
        ):
            with self.subTest(words=words):
                result = run(*words, limit=10)
                self.assert_sentence(result, 2, *parts)
                self.assertEqual(result.stdout, "")

    def test_ports_are_one_for_each_rank(self):
        few = run("bench", "--ranks", "3", "--ports", "20000-20001", limit=10)
        self.assert_sentence(few, 2, "--ports 20000-20001 are 2 for 3 ranks", "one for each")

    def test_a_json_file_that_cannot_be_written_is_found_before_the_work(self):
        for words in (["bench", "--ranks", "2"], ["doctor"]):
            for path in ("/nonexistent/folder/x.json", "/tmp"):
                result = run(*words, "--json", path, limit=10)
                self.assert_sentence(result, 1, f"cannot write {path}", "--json")


if __name__ == "__main__":
    main()
