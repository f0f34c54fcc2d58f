#!/usr/bin/env python3
"""What fewer rounds cost and save: policies on the CNN and Fashion-MNIST, 2 nodes of 2 workers, the same seeds for each.
`sync.py build/release/bin/ranvier --seeds 0 1 2`

The table has, for each policy, the mean test accuracy and its difference from bsp at equal seed, exchanges between the
nodes, bytes a worker sent to the other node, and the time of training (of this machine, on which the link between the
nodes costs nothing).
"""

import argparse
import pathlib
import sys

from runs import Runs, by_seed, mean, table

POLICIES = ["bsp", "node:16", "node:64", "node", "local:16", "local:64", "local"]


def row(policy: str, runs: list[dict], bsp: list[dict]) -> list[str]:
    return [
        f"`{policy}`",
        f"{100 * mean(r['accuracy'] for r in runs):.2f}",
        by_seed((100 * (r["accuracy"] - b["accuracy"]) for r, b in zip(runs, bsp, strict=True)), "+.2f"),
        str(runs[0]["rounds"]["between"]),
        f"{mean(r['bytes_per_worker']['between'] for r in runs) / 2**20:.2f}",
        f"{mean(r['seconds'] for r in runs):.1f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="sync.py", description=__doc__.partition(":\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="SPEC")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--epochs", type=int, default=4, metavar="N")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="add the runs there, and take those that it has")
    parser.add_argument("--train", nargs=argparse.REMAINDER, default=[], help="what else to give ranvier train; last")
    arguments = parser.parse_args()
    known = Runs(arguments.ranvier, arguments.json, arguments.train)
    common = ("--workers", 4, "--place", "node=2", "--epochs", arguments.epochs)
    runs = {p: [known.get(*common, "--seed", s, "--sync", p) for s in arguments.seeds] for p in arguments.policies}
    columns = ["policy", "accuracy, %", "against bsp, by seed", "rounds between", "MiB between", "seconds"]
    print(table(columns, (row(policy, runs[policy], runs[arguments.policies[0]]) for policy in arguments.policies)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
