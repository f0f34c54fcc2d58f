#!/usr/bin/env python3
"""The slowest all_reduce of a hundred, over udp that waits for every byte and over udp that does not, as root:
`bounded_loss.py build/release/bin/ranvier build/release/bin/lab_relay`

Claim: where packets vanish and round trips are long, an all_reduce of gradients that does not wait for the last hundredth
is slow less often; with --resync, by which ranks differ for a while, also where a host stalls now and then (--stall-ms).
One network for each condition (tests/support/lab/relay.cc), in which the two take turns; each sample is one operation on
the slower of two hosts, and p99 is over the samples of all turns.
"""

import argparse
import json
import pathlib
import random
import signal
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "support" / "lab"))

from lab import Lab, LabError, Relay, Result, Run, reason_to_skip  # noqa: E402

MIB = 1 << 20
LIMIT_S = 280
WAYS = ("exact", "bounded")


def transport_of(way: str, arguments: argparse.Namespace) -> str:
    if way == "exact":
        return "udp"
    return f"udp:loss={arguments.loss}" + (f",resync={arguments.resync}" if arguments.resync else "")


def wait_with_stalls(run: Run, stall_s: float, pause_s: float) -> list[Result]:
    """Host 1 stands still for so long, again and again, after pauses of random length."""
    until = time.monotonic() + LIMIT_S
    while stall_s > 0 and run.running() and time.monotonic() < until:
        time.sleep(random.uniform(0.5, 1.5) * pause_s)
        run.kill(1, signal.SIGSTOP)
        time.sleep(stall_s)
        run.kill(1, signal.SIGCONT)
    return run.wait(until - time.monotonic())


def samples(lab: Lab, arguments: argparse.Namespace, transport: str, size: int) -> tuple[list[float], float]:
    """Seconds of each operation, and the share of pieces that was lost."""
    file = lab.network.folder / "bench.json"
    words = [arguments.ranvier, "bench", "--transport", transport, "--insecure", "--no-pin", "-b", size, "-e", size, "-n", 1,
             "-w", 1, "--samples", arguments.samples, "--json", file]  # fmt: skip
    for result in wait_with_stalls(lab.start(words), arguments.stall_ms / 1e3, arguments.stall_every):
        if result.code != 0:
            why = f"had not ended after {LIMIT_S} s" if result.timed_out else result.err.strip()
            raise LabError(f"ranvier bench over {transport} on host {result.host}: {why}")
    (row,) = json.loads(file.read_text())["rows"]
    return [each / 1e6 for each in row["samples_us"]], row["lost_share"]


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def compare(arguments: argparse.Namespace, mib: float) -> dict:
    size = int(mib * MIB)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    lost = []
    relay = Relay(arguments.relay, rate=arguments.rate, loss=arguments.path_loss, delay_ms=arguments.delay_ms)
    with Lab(2, relay=relay) as lab:
        for turn in range(arguments.rounds):
            for way in WAYS if turn % 2 == 0 else reversed(WAYS):
                seconds, share = samples(lab, arguments, transport_of(way, arguments), size)
                times[way] += seconds
                if way == "bounded":
                    lost.append(share)
    row = {"bytes": size, "rate": arguments.rate, "path_loss": arguments.path_loss, "delay_ms": arguments.delay_ms,
           "resync": arguments.resync, "stall_ms": arguments.stall_ms, "lost_share": statistics.mean(lost), "seconds": times}  # fmt: skip
    for name, share in (("median", 0.5), ("p99", 0.99)):
        row[name] = {way: percentile(times[way], share) for way in WAYS}
        row[f"{name}_ratio"] = row[name]["bounded"] / row[name]["exact"]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(prog="bounded_loss.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("relay", type=pathlib.Path, help="lab_relay, which is built beside the tests")
    parser.add_argument("--mib", type=float, nargs="*", default=[0.5, 4], help="of the vectors (default: 0.5 4)")
    parser.add_argument("--rate", default="200Mbit", help="of the link (default: 200Mbit)")
    parser.add_argument("--path-loss", type=float, default=0.01, metavar="SHARE", help="of packets (default: 0.01)")
    parser.add_argument("--delay-ms", type=float, default=20, metavar="MS", help="each way (default: 20)")
    parser.add_argument("--loss", default="0.01", metavar="SHARE", help="that is tolerated (default: 0.01)")
    parser.add_argument("--resync", type=int, metavar="K", help="ranks may differ meanwhile (default: they never differ)")
    parser.add_argument("--stall-ms", type=float, default=0, metavar="MS", help="that host 1 stands still now and then")
    parser.add_argument("--stall-every", type=float, default=1, metavar="S", help="on average (default: 1)")
    parser.add_argument("--samples", type=int, default=50, metavar="N", help="a turn (default: 50)")
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="turns of each (default: 6)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results there")
    arguments = parser.parse_args()
    arguments.ranvier, arguments.relay = arguments.ranvier.resolve(), arguments.relay.resolve()
    if reason := reason_to_skip():
        print(f"bounded_loss.py: {reason}", file=sys.stderr)
        return 1
    rows = []
    print("| MiB | median exact, ms | bounded | ratio | p99 exact, ms | bounded | ratio | lost |\n|" + " --- |" * 8)
    try:
        for mib in arguments.mib:
            rows.append(row := compare(arguments, mib))
            cells = [f"{mib:g}"]
            for name in ("median", "p99"):
                cells += [f"{row[name][way] * 1e3:.1f}" for way in WAYS] + [f"{row[f'{name}_ratio']:.2f}"]
            print("| " + " | ".join([*cells, f"{row['lost_share']:.2%}"]) + " |", flush=True)
    except LabError as problem:
        print(f"bounded_loss.py: {problem}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
