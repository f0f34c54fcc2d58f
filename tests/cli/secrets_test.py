"""A job's key, and what else its ranks leave in the store for one another, is found nowhere else: not in arguments, variables and
names of processes, which all users of a host may read, nor in what programs say, whatever happens."""

import contextlib
import pathlib
import re
import signal
import subprocess

from program import ProgramTest, children_of, clean_environment, main, run, start, temporary_folder, wait_until


def descendants_of(process: int) -> list[int]:
    children = children_of(process)
    return children + [each for child in children for each in descendants_of(child)]


def shown_of(process: int) -> bytes:
    """What others may read of a process, and what a core dump would be called by: its names, and those of its threads."""
    place = pathlib.Path(f"/proc/{process}")
    found = b""
    with contextlib.suppress(OSError):  # it, or a thread of it, has just ended
        for name in ("cmdline", "environ", "comm", *(f"task/{each.name}/comm" for each in (place / "task").iterdir())):
            found += (place / name).read_bytes() + b"\n"
    return found


class Secrets(ProgramTest):
    def key(self, folder: pathlib.Path) -> tuple[pathlib.Path, str]:
        file = folder / "job.key"
        file.write_text(run("key", "new").stdout)
        file.chmod(0o600)
        return file, file.read_text().split()[1]

    def test_a_file_that_is_no_key_keeps_its_permissions(self):
        with temporary_folder() as folder:
            other = folder / "passwd"
            other.write_text("root:x:0:0:root:/root:/bin/bash\n")
            other.chmod(0o644)
            self.assert_sentence(run("bench", "--ranks", "2", "--key", str(other)), 1, "holds no key of ranvier; make one")
            file, _ = self.key(folder)
            file.chmod(0o644)
            self.assert_sentence(run("bench", "--ranks", "2", "--key", str(file)), 1, f"run: chmod 600 {file}")

    def test_a_running_job_and_one_that_fails_show_none(self):
        for transport in ("tcp", "udp", "shm"):
            with self.subTest(transport=transport), temporary_folder() as folder:
                file, digits = self.key(folder)
                store = folder / "store"
                place = {"RANVIER_WORLD": "2", "RANVIER_LOCAL_WORLD": "2", "RANVIER_STORE": str(store), "RANVIER_KEY": str(file)}
                words = ("bench", "--transport", transport, "--samples", "100000", "--dead-after-ms", "1000")
                words += () if transport == "shm" else ("--encrypt-everywhere",)
                ranks = [start(*words, env=clean_environment(RANVIER_RANK=str(rank), RANVIER_LOCAL_RANK=str(rank), **place))
                         for rank in range(2)]  # fmt: skip
                for rank in ranks:
                    self.addCleanup(rank.communicate)
                    self.addCleanup(rank.kill)
                said = ""
                while "algbw" not in said:
                    line = ranks[0].stdout.readline()
                    self.assertTrue(line, ranks[0].stderr.read() if ranks[0].poll() is not None else said)
                    said += line
                tokens = set()
                for card in store.glob("rank*"):
                    self.assertEqual(card.stat().st_mode & 0o077, 0)
                    tokens |= set(re.findall(r"token=([0-9a-f]+)", card.read_text()))
                    tokens |= set(re.findall(r"key=([0-9a-f]+)", card.read_text()))
                    tokens |= set(re.findall(r"shm\d+:[^:]*:\d+:\d+:(\d+:\d+)", card.read_text()))
                self.assertGreaterEqual(len(tokens), 2)
                secrets = [digits, *tokens]
                self.assertNotIn(digits, "".join(card.read_text() for card in store.iterdir()))
                shown = b"".join(shown_of(rank.pid) for rank in ranks)
                self.assertIn(b"bench", shown)
                ranks[1].send_signal(signal.SIGKILL)
                out, err = ranks[0].communicate(timeout=60)
                self.assertIn("rank 1", err)
                shown += (said + out + err).encode()
                for secret in secrets:
                    self.assertNotIn(secret.encode(), shown)

    def test_those_that_a_program_starts_find_the_files_name(self):
        with temporary_folder() as folder:
            file, digits = self.key(folder)
            words = ("--ranks", "2", "--transport", "tcp", "--encrypt-everywhere", "--samples", "100000", "--key", str(file))
            process = start("bench", *words)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            self.assertTrue(wait_until(lambda: sum(b"bench" in shown_of(each) for each in descendants_of(process.pid)) >= 2, 30))
            while "algbw" not in (line := process.stdout.readline()):
                self.assertTrue(line)
            shown = b"".join(shown_of(each) for each in [process.pid, *descendants_of(process.pid)])
            self.assertIn(str(file).encode(), shown)
            self.assertNotIn(digits.encode(), shown)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)

    def test_a_key_in_the_place_of_its_file_is_refused_and_not_shown(self):
        text = run("key", "new").stdout.strip()
        head, digits = text.split()
        for words, variables in (
            (("--key", text), {}),
            (("--key", digits), {}),
            (("--key", head, digits), {}),  # --key $(cat job.key)
            ((), {"RANVIER_KEY": text}),
        ):
            with self.subTest(words=len(words), variables=len(variables)), temporary_folder() as store:
                place = {"RANVIER_WORLD": "2", "RANVIER_STORE": str(store)}
                ranks = [start("bench", *(words if rank else ()),
                               env=clean_environment(RANVIER_RANK=str(rank), **place, **(variables if rank else {})))
                         for rank in range(2)]  # fmt: skip
                for rank in ranks:
                    out, err = rank.communicate(timeout=60)
                    result = subprocess.CompletedProcess(rank.args, rank.returncode, out, err)
                    self.assert_sentence(result, rank.returncode, "is a key: others of this host may have read it there")
                    self.assertNotEqual(rank.returncode, 0)
                    self.assertNotIn(digits, out + err)


if __name__ == "__main__":
    main()
