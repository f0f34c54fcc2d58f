#!/usr/bin/env python3
"""What `ranvier plan` chooses against other ways that it could have chosen, measured; as root:
`sweep.py build/release/bin/ranvier`

On each laboratory network a training is recorded and the links are measured; the plan made of both is run, and so is
every combination of algorithm, bucket and codec, but for those that cannot be the best. Then the plan and the fastest of
them are run again, interleaved, --repeats times. The step time is the best of a combination's runs: other work on this
machine only ever adds to it. The regret is that of the plan over the least.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import sys

from laboratory import ALGORITHMS, Shape, add_networks, run  # first: it knows where lab lies
from lab import Lab, LabError, reason_to_skip

LIMIT_S = 120
RECORDED_STEPS = 60  # of which the median of 50 counts
NETWORKS = ["2:50Mbit", "2:200Mbit", "3:100Mbit", "4:50Mbit", "4:200Mbit", "4:100Mbit/25Mbit"]
BUCKETS = ["64K", "256K", "1G"]
# Codes that cannot be added go to the owners of parts and back, whatever the algorithm.
CODECS = ["int8", "hadamard:32+int4"]
FINALISTS = 6


@dataclasses.dataclass(frozen=True)
class Way:
    algorithm: str | None
    bucket: str
    codec: str = "none"

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.algorithm, self.bucket, self.codec)))

    def words(self) -> tuple[str, ...]:
        algorithm = ("--algorithm", self.algorithm) if self.algorithm else ()
        return (*algorithm, "--bucket", self.bucket, "--compress", self.codec)


class Sweep:
    def __init__(self, lab: Lab, arguments: argparse.Namespace):
        self.lab, self.arguments, self.folder = lab, arguments, lab.network.folder

    def run(self, *words: object, hosts: int | None = None) -> str:
        return run(self.lab, self.arguments.ranvier, *words, limit=LIMIT_S, hosts=hosts)

    def train(self, *words: object) -> dict:
        out = self.run("train", "--transport", "tcp", "--model", self.arguments.model, "--json", "-", *words)
        return json.loads(out)

    def plan(self) -> pathlib.Path:
        recorded, topology, plan = (self.folder / name for name in ("recorded", "topology.toml", "plan.toml"))
        self.train("--record", recorded, "--steps", RECORDED_STEPS)
        self.run("probe", "--transport", "tcp", "--samples", "5", "--bytes", "1M", "--output", topology)
        # Gradients in every step, as in all that is measured beside it.
        words = ("plan", "--workload", recorded / "workload.toml", "--topology", topology, "--sync", "bsp", "--output", plan)
        print(self.run(*words, hosts=1), file=sys.stderr, flush=True)
        return plan

    def rows(self) -> list[dict]:
        """The plan's first."""
        plan = self.plan()
        times: dict[Way | None, float] = {}  # ms
        predicted = 0.0

        def take(way: Way | None) -> None:
            nonlocal predicted
            found = self.train("--steps", self.arguments.steps, *(way.words() if way else ("--plan", plan)))
            times[way] = min(times.get(way, float("inf")), found["step_ns"] / 1e6)
            if found["plan"]:
                predicted = found["plan"]["predicted_step_ns"] / 1e6

        take(None)
        for codec, bucket in itertools.product(CODECS, BUCKETS):
            take(Way(None, bucket, codec))
        for algorithm, bucket in itertools.product(ALGORITHMS, BUCKETS):
            take(Way(algorithm, bucket))
        # bf16 halves the bytes of each round and nothing else: at best it takes half of what the same way takes plain.
        for way in [way for way in times if way and way.codec == "none"]:
            if times[way] / 2 < min(times.values()):
                take(dataclasses.replace(way, codec="bf16"))
        finalists = sorted(filter(None, times), key=lambda way: times[way])[:FINALISTS]
        for _ in range(self.arguments.repeats):
            for way in [None, *finalists]:
                take(way)
        return [{"choice": str(way or "the plan"), "step_ms": time, "predicted_ms": predicted} for way, time in times.items()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="sweep.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program, with ranvier-train beside it")
    add_networks(parser, NETWORKS)
    parser.add_argument("--model", default="mlp", help="what is trained (default: mlp)")
    parser.add_argument("--steps", type=int, default=22, metavar="N", help="of each run, fewer than after which a plan is made anew (default: 22)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds over the plan and the fastest, after the one over all (default: 3)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results there")
    arguments = parser.parse_args()
    arguments.ranvier = arguments.ranvier.resolve()
    if reason := reason_to_skip():
        print(f"sweep.py: {reason}", file=sys.stderr)
        return 1
    print("| network | ways run | predicted, ms | the plan, ms | best of all, ms | it is | regret |\n|" + " --- |" * 7, flush=True)
    results = {}
    try:
        for network in arguments.networks:
            shape = Shape.parse(network)
            with shape.lab() as lab:
                rows = results[network] = Sweep(lab, arguments).rows()
            planned = rows[0]
            best = min(rows, key=lambda row: row["step_ms"])
            print(
                f"| {shape} | {len(rows) - 1} | {planned['predicted_ms']:.1f} | {planned['step_ms']:.1f} | {best['step_ms']:.1f} | "
                f"{best['choice']} | {planned['step_ms'] / best['step_ms'] - 1:.1%} |", flush=True,
            )  # fmt: skip
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    except LabError as problem:
        print(f"sweep.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
