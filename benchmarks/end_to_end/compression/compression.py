#!/usr/bin/env python3
"""What codecs cost in accuracy and save in bits: Fashion-MNIST, 4 workers x batch 32, 4 epochs, one table.

usage: compression.py RANVIER [--specs SPEC …] [--seeds 0 1 2] [--validation] [--link-rate 200Mbit] [--results FOLDER]
                      [--memory EXCHANGE_MEMORY]

Runs are compared at equal seed: between seeds, the dense run itself differs by 0.7 points. What a codec loses is the mean
of those differences, behind it half of its 95 % confidence interval (Student's t, paired). Each run's JSON is kept in the
folder, and one that is there is not run again, so that a table of hours can be made in pieces. Controls are specs that
must fail (methods known not to train at these settings); they are marked. Where a codec warms up, bits and ratio are
those of a short run without warm-up: what training costs from then on. Memory, in bytes a parameter, is what a worker
keeps for the codec from step to step; with --memory, which names benchmarks/exchange's program, in parentheses the most
that codec and messages hold within a step, all of the model in one bucket.

With --validation, the last 10,000 training images are what is scored and the others are trained on: presets are chosen
there, and the test images see the choice once.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
import re
import statistics
import struct
import subprocess
import sys

# The spec, the accuracy that it may lose in points, and the ratio that it has to reach; none: it is a control.
CLAIMS: dict[str, tuple[float, float] | None] = {
    "int8:rounding=stochastic": (0.3, 3.8),
    "hadamard:32+int4": (0.3, 7),
    "powersgd:4": (0.4, 20),
    "eden:1": (0.8, 29),
    "eden:1,ef=0": (0.8, 29),
    "qsgd:7+rans": (0.3, 18),
    # Left to itself, a short code goes by all_gather, which takes less time for more bytes.
    "dgc:0.001,warmup=469,clip=1,by=reduce_scatter": (1.8, 600),
    "terngrad": (2.2, 16),
    "safe": (0.5, 25),
    "strong": (1, 60),
    "extreme": (2, 300),
    "topk:0.001,by=reduce_scatter": None,
    "sign": None,
}
DENSE = "none"
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
HELD_OUT = 10_000
FEWEST_SEEDS = 3  # for a claim
# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201)


def hold_out(folder: pathlib.Path) -> pathlib.Path:
    """A folder of IDX files whose test images are the last training images; made once."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, dimensions in (("images-idx3", 3), ("labels-idx1", 1)):
        content = gzip.decompress((FASHION_MNIST / f"train-{kind}-ubyte.gz").read_bytes())
        begin = 4 + 4 * dimensions
        magic, *sizes = struct.unpack(f">{1 + dimensions}I", content[:begin])
        border = begin + (len(content) - begin) * (sizes[0] - HELD_OUT) // sizes[0]
        for part, count, values in (
            ("train", sizes[0] - HELD_OUT, content[begin:border]),
            ("t10k", HELD_OUT, content[border:]),
        ):
            header = struct.pack(f">{1 + dimensions}I", magic, count, *sizes[1:])
            (folder / f"{part}-{kind}-ubyte").write_bytes(header + values)
    return folder


def half_width(differences: list[float]) -> str:
    """Of the 95 % confidence interval of their mean."""
    if len(differences) < 2:
        return "one seed"
    quantile = T95[min(len(differences) - 2, len(T95) - 1)]
    return f"± {quantile * statistics.stdev(differences) / len(differences) ** 0.5:.2f}"


def run(program: str, spec: str, seed: int, options: argparse.Namespace, steps: int | None = None) -> dict:
    rate = options.link_rate or "free"
    steps = steps or options.steps
    split = "_validation" if options.validation else ""
    name = f"{spec}_{seed}_{rate}_{steps or 'all'}{split}".replace("/", "-")
    file = options.results / f"{name}.json"
    if not file.exists():
        print(f"{spec}, seed {seed}", file=sys.stderr)
        command = [program, "train", "--workers", "4", "--epochs", str(options.epochs), "--seed", str(seed)]
        command += ["--compress", spec, "--transport", "tcp", "--json", str(file)]
        command += ["--link-rate", options.link_rate] if options.link_rate else []
        command += ["--steps", str(steps)] if steps else []
        command += ["--data", str(options.data)] if options.validation else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(file.read_text())


def most_held(program: str, parameters: int, spec: str) -> str:
    lines = subprocess.run([program, str(parameters), spec], check=True, capture_output=True, text=True).stdout
    return f" ({lines.strip().strip('|').split('|')[-1].strip()})"


def row(spec: str, runs: list[dict], dense: list[dict], program: str | None, warm: dict | None = None) -> str:
    lost = [100 * (other["accuracy"] - each["accuracy"]) for each, other in zip(runs, dense, strict=True)]
    bits = statistics.mean(each["bits_per_parameter"] for each in ([warm] if warm else runs))
    ratio = statistics.mean(each["bits_per_parameter"] for each in dense) / bits
    step = statistics.median(1000 * each["seconds"] / each["steps"] for each in runs)
    memory = f"{runs[0]['codec_state_bytes'] / runs[0]['parameters']:.1f}"
    memory += most_held(program, runs[0]["parameters"], spec) if program else ""
    if spec not in CLAIMS:
        verdict = ""
    elif (claim := CLAIMS[spec]) is None:
        verdict = "control: fails" if statistics.mean(lost) >= 5 else "control: does NOT fail"
    else:
        reached = statistics.mean(lost) <= claim[0] and ratio >= claim[1]
        words = ("reached", "MISSED") if len(runs) >= FEWEST_SEEDS else ("within", "BEYOND")  # which proves nothing yet
        verdict = f"{words[0] if reached else words[1]}: at most {claim[0]} at {claim[1]} x"
    accuracies = " ".join(f"{100 * each['accuracy']:.2f}" for each in runs)
    losses = " ".join(f"{each:+.2f}" for each in lost)
    return (
        f"| `{spec}` | {accuracies} | {statistics.mean(lost):+.2f} {half_width(lost)} ({losses}) | {bits:.3g} | "
        f"{ratio:.1f} | {step:.1f} | {memory} | {verdict} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranvier")
    parser.add_argument("--specs", nargs="+", default=list(CLAIMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--link-rate")
    parser.add_argument("--memory")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("build/compression"))
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    options.data = hold_out(options.results / "validation") if options.validation else None

    dense = [run(options.ranvier, DENSE, seed, options) for seed in options.seeds]
    print("| codec | accuracy, % | points lost | bits a parameter | ratio | ms a step | memory, B a parameter | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    print(row(DENSE, dense, dense, options.memory))
    for spec in options.specs:
        plain_spec = re.sub(r",warmup=\d+", "", spec)
        warm = run(options.ranvier, plain_spec, options.seeds[0], options, steps=50) if plain_spec != spec else None
        runs = [run(options.ranvier, spec, seed, options) for seed in options.seeds]
        print(row(spec, runs, dense, options.memory, warm), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
