#!/usr/bin/env python3
"""all_reduce over tcp between hosts whose links are shaped, beside what TCP streams carry there, as root:
`shaped.py build/release/bin/ranvier [--python PYTHON_WITH_TORCH]`

busbw is the rate at which all_reduce uses a link when it sends no byte more than it must. Its limit is what the line
carries both ways at once: measured before and after each size by one stream from every host to the next, all at a time.
The share is the one divided by the other; 100 % is a line that never rests and carries nothing twice. Where each flow
has a limit of its own (--flow-rate), a stream is held by it, and several --sockets can carry more than 100 %.
Where links differ (--rate 1Gbit,1Gbit,200Mbit,50Mbit) it is a share of what these carry in the mean: compare the rates.
With several ranks on each host (--ranks-per-host) the line of a host is what they share, and memory is free.
"""

import argparse
import itertools
import json
import math
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
LABORATORY = HERE.parents[1] / "tests" / "support" / "lab"
sys.path.insert(0, str(LABORATORY))

from lab import Lab, LabError, Result, reason_to_skip, several_on_each  # noqa: E402
from network import bits_per_second  # noqa: E402

MIB = 1 << 20
LEAST_SAMPLE_S = 0.3  # of operations in a row, so that what a bucket of the link saves up does not count
LIMIT_S = 240


def volume(hosts: int, size: int) -> float:
    """What each host must send, and receive, of an all_reduce of so many bytes."""
    return 2 * (hosts - 1) / hosts * size


class Comparison:
    def __init__(self, lab: Lab, arguments: argparse.Namespace):
        self.lab, self.arguments = lab, arguments
        limits = filter(None, (*arguments.rate.split(","), arguments.flow_rate))
        self.line = min(map(bits_per_second, limits)) / 8

    def run(self, command: list) -> str:
        """What host 0 prints; every host has to succeed."""
        results: list[Result] = self.lab.run(command, limit=LIMIT_S)
        for result in results:
            if result.code != 0:
                why = f"had not ended after {LIMIT_S} s" if result.timed_out else result.err.strip()
                raise LabError(f"{pathlib.Path(str(command[0])).name} on host {result.host} failed: {why}")
        return results[0].out

    def run_ranks(self, command: list) -> str:
        return self.run(several_on_each(self.arguments.ranks_per_host, command))

    def streams(self) -> float:
        """Bytes a second, the mean of the hosts: what one stream loses to another host's, that one gains."""
        results = self.lab.run([sys.executable, LABORATORY / "streams.py", "2"], limit=LIMIT_S)
        return statistics.mean(json.loads(result.out)["bytes_per_second"] for result in results)

    def iterations(self, size: int) -> int:
        return max(1, math.ceil(LEAST_SAMPLE_S * self.line / volume(self.lab.hosts, size)))

    def ranvier(self, algorithm: str, sockets: int, size: int) -> list[float]:
        """The quartiles and the median of the time of one operation."""
        file = self.lab.network.folder / "bench.json"
        self.run_ranks(
            [
                self.arguments.ranvier, "bench", "--transport", "auto", "--nodes", self.lab.hosts, "--no-pin",
                "--algorithm", algorithm, "--sockets", sockets, *(["--insecure"] if self.arguments.insecure else []),
                "-b", size, "-e", size, "-n", self.iterations(size), "-w", 1, "--samples", self.arguments.samples,
                "--json", file,
            ]
        )  # fmt: skip
        (row,) = json.loads(file.read_text())["rows"]
        if row["wrong"]:
            raise LabError(f"{row['wrong']} elements of all_reduce are wrong")
        return [row[key] / 1e6 for key in ("time_us_p25", "time_us", "time_us_p75")]

    def gloo(self, size: int) -> list[float]:
        job = [size, self.arguments.samples, self.iterations(size)]
        times = json.loads(self.run_ranks([self.arguments.python, HERE / "gloo_peer.py", *job]))
        return statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3

    def row(self, size: int) -> dict:
        before = self.streams()
        times = {name: self.ranvier(*choice, size) for name, choice in columns(self.arguments).items()}
        if self.arguments.python:
            times["gloo"] = self.gloo(size)
        streams = statistics.mean((before, self.streams()))
        return {
            "hosts": self.lab.hosts,
            "bytes": size,
            "streams_gbps": streams / 1e9,
            # The slow quartile of the times is the low one of the rates.
            "busbw_gbps": {name: volume(self.lab.hosts, size) / median / 1e9 for name, (_, median, _) in times.items()},
            "share": {name: volume(self.lab.hosts, size) / median / streams for name, (_, median, _) in times.items()},
            "share_p25": {name: volume(self.lab.hosts, size) / slow / streams for name, (_, _, slow) in times.items()},
        }


def columns(arguments: argparse.Namespace) -> dict[str, tuple[str, int]]:
    """Algorithm and sockets of each, by name."""
    choices = itertools.product(arguments.algorithms, arguments.sockets)
    if arguments.sockets == [1]:
        return {algorithm: (algorithm, 1) for algorithm, _ in choices}
    return {f"{algorithm}, {n} socket{'s' if n > 1 else ''}": (algorithm, n) for algorithm, n in choices}


def print_row(row: dict) -> None:
    cells = [str(row["hosts"]), f"{row['bytes'] / MIB:g} MiB", f"{row['streams_gbps']:.4f}"]
    cells += [f"{row['busbw_gbps'][name]:.4f} ({100 * row['share'][name]:.1f} %)" for name in row["share"]]
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="shaped.py", description=__doc__.partition(":\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--python", metavar="PATH", help="a Python that has torch, to measure gloo beside")
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 8], metavar="N", help="default: 2 4 8")
    parser.add_argument("--ranks-per-host", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument("--mib", type=float, nargs="+", default=[1, 4, 16, 64], metavar="M", help="default: 1 4 16 64")
    parser.add_argument("--algorithms", nargs="+", default=["ring", "auto"], metavar="NAME", help="default: ring auto")
    parser.add_argument("--rate", default="1Gbit", help="of each link, both ways, or each host's: 1Gbit,50Mbit (default: 1Gbit)")
    parser.add_argument("--flow-rate", metavar="RATE", help="most that each TCP connection gets (default: no limit)")
    parser.add_argument("--sockets", type=int, nargs="+", default=[1], metavar="K", help="a link (default: 1)")
    parser.add_argument("--congestion-control", metavar="NAME", help="of TCP (default: the machine's)")
    parser.add_argument("--insecure", action="store_true", help="encrypt nothing: all hosts share this machine's cores")
    parser.add_argument("--samples", type=int, default=5, metavar="N", help="of each size (default: 5)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results there")
    arguments = parser.parse_args()
    arguments.ranvier = arguments.ranvier.resolve()
    if reason := reason_to_skip():
        print(f"shaped.py: {reason}", file=sys.stderr)
        return 1
    heads = ["hosts", "bytes", "streams, GB/s", *columns(arguments), *(["gloo"] if arguments.python else [])]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    rows = []
    try:
        for hosts in arguments.hosts:
            with Lab(
                hosts,
                arguments.rate,
                congestion_control=arguments.congestion_control,
                flow_rate=arguments.flow_rate,
            ) as lab:
                for size in arguments.mib:
                    rows.append(Comparison(lab, arguments).row(int(size * MIB)))
                    print_row(rows[-1])
    except LabError as problem:
        print(f"shaped.py: {problem}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps({"rate": arguments.rate, "flow_rate": arguments.flow_rate, "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
