#!/usr/bin/env python3
"""What fewer rounds cost and save: policies on the CNN and Fashion-MNIST, 2 nodes of 2 workers, the same seeds for each.
`sync.py build/release/bin/ranvier --seeds 0 1 2`

The table has, for each policy, the mean test accuracy and its difference from bsp at equal seed, exchanges between the
nodes, bytes a worker sent to the other node, and the time of training (of this machine, on which the link between the
nodes costs nothing).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

POLICIES = ["bsp", "node:16", "node:64", "node", "local:16", "local:64", "local"]


def run(ranvier: pathlib.Path, policy: str, seed: int, arguments: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "run.json"
        command = [
            ranvier, "train", "--workers", 4, "--place", "node=2", "--sync", policy, "--seed", seed, "--json", file,
            "--epochs", arguments.epochs, "--no-measure", *arguments.train,
        ]  # fmt: skip
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"sync.py: {policy}, seed {seed}: {done.stderr.strip()}")
        return json.loads(file.read_text())


def row(policy: str, runs: list[dict], bsp: list[dict]) -> str:
    def mean(values) -> float:
        return statistics.mean(list(values))

    differences = [100 * (r["accuracy"] - b["accuracy"]) for r, b in zip(runs, bsp, strict=True)]
    return (
        f"| `{policy}` | {100 * mean(r['accuracy'] for r in runs):.2f} | {mean(differences):+.2f} "
        f"({' '.join(f'{d:+.2f}' for d in differences)}) | {runs[0]['rounds']['between']} | "
        f"{mean(r['bytes_per_worker']['between'] for r in runs) / 2**20:.2f} | {mean(r['seconds'] for r in runs):.1f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="sync.py", description=__doc__.partition(":\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="SPEC")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--epochs", type=int, default=4, metavar="N")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="add the runs there, and take those that it has")
    parser.add_argument("--train", nargs=argparse.REMAINDER, default=[], help="what else to give ranvier train; last")
    arguments = parser.parse_args()
    arguments.ranvier = arguments.ranvier.resolve()
    known = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    for seed in arguments.seeds:
        for policy in arguments.policies:
            key = f"{policy} {seed} {arguments.epochs} {' '.join(arguments.train)}"
            if key not in known:
                known[key] = run(arguments.ranvier, policy, seed, arguments)
                if arguments.json:
                    arguments.json.write_text(json.dumps(known))
    print("| policy | accuracy, % | against bsp, by seed | rounds between | MiB between | seconds |\n| --- |" + " --- |" * 5)
    of = {
        policy: [known[f"{policy} {seed} {arguments.epochs} {' '.join(arguments.train)}"] for seed in arguments.seeds]
        for policy in arguments.policies
    }
    for policy in arguments.policies:
        print(row(policy, of[policy], of[arguments.policies[0]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
