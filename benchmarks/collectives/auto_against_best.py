#!/usr/bin/env python3
"""What choosing costs: auto beside the best fixed algorithm, at every size, all measured in turn in one run.

For each world `ranvier bench --probe` measures the links and prints the table that auto makes of them; `ranvier bench
--tune` then times auto with that table and every candidate, sample by sample. The best of two dozen noisy medians looks
better than it is, so who is best is decided on every other sample, and the ratio taken over the remaining ones: the time
of auto / the time of the best in the same turn, median and quartiles. Above 1, auto is slower.

With --learn, auto first runs each size for itself and corrects that table (`ranvier bench --learn`). Then a second ratio
is that of the algorithm which it took before to the one it takes afterwards, of the same samples: above 1, learning helped.

usage: auto_against_best.py build/release/bin/ranvier [--ranks 2 4] [--transport shm tcp] [--collective all_reduce]
       [--learn]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Iterator

LIMIT = 1.10
"""Auto is to be no more than this much slower."""


def show(size: int) -> str:
    for unit, shift in (("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return str(size)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def followed(table: str, collective: str, size: int) -> str:
    """The algorithm of the table's row for this size."""
    units = {"K": 10, "M": 20, "G": 30}
    for line in table.splitlines():
        words = line.split("#")[0].split()
        if not words or words[0] != collective:
            continue
        up_to = words[3]
        shift = units.get(up_to[-1], 0)
        if up_to == "max" or size <= int(up_to[:-1] if shift else up_to) << shift:
            return words[4]
    raise ValueError(f"the table has no row for {collective} of {size} bytes")


def rows(measured: list[dict], table: str, collective: str) -> Iterator[tuple[str, float, bool]]:
    """Each size as a line of the table that is printed, its ratio, and whether auto took the best itself."""
    for size in sorted({row["bytes"] for row in measured}):
        times = {row["algorithm"]: row["samples_us"] for row in measured if row["bytes"] == size}
        auto = times.pop("auto")
        best = min(times, key=lambda name: statistics.median(times[name][0::2]))
        chosen = followed(table, collective, size)
        low, ratio, high = quartiles([a / b for a, b in zip(auto[1::2], times[best][1::2])])
        yield (
            f"| {show(size)} | `{chosen}` | {statistics.median(auto):.4g} | `{best}` | "
            f"{statistics.median(times[best]):.4g} | {ratio:.2f} ({low:.2f} to {high:.2f}) |",
            ratio,
            chosen == best,
        )


def learned(world: list[str], sizes: list[str], folder: pathlib.Path) -> str:
    """The table after a run of each size that is long enough for two duels; empty if no challenger won."""
    table = folder / "learned.txt"
    table.unlink(missing_ok=True)
    words = ["--learn", "--tuning", str(table), *sizes, "--samples", "3", "--iters", "80"]
    subprocess.run([*world, *words], check=True, stdout=subprocess.DEVNULL)
    return table.read_text() if table.exists() else ""


def print_gain(measured: list[dict], before: str, after: str, collective: str) -> None:
    if not after:
        print("\nlearned: nothing")
        return
    print("\n| bytes | before | us | learned | us | before / learned |\n| --- | --- | --- | --- | --- | --- |")
    for size in sorted({row["bytes"] for row in measured}):
        times = {row["algorithm"]: row["samples_us"] for row in measured if row["bytes"] == size}
        old, new = (followed(table, collective, size) for table in (before, after))
        new = old if new == "auto" else new
        low, ratio, high = quartiles([a / b for a, b in zip(times[old], times[new])])
        print(
            f"| {show(size)} | `{old}` | {statistics.median(times[old]):.4g} | `{new}` | "
            f"{statistics.median(times[new]):.4g} | {ratio:.2f} ({low:.2f} to {high:.2f}) |"
        )


def compare(options: argparse.Namespace, ranks: int, transport: str, folder: pathlib.Path) -> list[str]:
    """Prints one world's table; returns what in it is beyond the limit."""
    world = [options.ranvier, "bench", "--ranks", str(ranks), "--transport", transport]
    probed = subprocess.run([*world, "--probe"], check=True, capture_output=True, text=True).stdout
    table, times = folder / "table.txt", folder / "times.json"
    table.write_text(probed)
    sizes = ["-b", options.minbytes, "-e", options.maxbytes, "-f", str(options.stepfactor)]
    sizes += ["--collective", options.collective]
    after = learned(world, sizes, folder) if options.learn else None
    command = [*world, *sizes, "--samples", str(options.samples), "--json", str(times)]
    command += ["--tuning", str(table), "--tune", str(folder / "fastest.txt")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    print(f"\n{options.collective}, {ranks} ranks, {transport}; {probed.splitlines()[0].lstrip('# ')}\n")
    print("| bytes | auto took | us | the best fixed | us | auto / best |\n| --- | --- | --- | --- | --- | --- |")
    beyond = []
    for line, ratio, is_best in rows(json.loads(times.read_text())["rows"], probed, options.collective):
        print(line, flush=True)
        if ratio > LIMIT and not is_best:
            beyond.append(f"{options.collective}, {ranks} ranks, {transport}: {line}")
    if after is not None:
        print_gain(json.loads(times.read_text())["rows"], probed, after, options.collective)
    return beyond


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranvier")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--transport", nargs="+", default=["shm", "tcp"])
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("-b", "--minbytes", default="4")
    parser.add_argument("-e", "--maxbytes", default="64M")
    parser.add_argument("-f", "--stepfactor", type=float, default=4)
    parser.add_argument("--samples", type=int, default=31)
    parser.add_argument("--learn", action="store_true", help="and what auto takes once it has learned")
    options = parser.parse_args()

    beyond: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for transport in options.transport:
            for ranks in options.ranks:
                beyond += compare(options, ranks, transport, pathlib.Path(folder))
    print(f"\n{len(beyond)} of these are more than {LIMIT - 1:.0%} slower than the best fixed algorithm", *beyond, sep="\n")


if __name__ == "__main__":
    main()
