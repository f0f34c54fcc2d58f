#!/usr/bin/env python3
"""Unequal workers on a slow link: group synchronization beside bsp, shares by speed, asynchronous workers and auto.
`groups.py build/release/bin/ranvier --seeds 0 1 2`

The CNN on Fashion-MNIST; three hosts of the laboratory (as root) with two workers each and a class of speed each: a sample takes
1, 2 and 5 ms (--sample-ms), one step in twenty four times as long: what computing leaves of that a worker sleeps, so that six of
them have time to spare on two cores. Each host has one link, of --rate; inside a host nothing is shaped. All ways see the same
number of samples along the same cosine. Servers are spread over the workers: no single link carries all that they get. With
--server-rate they are one process on a host of its own, behind a link of that rate, and who needs no server has six workers all
the same.

With --seconds all have equal time instead: each way trains for as many steps as it takes in so long, known from a run that is
as long as a first one of --steps makes it, and its learning rate falls to 0 within them.
"""

import argparse
import dataclasses
import pathlib
import sys

from runs import Hosts, Runs, by_seed, mean, seconds_to, table

WAYS = {
    "bsp": [],
    "bsp, shares by speed": ["--split", "speed"],
    "node:16, shares by speed": ["--split", "speed"],
    "ssp:3": [],
    "async": [],
    "ad-psgd": [],
    "gossip": [],
    "slowmo:48": [],
    "group": [],
    "auto": [],
    **{
        f"{policy}, {codec}": ["--compress", codec, *words]
        for codec in ("int8", "topk:0.05+int8")
        for policy, words in (("bsp", []), ("bsp, shares by speed", ["--split", "speed"]), ("async", []), ("group", []))
    },
}


TRIAL_SEED = 999  # of runs that only say how long others shall be
SERVED = {"ssp", "async", "group"}  # policies whose parameters servers hold


def accuracy_at(run: dict, seconds: float) -> float:
    """Of the last look before that time."""
    seen = [entry["accuracy"] for entry in run["history"] if entry["seconds"] <= seconds]
    return seen[-1] if seen else 0.0


class Ways:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        hosts = Hosts(3, 2, arguments.rate)
        self._runs = Runs(arguments.ranvier, arguments.json, [], hosts)
        served = dataclasses.replace(hosts, server_rate=arguments.server_rate)
        self._served = Runs(arguments.ranvier, arguments.json, [], served)
        least = min(arguments.sample_ms)
        speeds = ",".join(f"{least / ms:.4f}" for ms in arguments.sample_ms for _ in range(hosts.workers))
        self._common = (
            "--sample-ms", least, "--speeds", speeds, "--jitter", "0.05x4", "--threads", 1,
            "--transport", "tcp", "--evaluate-every", 24, "--lr", arguments.lr,
        )  # fmt: skip

    def run(self, way: str, seed: int, *words: object) -> dict:
        policy = way.split(",")[0]
        spec, runs = policy, self._runs
        if self._arguments.server_rate and policy.partition(":")[0] in SERVED:
            spec, runs = f"{policy}{',' if ':' in policy else ':'}servers=1", self._served
        return runs.get(*self._common, "--seed", seed, "--sync", spec, *WAYS[way], *words)

    def length(self, way: str) -> tuple[object, ...]:
        """How long a run is, as `ranvier train` takes it."""
        first = ("--epochs", 1, "--steps", self._arguments.steps)
        if not self._arguments.seconds:
            return first
        length: tuple[object, ...] = first
        for _ in range(2):  # the first steps are slower than others: speeds are measured, connections are new
            run = self.run(way, TRIAL_SEED, *length)
            length = "--epochs", f"{self._arguments.seconds / run['seconds'] * run['epochs']:.3f}"
        return length

    def runs(self) -> dict[str, list[dict]]:
        found = {}
        for way in self._arguments.ways:
            length = self.length(way)
            found[way] = [self.run(way, seed, *length) for seed in self._arguments.seeds]
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="groups.py", description=__doc__.partition(":\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--steps", type=int, default=312, metavar="N")
    parser.add_argument("--seconds", type=float, metavar="S", help="that each way has; --steps are those of a first run then")
    parser.add_argument("--lr", type=float, default=0.1, metavar="X")
    parser.add_argument("--target", type=float, default=0.82, metavar="ACCURACY")
    parser.add_argument("--rate", default="100Mbit", metavar="RATE", help="of each host's link")
    parser.add_argument("--server-rate", metavar="RATE", help="of the link of one server on a host of its own")
    parser.add_argument("--sample-ms", type=float, nargs=3, default=[1, 2, 5], metavar="MS", help="of each host's workers")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="add the runs there, and take those that it has")
    arguments = parser.parse_args()
    runs = Ways(arguments).runs()
    fastest = [min(runs[way][i]["seconds"] for way in arguments.ways) for i in range(len(arguments.seeds))]
    columns = ["policy", "accuracy at the end, %", f"seconds to {100 * arguments.target:g} %", "seconds in all",
               "accuracy when the fastest ends, %", "rounds between", "MiB a worker between"]  # fmt: skip
    rows = [
        [
            f"`{way}`",
            by_seed((100 * r["accuracy"] for r in runs[way]), ".2f"),
            by_seed((seconds_to(r, arguments.target) for r in runs[way]), ".1f"),
            by_seed((r["seconds"] for r in runs[way]), ".1f"),
            by_seed((100 * accuracy_at(r, t) for r, t in zip(runs[way], fastest, strict=True)), ".2f"),
            str(runs[way][0]["rounds"]["between"]),
            f"{mean(r['bytes_per_worker']['between'] for r in runs[way]) / 2**20:.1f}",
        ]
        for way in arguments.ways
    ]
    print(table(columns, rows))
    for way in arguments.ways:
        for seed, run in zip(arguments.seeds, runs[way], strict=True):
            for chosen in run["decisions"]:
                print(f"{way}, seed {seed}, step {chosen['step']}: {chosen['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
