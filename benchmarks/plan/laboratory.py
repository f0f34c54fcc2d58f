"""What the programs here share: laboratory networks by their names, and ranvier run in them."""

import argparse
import dataclasses
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "support" / "lab"))

from lab import Lab, LabError  # noqa: E402
from network import bits_per_second  # noqa: E402

# Of all_reduce, all but the vendor's.
ALGORITHMS = [
    "ring", "bidirectional_ring", "direct", "one_round", "recursive_doubling", "halving_doubling", "swing", "swing_latency",
    "round_robin", "binomial_tree", "bine_tree", "double_binary_tree", "parameter_server", "hierarchical", "torus", "mesh",
    "multi_dimensional",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Shape:
    """Written "4:500Mbit/250Mbit": hosts, the rate of their links each way, and that of host 0 where it is another one."""

    hosts: int
    rate: str
    slow: str | None  # the rate of host 0

    @classmethod
    def parse(cls, text: str) -> "Shape":
        hosts, _, rates = text.partition(":")
        rate, _, slow = rates.partition("/")
        return cls(int(hosts), rate, slow or None)

    def __str__(self) -> str:
        return f"{self.hosts} x {self.rate}" + (f", one {self.slow}" if self.slow else "")

    def lab(self) -> Lab:
        return Lab(self.hosts, self.rate, slow_host=self.slow)

    def bytes_per_second(self) -> float:
        """Of the slowest link."""
        return bits_per_second(self.slow or self.rate) / 8


def add_networks(parser: argparse.ArgumentParser, default: list[str]) -> None:
    parser.add_argument(
        "--networks", nargs="+", default=default, metavar="N:RATE[/RATE0]",
        help=f"hosts and the rate of their links, and of host 0's (default: {' '.join(default)})",
    )  # fmt: skip


def run(lab: Lab, *command: object, limit: int, hosts: int | None = None) -> str:
    """On the first `hosts` hosts (all); what host 0 printed. Raises LabError where one fails."""
    results = lab.run(list(command), limit=limit, hosts=hosts)
    for result in results:
        if result.code != 0:
            raise LabError(f"ranvier {command[1]} on host {result.host} failed: {result.err.strip()}")
    return results[0].out
