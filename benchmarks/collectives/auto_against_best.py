#!/usr/bin/env python3
"""What choosing costs: auto beside the best fixed algorithm, of every collective, all measured in turn in one run.

For each world and collective `ranvier bench --tune` times auto, by what it measured when the ranks met, and every
candidate, sample by sample. The best of two dozen noisy medians looks better than it is, so who is best is decided on
every other sample, and the ratio taken over the remaining ones: the time of auto / the time of the best in the same turn,
median and quartiles. Above 1, auto is slower.

Where more ranks than cores are not pinned, the system decides which of them share one, anew in each world and sometimes
within one, and that decides which algorithm is the fastest. --pin gives each rank a core, in turn.

Two more ways of choosing can be judged by the same samples, each by the algorithm that it names at a size:
--tuned: the table that a run of `ranvier bench --tune` before wrote, which is not the one that is timed here.
--learn: that of another world after auto has run each size for itself and corrected it (`ranvier bench --learn`), which it
does for all_reduce, all_gather and reduce_scatter.

usage: auto_against_best.py build/release/bin/ranvier [--ranks 2 4] [--transport shm tcp] [--collective all_reduce …]
       [-b 4] [-e 64M] [-f 256] [--samples 7] [--pin] [--tuned] [--learn]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

LIMIT = 1.10
"""Auto is to be no more than this much slower."""

COLLECTIVES = "all_reduce reduce broadcast all_gather reduce_scatter all_to_all gather scatter".split()
LEARNED = ("all_reduce", "all_gather", "reduce_scatter")


def show(size: int) -> str:
    for unit, shift in (("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return str(size)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def followed(table: str, collective: str, size: int) -> str:
    """The algorithm of the table's row for this size; "auto" where it has none."""
    units = {"K": 10, "M": 20, "G": 30}
    for line in table.splitlines():
        words = line.split("#")[0].split()
        if not words or words[0] != collective:
            continue
        up_to = words[3]
        shift = units.get(up_to[-1], 0)
        if up_to == "max" or size <= int(up_to[:-1] if shift else up_to) << shift:
            return words[4]
    return "auto"


class World:
    """Ranks on one transport, and a folder for what they write."""

    def __init__(self, options: argparse.Namespace, ranks: int, transport: str, folder: pathlib.Path):
        self.options, self.folder = options, folder
        self.name = f"{ranks} ranks, {transport}"
        self.command = [options.ranvier, "bench", "--ranks", str(ranks), "--transport", transport]
        if options.pin:
            self.command.append("--pin")

    def bench(self, collective: str, *words: str) -> None:
        options = self.options
        sizes = ["-b", options.minbytes, "-e", options.maxbytes, "-f", str(options.stepfactor)]
        command = [*self.command, *sizes, "--collective", collective, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def file(self, name: str) -> pathlib.Path:
        file = self.folder / name
        file.unlink(missing_ok=True)
        return file

    def tuned(self, collective: str) -> str:
        table = self.file("tuned.txt")
        self.bench(collective, "--samples", "5", "--tune", str(table))
        return table.read_text()

    def learned(self, collective: str) -> str:
        """After a run of each size that is long enough for two duels; empty if no challenger won."""
        table = self.file("learned.txt")
        self.bench(collective, "--learn", "--tuning", str(table), "--samples", "3", "--iters", "80")
        return table.read_text() if table.exists() else ""

    def times(self, collective: str) -> list[dict]:
        times = self.file("times.json")
        words = ["--tune", str(self.file("fastest.txt")), "--json", str(times)]
        self.bench(collective, "--samples", str(self.options.samples), *words)
        return json.loads(times.read_text())["rows"]


def compare(world: World, collective: str) -> tuple[int, list[str]]:
    """Prints one table; returns how many choices it judges, and which are beyond the limit."""
    ways = {"auto": ""}
    if world.options.tuned:
        ways["tuned"] = world.tuned(collective)
    if world.options.learn and collective in LEARNED:
        ways["learned"] = world.learned(collective)
    measured = world.times(collective)

    print(f"\n{collective}, {world.name}\n")
    columns = ["bytes", "the best fixed", "us"]
    for way in ways:
        columns += ["auto, us", "auto / best"] if way == "auto" else [f"{way} took", "us", f"{way} / best"]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    judged, beyond = 0, []
    for size in sorted({row["bytes"] for row in measured}):
        times = {row["algorithm"]: row["samples_us"] for row in measured if row["bytes"] == size}
        auto = times.pop("auto")
        best = min(times, key=lambda name: statistics.median(times[name][0::2]))
        cells = [show(size), f"`{best}`", f"{statistics.median(times[best]):.4g}"]
        for way, table in ways.items():
            chosen = followed(table, collective, size)
            own = auto if chosen == "auto" else times[chosen]
            low, ratio, high = quartiles([a / b for a, b in zip(own[1::2], times[best][1::2])])
            took = [] if way == "auto" else [f"`{chosen}`"]
            cells += [*took, f"{statistics.median(own):.4g}", f"{ratio:.2f} ({low:.2f} to {high:.2f})"]
            judged += 1
            if ratio > LIMIT and chosen != best:
                name = way if way == "auto" else f"{way}, `{chosen}`"
                beyond.append(f"{collective}, {world.name}, {show(size)}: {name}, {cells[-1]} of `{best}`")
        print(f"| {' | '.join(cells)} |", flush=True)
    return judged, beyond


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranvier")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--transport", nargs="+", default=["shm", "tcp"])
    parser.add_argument("--collective", nargs="+", choices=COLLECTIVES, default=COLLECTIVES, metavar="NAME")
    parser.add_argument("-b", "--minbytes", default="4")
    parser.add_argument("-e", "--maxbytes", default="64M")
    parser.add_argument("-f", "--stepfactor", type=float, default=256)
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--pin", action="store_true", help="each rank to a core, in turn, also where there are fewer")
    parser.add_argument("--tuned", action="store_true", help="and what a tuning table of an earlier run takes")
    parser.add_argument("--learn", action="store_true", help="and what auto takes once it has learned")
    options = parser.parse_args()
    if options.samples < 4:
        parser.error("--samples is at least 4: two that say which algorithm is the best, and two that are compared")

    judged, beyond = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for transport in options.transport:
            for ranks in options.ranks:
                world = World(options, ranks, transport, pathlib.Path(folder))
                for collective in options.collective:
                    more, slower = compare(world, collective)
                    judged += more
                    beyond += slower
    print(f"\n{len(beyond)} of {judged} choices are more than {LIMIT - 1:.0%} slower than the best fixed algorithm")
    print(*beyond, sep="\n")


if __name__ == "__main__":
    main()
