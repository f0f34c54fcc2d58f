"""Runs of `ranvier train` for tables: each is done once and kept in a file, so that a table can be made in pieces."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable

LAB = pathlib.Path(__file__).resolve().parents[3] / "tests" / "support" / "lab"


@dataclasses.dataclass(frozen=True)
class Hosts:
    """So many hosts of the laboratory, each a node of so many workers, and the rate of each host's link. With `server_rate`
    one host more, of the last worker alone, behind a link of that rate."""

    count: int
    workers: int
    rate: str
    server_rate: str | None = None

    def run(self, command: list[str], limit: float) -> str:
        """What went wrong, or nothing. `command` is given its rank, and where to listen, by a shell."""
        sys.path.insert(0, str(LAB))
        from lab import Lab  # type: ignore[import-not-found]

        # Hosts of the laboratory share this machine's memory, which several hosts do not. The laboratory's host 0 is the one
        # whose link may be slow.
        servers = 1 if self.server_rate else 0
        world = self.count * self.workers + servers
        each = (
            f"export RANVIER_NODE=host$RANVIER_RANK; first=$(((RANVIER_RANK - {servers}) * {self.workers})); count={self.workers};"
            f" if [ $first -lt 0 ]; then first={world - 1}; count=1; fi; for i in $(seq 0 $((count - 1))); do"
            f" RANVIER_LOCAL_RANK=$i RANVIER_LOCAL_WORLD=$count RANVIER_WORLD={world}"
            f" RANVIER_RANK=$((first + i)) {shlex.join(command)} --interface $LAB_ADDRESS & done;"
            " for job in $(jobs -p); do wait $job || exit 1; done"
        )
        with Lab(hosts=self.count + servers, rate=self.rate, slow_host=self.server_rate) as lab:
            results = lab.run(["bash", "-c", each], limit=limit)
        return "\n".join(result.err for result in results if result.code != 0 or result.timed_out)


class Runs:
    def __init__(
        self, ranvier: pathlib.Path, file: pathlib.Path | None, words: list[str], hosts: Hosts | None = None
    ) -> None:
        """`words` go to every run. `file` keeps what has been run. Without `hosts` the words say how many workers."""
        self._hosts = hosts
        self._ranvier = ranvier.resolve()
        self._file = file
        self._words = words
        self._known: dict[str, dict] = json.loads(file.read_text()) if file and file.exists() else {}

    def get(self, *words: object) -> dict:
        command = [str(word) for word in (*words, *self._words)]
        key = " ".join([*command, str(self._hosts or "")])
        if key not in self._known:
            self._known[key] = self._run(command)
            if self._file:  # which other hosts' runs may be added to as well
                there = json.loads(self._file.read_text()) if self._file.exists() else {}
                self._file.write_text(json.dumps(there | self._known))
        return self._known[key]

    def _run(self, command: list[str]) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "run.json"
            words = [str(self._ranvier), "train", *command, "--json", str(file)]
            if self._hosts:
                problem = self._hosts.run(words, limit=600)
            else:
                done = subprocess.run(words, capture_output=True, text=True)
                problem = done.stderr.strip() if done.returncode != 0 else ""
            if problem:
                sys.exit(f"{' '.join(command)}: {problem}")
            return json.loads(file.read_text())


def mean(values: Iterable[float]) -> float:
    return statistics.mean(list(values))


def seconds_to(run: dict, wanted: float, entry: str = "accuracy", sign: int = 1) -> float:
    """When a test was first that good, or that low where `sign` is -1; infinity where none was."""
    return next((each["seconds"] for each in run["history"] if sign * each[entry] >= sign * wanted), float("inf"))


def by_seed(values: Iterable[float], form: str) -> str:
    """The mean, and behind it each seed's where there are several."""
    values = list(values)
    each = f" ({' '.join(format(value, form) for value in values)})" if len(values) > 1 else ""
    return format(mean(values), form) + each


def table(columns: list[str], rows: Iterable[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
