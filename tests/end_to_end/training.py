"""What the tests of training share: a small data set, runs of the real program, and what a run may leave behind (nothing)."""

import contextlib
import gzip
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import tempfile
import threading
import time
import zlib

from program import ProgramTest, children_of, clean_environment, run, start

SIDE = 28
CLASSES = 10


def idx(values: bytes, *sizes: int) -> bytes:
    return struct.pack(">BBBB", 0, 0, 8, len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes) + values


def write_data(folder: pathlib.Path, train: int = 640, test: int = 200, compressed: bool = True) -> pathlib.Path:
    """Images that a network learns within a few steps: each class has its own bright rows, under noise."""
    folder.mkdir(exist_ok=True)
    random.seed(1)
    for prefix, count in (("train", train), ("t10k", test)):
        labels = bytes(i % CLASSES for i in range(count))
        pixels = bytearray(random.randbytes(count * SIDE * SIDE))
        for i, label in enumerate(labels):
            first = i * SIDE * SIDE + (4 + 2 * label) * SIDE
            pixels[first : first + 2 * SIDE] = b"\xff" * (2 * SIDE)
        for name, content in (
            ("images-idx3-ubyte", idx(bytes(pixels), count, SIDE, SIDE)),
            ("labels-idx1-ubyte", idx(labels, count)),
        ):
            if compressed:
                (folder / f"{prefix}-{name}.gz").write_bytes(gzip.compress(content, 1))
            else:
                (folder / f"{prefix}-{name}").write_bytes(content)
    return folder


def shared_memory() -> set[str]:
    """Names in /dev/shm that ranvier may have left there."""
    return {name for name in os.listdir("/dev/shm") if "ranvier" in name}


def keep_parts_of_states(checkpoint: pathlib.Path, count: int) -> None:
    """Leaves of what each rank has of its own only the first parts, each of which stands behind its length."""
    first, header, content = checkpoint.read_bytes()[:-4].split(b"\n", 2)
    described = json.loads(header)
    end = 4 * (described["parameters"] + described["momentum"])
    values, states = content[:end], content[end:]
    kept = []
    for size in described["rank_state"]:
        state, states = states[:size], states[size:]
        at = 0
        for _ in range(count):
            at += 8 + struct.unpack_from("<Q", state, at)[0]
        kept.append(state[:at])
    described["rank_state"] = [len(state) for state in kept]
    whole = b"\n".join((first, json.dumps(described).encode(), values + b"".join(kept)))
    checkpoint.write_bytes(whole + struct.pack("<I", zlib.crc32(whole)))


class TrainingTest(ProgramTest):
    """Each test has a folder of its own, which is also where programs keep their temporary files."""

    @classmethod
    def setUpClass(cls):
        cls._shared = tempfile.TemporaryDirectory()
        cls.data = write_data(pathlib.Path(cls._shared.name) / "data")

    @classmethod
    def tearDownClass(cls):
        cls._shared.cleanup()

    def setUp(self):
        own = tempfile.TemporaryDirectory()
        self.addCleanup(own.cleanup)
        self.folder = pathlib.Path(own.name)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.shm_before = shared_memory()

    def environment(self, **added: str) -> dict[str, str]:
        return clean_environment(TMPDIR=str(self.temporary), **added)

    def words(self, *words: str) -> list[str]:
        """A quick training, but for what the test says itself."""
        quick = {"--data": str(self.data), "--batch": "16", "--lr": "0.05"}
        return ["train", *words, *(word for name in quick if name not in words for word in (name, quick[name]))]

    def train(self, *words: str, variables: dict[str, str] | None = None, **options) -> subprocess.CompletedProcess:
        return run(*self.words(*words), env=self.environment(**(variables or {})), **options)

    def start_training(self, *words: str, variables: dict[str, str] | None = None) -> subprocess.Popen:
        return start(*self.words(*words), env=self.environment(**(variables or {})))

    def read_until(self, word: str, process: subprocess.Popen) -> list[str]:
        """The lines of stderr up to one with this word; a process that does not say it is ended."""
        lines: list[str] = []
        limit = threading.Timer(60, process.kill)
        limit.start()
        try:
            self.assertTrue(any(lines.append(line) or word in line for line in process.stderr), lines)
        finally:
            limit.cancel()
        return lines

    def begin_to_train(self, process: subprocess.Popen) -> None:
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.read_until("step ", process)

    def start_some(self, workers: int, *words: str) -> tuple[subprocess.Popen, int, dict[int, int]]:
        """A run that has started some of its workers, who wait for the others; the process that starts them, which is stopped;
        and those that are there, by rank."""
        for _ in range(20):  # it takes a millisecond for each
            process = self.start_training("--workers", str(workers), *words)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            limit = time.monotonic() + 60
            while not workers_of(process.pid):
                self.assertLess(time.monotonic(), limit)
            (keeper,) = children_of(process.pid)
            os.kill(keeper, signal.SIGSTOP)
            time.sleep(0.1)  # until it has
            if len(found := workers_of(process.pid)) < workers:
                return process, keeper, found
            os.kill(keeper, signal.SIGCONT)
            process.kill()
            process.communicate()
        self.fail("all workers were there each time")

    def results(self, *words: str, **options) -> dict:
        """Trains to the end; returns what --json wrote."""
        file = self.folder / f"result-{len(list(self.folder.iterdir()))}.json"
        result = self.train("--json", str(file), *words, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(file.read_text())

    def assert_nothing_left(self) -> None:
        self.assertEqual(os.listdir(self.temporary), [])
        self.assertEqual(shared_memory() - self.shm_before, set())


def workers_of(launcher: int) -> dict[int, int]:
    """Rank to process id of the workers that the children of a process have started."""
    found = {}
    for worker in (grandchild for child in children_of(launcher) for grandchild in children_of(child)):
        with contextlib.suppress(OSError):  # it has just ended
            if (rank := rank_of(pathlib.Path(f"/proc/{worker}"))) is not None:
                found[rank] = worker
    return found


def rank_of(process: pathlib.Path) -> int | None:
    """As the name of a worker says that was forked, or the environment of one that was started again."""
    name = re.fullmatch(r"ranvier #(\d+)", (process / "comm").read_text().strip())
    variable = re.search(rb"(?:^|\0)RANVIER_RANK=(\d+)", (process / "environ").read_bytes())
    found = name or variable
    return int(found[1]) if found else None
