#!/usr/bin/env python3
"""The simulator against reality, as root: `validate.py build/release/bin/ranvier`

On each laboratory network the links are measured once (`ranvier probe`); then every all_reduce is timed there (`ranvier
bench`) and predicted from that measurement alone (`ranvier simulate`). All of a size are timed in turn, twice, and those
whose times differ by more than 5 % again: the median of these rounds counts. Rounds in which more than 1 % of the
processors' time went to other guests of the host ("stolen", proc_stat(5)) are marked by ! and timed again. The error is
predicted / measured - 1. Rows that kept the machine's processors busy for more than --busy of the time are printed and not
counted: there the hosts of the laboratory share cores, and the network is not what holds them back.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import statistics
import sys
import tomllib

from laboratory import ALGORITHMS, Shape, add_networks, run  # first: it knows where lab lies
from lab import Lab, LabError, reason_to_skip

LIMIT_S = 240
NETWORKS = [
    "2:200Mbit", "2:1Gbit", "3:500Mbit", "4:200Mbit", "4:500Mbit", "4:500Mbit/250Mbit", "6:200Mbit", "8:100Mbit", "8:200Mbit",
]  # fmt: skip
LINE_SECONDS = [0.01, 0.05, 0.25]  # sizes: what a link carries in so long
UNIT = 64 << 10  # bytes that sizes are multiples of
PROBE_SAMPLES = 5
ALIKE = 0.05
STOLEN = 0.01


def sizes(shape: Shape) -> list[int]:
    return [max(1, round(shape.bytes_per_second() * seconds / UNIT)) * UNIT for seconds in LINE_SECONDS]


@dataclasses.dataclass(frozen=True)
class Round:
    """One run of the benchmark."""

    seconds: float  # of an operation
    busy: float  # share of the processors' time, also by other guests of the host
    stolen: float  # by these

    def __str__(self) -> str:
        return f"{self.seconds * 1e3:.2f}{'' if self.is_own else ' !'}"

    @property
    def is_own(self) -> bool:
        return self.stolen <= STOLEN


def ticks() -> tuple[int, int, int]:
    """Of all processors: busy, stolen, and all. What runs niced gives way and is not busy (proc_stat(5))."""
    user, nice, system, idle, waiting, irq, soft, steal = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
    busy = user + system + irq + soft + steal
    return busy, steal, busy + nice + idle + waiting


def that_count(found: list[Round]) -> list[Round]:
    return [each for each in found if each.is_own] or found


def agree(found: list[Round]) -> bool:
    """Whether any two of these rounds that no other guest disturbed took as long."""
    seconds = sorted(each.seconds for each in found if each.is_own)
    return any(longer <= (1 + ALIKE) * shorter for shorter, longer in itertools.pairwise(seconds))


class Validation:
    def __init__(self, lab: Lab, shape: Shape, arguments: argparse.Namespace):
        self.lab, self.shape, self.arguments = lab, shape, arguments
        self.topology = lab.network.folder / "topology.toml"

    def run(self, *words: object, hosts: int | None = None) -> str:
        return run(self.lab, self.arguments.ranvier, *words, limit=LIMIT_S, hosts=hosts)

    def probe(self) -> None:
        self.run("probe", "--transport", "tcp", "--samples", PROBE_SAMPLES, "--output", self.topology)
        links = tomllib.loads(self.topology.read_text())["link"]
        keys = ("latency_us", "gbit_per_second", "gbit_both_ways", "burst_bytes")
        found = {key: statistics.median(link[key] for link in links) for key in keys}
        print(f"{self.shape}: {found}", file=sys.stderr, flush=True)

    def measured(self, algorithm: str, size: int) -> Round:
        file = self.lab.network.folder / "bench.json"
        before = ticks()
        self.run(
            "bench", "--transport", "tcp", "--no-pin", "--algorithm", algorithm, "-b", size, "-e", size,
            "-n", self.iterations(size), "-w", 1, "-c", 0, "--samples", self.arguments.samples, "--json", file,
        )  # fmt: skip
        busy, stolen, passed = (now - then for then, now in zip(before, ticks(), strict=True))
        (row,) = json.loads(file.read_text())["rows"]
        return Round(row["time_us"] / 1e6, busy / max(passed, 1), stolen / max(passed, 1))

    def iterations(self, size: int) -> int:
        return max(2, round(self.arguments.sample_seconds * self.shape.bytes_per_second() / (2 * size)))

    def predicted(self, algorithm: str, size: int) -> float:
        words = ["simulate", "--bytes", size, "--algorithm", algorithm, "--topology", self.topology, "--in-a-row", 4, "--json", "-"]
        return json.loads(self.run(*words, hosts=1))["step_ns"] / 1e9

    def rows(self):
        self.probe()
        for size in sizes(self.shape):
            rounds: dict[str, list[Round]] = {algorithm: [] for algorithm in self.arguments.algorithms}
            for number in range(self.arguments.rounds):
                for algorithm, found in rounds.items():
                    if number < 2 or not agree(found):
                        found.append(self.measured(algorithm, size))
            for algorithm, found in rounds.items():
                predicted = self.predicted(algorithm, size)
                measured = statistics.median(each.seconds for each in that_count(found))
                busy = statistics.median(each.busy for each in that_count(found))
                yield {
                    "network": str(self.shape),
                    "algorithm": algorithm,
                    "bytes": size,
                    "predicted_ms": predicted * 1e3,
                    "measured_ms": measured * 1e3,
                    "rounds": [str(each) for each in found],
                    "error": predicted / measured - 1,
                    "busy": busy,
                    "counts": busy <= self.arguments.busy and any(each.is_own for each in found),
                }


def summary(name: str, rows: list[dict]) -> str:
    """A line of the table in docs/simulator.md."""
    counted = sorted((row for row in rows if row["counts"]), key=lambda row: abs(row["error"]))
    if not counted:
        return f"| {name} | 0 | {len(rows)} | | | |"
    errors = [abs(row["error"]) for row in counted]
    worst = counted[-1]
    return (
        f"| {name} | {len(counted)} | {len(rows) - len(counted)} | {statistics.median(errors):.1%} | "
        f"{errors[int(0.9 * (len(errors) - 1))]:.1%} | "
        f"{worst['error']:+.1%}: {worst['algorithm']}, {worst['bytes'] >> 10} KiB |"
    )


def print_summaries(rows: list[dict]) -> None:
    """By network, by algorithm and of all."""
    print("\n| | rows that count | left out | median error | nine of ten below | worst |\n|" + " --- |" * 6)
    for key in ("network", "algorithm"):
        for value in dict.fromkeys(row[key] for row in rows):
            print(summary(value, [row for row in rows if row[key] == value]))
    print(summary("all", rows))


def regrets(rows: list[dict]) -> list[float]:
    """By network and size: how much longer what is predicted to be the fastest takes than what is measured to be."""
    found = []
    for key in dict.fromkeys((row["network"], row["bytes"]) for row in rows):
        same = [row for row in rows if (row["network"], row["bytes"]) == key and row["counts"]]
        if same:
            chosen = min(same, key=lambda row: row["predicted_ms"])
            found.append(chosen["measured_ms"] / min(row["measured_ms"] for row in same) - 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="validate.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    add_networks(parser, NETWORKS)
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS, metavar="NAME")
    parser.add_argument("--samples", type=int, default=2, metavar="N", help="of each row and round (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of a row at most (default: 5)")
    parser.add_argument("--sample-seconds", type=float, default=0.2, metavar="S", help="of one sample (default: 0.2)")
    parser.add_argument("--busy", type=float, default=0.85, metavar="SHARE", help="of the processors (default: 0.85)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="add the rows to those that are there")
    arguments = parser.parse_args()
    arguments.ranvier = arguments.ranvier.resolve()
    if reason := reason_to_skip():
        print(f"validate.py: {reason}", file=sys.stderr)
        return 1
    file = arguments.json
    rows = json.loads(file.read_text())["rows"] if file and file.exists() else []
    columns = ["network", "algorithm", "bytes", "predicted, ms", "measured, ms", "in each round", "error", "processors busy"]
    print(f"| {' | '.join(columns)} |\n|" + " --- |" * len(columns))
    try:
        for shape in map(Shape.parse, arguments.networks):
            with shape.lab() as lab:
                for row in Validation(lab, shape, arguments).rows():
                    rows.append(row)
                    print(
                        f"| {row['network']} | {row['algorithm']} | {row['bytes']} | {row['predicted_ms']:.2f} | "
                        f"{row['measured_ms']:.2f} | {', '.join(row['rounds'])} | "
                        f"{row['error']:+.1%} | {row['busy']:.0%} |", flush=True,
                    )  # fmt: skip
                    if file:
                        file.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    except LabError as problem:
        print(f"validate.py: {problem}", file=sys.stderr)
        return 1
    print_summaries(rows)
    if lost := sorted(regrets(rows)):
        print(f"the algorithm that is predicted to be fastest takes {statistics.median(lost):.1%} more than the fastest "
              f"in the median of {len(lost)} networks and sizes, {lost[-1]:.1%} at worst")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
