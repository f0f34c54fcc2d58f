#!/usr/bin/env python3
"""Steps of DistributedDataParallel between hosts on slow links, with ranvier's codecs beside gloo with and without
torch's fp16 hook, as root: `PYTHONPATH=build/release/python python beside_ddp.py --rates 200Mbit 1Gbit`

4 hosts of the laboratory train the same CNN of 1.07 million parameters, each on 32 images a step. All ways run in one
job and take turns: a round is some steps of each, in an order that changes from round to round. A time is that of the
slowest host; ratios compare ways within a round. "alone" exchanges nothing, and
"alone/ddp" neither, under DDP: what hosts compute, which share the cores of this machine; CPU is that of one host. Bits
a parameter are what an interface really sent, headers included, over how often an all_reduce sends a value: f32 has 32
and some.

A way is BACKEND or BACKEND/HOOK: gloo, gloo/fp16_compress_hook (torch's), ranvier, ranvier/strong (a codec or preset
over ranvier's process group), gloo/strong (the same over gloo's).
"""

import argparse
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tests" / "support" / "lab"))

from lab import Lab, LabError, reason_to_skip  # noqa: E402

GLOO, FP16 = "gloo", "gloo/fp16_compress_hook"
WAYS = [
    GLOO, FP16, "alone", "alone/ddp", "ranvier", "ranvier/safe", "ranvier/strong", "ranvier/extreme",
    "ranvier/powersgd:4", "gloo/strong",
]  # fmt: skip
# The most that a compressed step may take, of gloo's and of fp16's, by the rate of the links.
GOALS = {"200Mbit": (0.18, 0.35), "1Gbit": (0.4, 0.7)}


def measure(arguments: argparse.Namespace, rate: str) -> dict:
    with Lab(arguments.hosts, rate) as lab:
        words = [sys.executable, HERE / "ddp_rank.py", arguments.rounds, arguments.steps, *arguments.ways]
        words += ["--insecure"] if arguments.insecure else []
        results = lab.run(words, limit=arguments.limit)
    for result in results:
        if result.code != 0:
            why = f"it had not ended after {arguments.limit:g} s" if result.timed_out else result.err.strip()
            raise LabError(f"training on host {result.host} failed at {rate}: {why}")
    return {"rate": rate, "hosts": arguments.hosts, **json.loads(results[0].out)}


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def ratio(run: dict, way: str, other: str) -> tuple[float, float, float]:
    """Within rounds, which share what the machine does meanwhile."""
    pairs = zip(run["seconds"][way], run["seconds"][other], strict=True)
    return quartiles([mine / theirs for mine, theirs in pairs])


def cell(values: tuple[float, float, float]) -> str:
    low, middle, high = values
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def verdict(run: dict, way: str) -> str:
    """Of the goal, which is one of compressed steps."""
    backend, _, hook = way.partition("/")
    if run["rate"] not in GOALS or run["hosts"] != 4 or backend != "ranvier" or not hook:
        return ""
    goals = zip((GLOO, FP16), GOALS[run["rate"]], strict=True)
    reached = all(ratio(run, way, other)[1] <= most for other, most in goals)
    return "reached" if reached else "MISSED"


def print_table(run: dict) -> None:
    of = f"{run['parameters']} parameters, {run['rounds']} rounds of {run['steps']} steps"
    print(f"\n{run['rate']}, {run['hosts']} hosts, {of}")
    print("| way | ms a step | of gloo | of gloo with fp16 | CPU ms | bits a parameter | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for way in run["seconds"]:
        low, middle, high = (1000 * value for value in quartiles(run["seconds"][way]))
        ratios = " | ".join(cell(ratio(run, way, other)) for other in (GLOO, FP16))
        rest = f"{1000 * statistics.median(run['processor_seconds'][way]):.1f} | {run['bits_per_parameter'][way]:.3g}"
        time = f"{middle:.1f} ({low:.1f} to {high:.1f})"
        print(f"| `{way}` | {time} | {ratios} | {rest} | {verdict(run, way)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", default=WAYS, metavar="WAY", help=f"besides {GLOO} and {FP16}")
    parser.add_argument("--rates", nargs="+", default=list(GOALS), metavar="RATE", help="of each link, both ways")
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="default: 4")
    parser.add_argument("--rounds", type=int, default=11, metavar="N", help="default: 11")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="of each way in a round (default: 5)")
    parser.add_argument("--insecure", action="store_true", help="encrypt nothing: as gloo, which never does")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="for each rate (default: 600)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all times there")
    arguments = parser.parse_args()
    arguments.ways = list(dict.fromkeys([GLOO, FP16, *arguments.ways]))
    if wrong := [way for way in arguments.ways if way.partition("/")[0] not in ("alone", "gloo", "ranvier")]:
        parser.error(f"'{wrong[0]}' is no way: write gloo, ranvier or alone, with /HOOK behind it or not")
    if reason := reason_to_skip():
        print(f"beside_ddp.py: {reason}", file=sys.stderr)
        return 1
    runs = []
    try:
        for rate in arguments.rates:
            runs.append(measure(arguments, rate))
            print_table(runs[-1])
    except LabError as problem:
        print(f"beside_ddp.py: {problem}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps({"insecure": arguments.insecure, "runs": runs}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
