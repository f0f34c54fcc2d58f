#!/usr/bin/env python3
"""Data beside model parallelism: the same samples a step, by four workers that hold the whole model each, or a part of it.
`parallel.py build/release/bin/ranvier --text book.txt`

For each model, network (this machine's memory, or TCP whose sending is held to a rate) and way: the median step, what a worker
sends in it, what of that goes between the parts of one model, and the share of the step that waits. Pipelines send each
worker's samples in as many passes as leave a stage idle for a fifth of a step at most. All ways in turn, `--repeats` times.
"""

import argparse
import pathlib
import statistics

from runs import Runs, table

MODELS = {"transformer": (48, 10, ["--optimizer", "adamw"]), "cnn": (128, 80, [])}  # samples and number of steps
NETWORKS = {"memory": ["--transport", "shm"]}
WAYS = {  # workers of a model, and passes
    "none": (1, 1), "tensor:2": (2, 1), "tensor:4": (4, 1), "pipeline:2": (2, 4), "pipeline:4": (4, 16),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="parallel.py", description=__doc__.partition(":\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="that the transformer learns")
    parser.add_argument("--rates", nargs="+", default=["1Gbit", "100Mbit"], metavar="RATE", help="of each worker's sending")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    arguments = parser.parse_args()
    networks = NETWORKS | {rate: ["--transport", "tcp", "--link-rate", rate] for rate in arguments.rates}
    found: dict[tuple[str, str, str], list[dict]] = {}
    for _ in range(arguments.repeats):
        runs = Runs(arguments.ranvier, None, ["--workers", "4", "--threads", "1", "--no-measure"])
        for model, (samples, steps, words) in MODELS.items():
            data = ["--data", str(arguments.text)] if model == "transformer" else []
            for network, transport in networks.items():
                for way, (parts, passes) in WAYS.items():
                    batch = samples // (4 // parts) // passes
                    how = ["--parallel", way, "--batch", batch, "--accumulate", passes, "--steps", steps]
                    run = runs.get("--model", model, *data, *words, *transport, *how)
                    found.setdefault((model, network, way), []).append(run)
    rows = []
    for (model, network, way), results in found.items():
        step = sorted(run["step_ns"] * 1e-6 for run in results)
        first = results[0]
        sent = sum(first["bytes_per_worker"].values())
        waits = statistics.median(run["exposed_communication_share"] for run in results)
        rows.append([
            model, network, f"`{way}`", f"{statistics.median(step):.1f} ({step[0]:.1f} to {step[-1]:.1f})",
            f"{sent / first['steps'] / 2**20:.2f}", f"{first['bytes_per_worker']['model'] / first['steps'] / 2**20:.2f}",
            f"{waits:.0%}", f"{first['test_loss']:.3f}",
        ])  # fmt: skip
    print(table(["model", "network", "parallel", "a step, ms", "MiB sent", "of it between parts", "waiting", "test loss"], rows))


if __name__ == "__main__":
    main()
