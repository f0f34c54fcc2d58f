#!/usr/bin/env python3
"""What fewer rounds cost and save: policies on the CNN and Fashion-MNIST, 2 nodes of 2 workers, the same seeds for each.
`sync.py build/release/bin/ranvier --seeds 0 1 2`

The table has, for each policy, the mean test accuracy and its difference from bsp at equal seed, exchanges between the
nodes, bytes a worker sent to the other node, the time of training, how much better it is at its end than the first policy
in the table was by then, and in what share of that one's time it was as good as both of them became. With --rate (as
root) nodes are hosts of the laboratory with a link of that rate; without, that link is this machine's memory. An exchange of
ssp is a push and a pull of rank 0, one of gossip and ad-psgd a message each way between two. Servers take SGD only: with
`--train --optimizer adamw` name the policies. Other models: `--model resnet`, `gan` (its score is a distance: less is
better), `lstm` with `--text book.txt`. A codec stands behind its policy: `"node:16 int8"`.
"""

import argparse
import pathlib
import sys

from runs import Hosts, Runs, by_seed, mean, seconds_to, table

POLICIES = [
    "bsp", "node:16", "node:64", "node", "local:16", "local:64", "local", "slowmo:48", "gossip", "ssp:3", "ad-psgd",
]  # fmt: skip

# Of what a run reports by model: the entry, the sign of what is better, and how to print it.
SCORES = {"gan": ("frechet_distance", -1, 1, "Fréchet distance"), "lstm": ("test_loss", -1, 1, "test loss")}
ACCURACY = ("accuracy", 1, 100, "accuracy, %")


def best_within(run: dict, seconds: float, entry: str, sign: int) -> float:
    """Not a number where it had not been tested yet."""
    return sign * max((sign * each[entry] for each in run["history"] if each["seconds"] <= seconds), default=float("nan"))


def row(policy: str, runs: list[dict], first: list[dict], score: tuple[str, int, int, str]) -> list[str]:
    entry, sign, factor, _ = score
    at_end, equal_time, share_of_time = [], [], []
    for run, other in zip(runs, first, strict=True):
        end, of_other = run["history"][-1][entry], other["history"][-1][entry]
        at_end.append(factor * (end - of_other))
        equal_time.append(factor * (end - best_within(other, run["seconds"], entry, sign)))
        worse = sign * min(sign * end, sign * of_other)
        share_of_time.append(seconds_to(run, worse, entry, sign) / seconds_to(other, worse, entry, sign))
    return [
        f"`{policy}`",
        f"{factor * mean(run['history'][-1][entry] for run in runs):.2f}",
        by_seed(at_end, "+.2f"),
        str(runs[0]["rounds"]["between"]),
        f"{mean(run['bytes_per_worker']['between'] for run in runs) / 2**20:.2f}",
        f"{mean(run['seconds'] for run in runs):.1f}",
        by_seed(equal_time, "+.2f"),
        by_seed(share_of_time, ".2f"),
    ]


def flags(policy: str) -> list[str]:
    sync, _, codec = policy.partition(" ")
    return ["--sync", sync, *(["--compress", codec] if codec else [])]


def main() -> int:
    parser = argparse.ArgumentParser(prog="sync.py", description=__doc__.partition(":\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="SPEC", help="the first is what others are beside")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--epochs", type=int, default=4, metavar="N")
    parser.add_argument("--rate", metavar="RATE", help="of each node's link, as 200Mbit")
    parser.add_argument("--model", default="cnn", choices=("cnn", "resnet", "gan", "lstm"))
    parser.add_argument("--text", type=pathlib.Path, help="that lstm learns")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="add the runs there, and take those that it has")
    parser.add_argument("--train", nargs=argparse.REMAINDER, default=[], help="what else to give ranvier train; last")
    arguments = parser.parse_args()
    hosts = Hosts(2, 2, arguments.rate) if arguments.rate else None
    known = Runs(arguments.ranvier, arguments.json, arguments.train, hosts)
    common = [*(("--transport", "auto") if hosts else ("--workers", 4, "--place", "node=2")), "--epochs", arguments.epochs]
    common += ["--evaluate-every", 78]
    if arguments.model != "cnn":
        common += ["--model", arguments.model]
    if arguments.text:
        common += ["--data", arguments.text]
    runs = {p: [known.get(*common, "--seed", s, *flags(p)) for s in arguments.seeds] for p in arguments.policies}
    score = SCORES.get(arguments.model, ACCURACY)
    first = arguments.policies[0]
    columns = ["policy", score[3], f"against {first}, by seed", "rounds between", "MiB between", "seconds",
               f"against {first} after equal time", "share of its time to what both reach"]  # fmt: skip
    print(table(columns, (row(policy, runs[policy], runs[first], score) for policy in arguments.policies)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
