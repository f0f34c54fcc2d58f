#!/usr/bin/env python3
"""What --sync auto costs against the best policy, known beforehand, on clusters that differ in all that it looks at.
`auto.py build/release/bin/ranvier --seeds 0 1 2`

The CNN on Fashion-MNIST; two hosts of the laboratory (as root) with two workers each. Workers are equal or those of one host
3.75 times as fast as the others', the hosts' links fast or slow, and in jittery clusters one step in ten takes four times as
long. A sample lasts 0.1 ms at speed 1, and slow workers sleep, so that they do not wait for this machine's cores. The table has
the seconds to the target, and how much later than the best fixed policy auto is there, at equal seed. In which of these looks,
ten steps apart, a run first is at the target is chance for a good part; so the same is said of the mean of the seconds to five
targets, of which that is the last.
"""

import argparse
import itertools
import pathlib
import sys

from runs import Hosts, Runs, by_seed, mean, seconds_to, table

SPEEDS = {"equal": "0.15,0.15,0.15,0.15", "unequal": "0.3,0.3,0.08,0.08"}
RATES = {"fast": "1Gbit", "slow": "100Mbit"}
PACES = {"steady": [], "jittery": ["--jitter", "0.1x4"]}
WAYS = {
    "bsp": [],
    "bsp, shares by speed": ["--split", "speed"],
    "node:16": [],
    "node:16, shares by speed": ["--split", "speed"],
    "group": [],
    "async": [],
    "auto": [],
}


def suits(way: str, cluster: tuple[str, ...]) -> bool:
    """Shares by speed are even ones where all are equal, and what has none is slower where they are not."""
    return cluster[0] == "unequal" or "shares" not in way


def later(took: dict[str, list[float]]) -> tuple[str, str]:
    """The best fixed way, and how much longer auto takes."""
    best = min((way for way in took if way != "auto"), key=lambda way: mean(took[way]))
    return best, by_seed((100 * (a / b - 1) for a, b in zip(took["auto"], took[best], strict=True)), "+.0f")


def main() -> int:
    parser = argparse.ArgumentParser(prog="auto.py", description=__doc__.partition(":\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--steps", type=int, default=240, metavar="N")
    parser.add_argument("--lr", type=float, default=0.05, metavar="X")
    parser.add_argument("--target", type=float, default=0.82, metavar="ACCURACY")
    parser.add_argument("--clusters", nargs="+", metavar="WORDS", help="such as 'equal fast steady'; default: all eight")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="add the runs there, and take those that it has")
    arguments = parser.parse_args()
    rows, reasons = [], []
    for cluster in itertools.product(SPEEDS, RATES, PACES):
        words = " ".join(cluster)
        if arguments.clusters and words not in arguments.clusters:
            continue
        known = Runs(arguments.ranvier, arguments.json, [], Hosts(2, 2, RATES[cluster[1]]))
        common = (
            "--sample-ms", 0.1, "--speeds", SPEEDS[cluster[0]], *PACES[cluster[2]], "--epochs", 1, "--steps", arguments.steps,
            "--transport", "auto", "--evaluate-every", 10, "--lr", arguments.lr, "--target-accuracy", arguments.target,
        )  # fmt: skip
        runs = {
            way: [known.get(*common, "--seed", seed, "--sync", way.split(",")[0], *options) for seed in arguments.seeds]
            for way, options in WAYS.items()
            if suits(way, cluster)
        }
        took = {way: [seconds_to(run, arguments.target) for run in each] for way, each in runs.items()}
        targets = [arguments.target - below / 100 for below in range(5)]
        on_the_way = {way: [mean(seconds_to(run, each) for each in targets) for run in runs[way]] for way in runs}
        seconds = [f"{mean(took[way]):.1f}" if way in took else "" for way in WAYS]
        rows.append([words, *seconds, *later(took), *later(on_the_way)])
        for seed in arguments.seeds:
            run = known.get(*common, "--seed", seed, "--sync", "auto")
            reasons += [f"{words}, seed {seed}, step {c['step']}: {c['reason']}" for c in run["decisions"]]
    columns = ["best", "auto later than that, %, by seed", "best of five targets", "auto later, %, by seed"]
    print(table(["cluster", *WAYS, *columns], rows))
    print("\n".join(reasons))
    return 0


if __name__ == "__main__":
    sys.exit(main())
