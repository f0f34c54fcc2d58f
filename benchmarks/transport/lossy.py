#!/usr/bin/env python3
"""all_reduce over tcp and udp between two hosts whose link loses and delays packets, as root:
`lossy.py build/release/bin/ranvier build/release/bin/lab_relay`

Claims: udp keeps the line's rate where packets vanish at random, costs nothing where none do, and shares a full link
with tcp. Each condition is a network of its own (tests/support/lab/relay.cc), in which the transports take turns of
--samples each; tcp with both of the kernel's congestion controls, and with several --sockets a link. busbw is the rate at
which the link is used, in each direction; neither encrypts. For the share of a full link a tcp job and a udp job run at
once, and the relay counts what it delivers of each, from some seconds after the beginning.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "support" / "lab"))

from lab import Lab, LabError, Relay, reason_to_skip  # noqa: E402

MIB = 1 << 20
LIMIT_S = 280
SETTLE_S = 3
FAIR_PATHS = ((1, 5), (1, 50), (20, 50))  # delay and queue of the shared link in ms
CONTROLS = ("cubic", "bbr")  # of tcp


@dataclasses.dataclass(frozen=True)
class Condition:
    name: str
    rate: str
    mib: float
    loss: float = 0
    delay_ms: float = 0

    def relay(self, program: pathlib.Path) -> Relay:
        return Relay(program, rate=self.rate, loss=self.loss, delay_ms=self.delay_ms)


CONDITIONS = {
    "clean": Condition("clean, 200 Mbit/s", "200Mbit", 4),
    "clean20": Condition("20 ms, 200 Mbit/s", "200Mbit", 4, delay_ms=20),
    "loss": Condition("1 % loss, 200 Mbit/s", "200Mbit", 4, loss=0.01),
    "loss20": Condition("1 % loss, 20 ms, 200 Mbit/s", "200Mbit", 4, loss=0.01, delay_ms=20),
    "little": Condition("0.1 % loss, 20 ms, 200 Mbit/s", "200Mbit", 4, loss=0.001, delay_ms=20),
}


def words(program: pathlib.Path, transport: str, size: int, samples: int, file: pathlib.Path, sockets: int = 1) -> list:
    return [
        program, "bench", "--transport", transport, "--sockets", sockets, "--insecure", "--no-pin", "--algorithm", "ring",
        "-b", size, "-e", size, "-n", 1, "-w", 1, "--samples", samples, "--json", file,
    ]  # fmt: skip


def seconds(lab: Lab, program: pathlib.Path, transport: str, size: int, samples: int, sockets: int = 1) -> float:
    """The median of one operation."""
    file = lab.network.folder / "bench.json"
    for result in lab.run(words(program, transport, size, samples, file, sockets), limit=LIMIT_S):
        if result.code != 0:
            why = f"had not ended after {LIMIT_S} s" if result.timed_out else result.err.strip()
            raise LabError(f"ranvier bench over {transport} on host {result.host}: {why}")
    (row,) = json.loads(file.read_text())["rows"]
    if row["wrong"]:
        raise LabError(f"{row['wrong']} elements of all_reduce over {transport} are wrong")
    return row["time_us"] / 1e6


def ways_of_tcp(sockets: list[int]) -> dict[str, tuple[str, int]]:
    return {f"tcp {control}" + (f", {n} sockets" if n > 1 else ""): (control, n) for control in CONTROLS for n in sockets}


def compare(arguments: argparse.Namespace, condition: Condition) -> dict:
    size = int(condition.mib * MIB)
    times: dict[str, list[float]] = {name: [] for name in (*ways_of_tcp(arguments.sockets), "udp")}
    with Lab(2, relay=condition.relay(arguments.relay)) as lab:
        for _ in range(arguments.rounds):
            for name, (control, sockets) in ways_of_tcp(arguments.sockets).items():
                lab.network.set_congestion_control(control)
                times[name].append(seconds(lab, arguments.ranvier, "tcp", size, arguments.samples, sockets))
            times["udp"].append(seconds(lab, arguments.ranvier, "udp", size, arguments.samples))
    rates = {name: 8 * size / statistics.median(found) for name, found in times.items()}
    return {"condition": condition.name, "bytes": size, "bits_per_second": rates, "seconds": times}


def print_comparison(row: dict) -> None:
    rates = row["bits_per_second"]
    cells = [row["condition"], *(f"{rate / 1e6:.1f}" for rate in rates.values())]
    cells += [f"{rates['udp'] / rate:.2f}" for name, rate in rates.items() if name != "udp"]
    print("| " + " | ".join(cells) + " |", flush=True)


def shares(arguments: argparse.Namespace, control: str, delay_ms: float, queue_ms: float) -> dict:
    """Of a full link, while a tcp and a udp job are on it, by the bytes that the relay delivers of each."""
    size = 32 * MIB  # long enough for a flow to find its rate
    lab = Lab(2, relay=Relay(arguments.relay, rate="100Mbit", delay_ms=delay_ms, queue_ms=queue_ms))
    began = time.monotonic()
    with lab:
        lab.network.set_congestion_control(control)
        files = {transport: lab.network.folder / f"{transport}.json" for transport in ("tcp", "udp")}
        runs = [lab.start(words(arguments.ranvier, name, size, 1000, file)) for name, file in files.items()]
        time.sleep(arguments.fair_seconds)
        for run in runs:
            if len(run.running()) < lab.hosts:
                raise LabError(f"a job ended: {run.said(0, 'err').strip()}")
        seconds_of_both = int(time.monotonic() - began)
    counted = lab.network.relayed[SETTLE_S:seconds_of_both]
    tcp, udp = (sum(column) for column in zip(*counted, strict=True))
    return {"control": control, "delay_ms": delay_ms, "queue_ms": queue_ms, "tcp": tcp / (tcp + udp), "udp": udp / (tcp + udp), "seconds": counted}


def main() -> int:
    parser = argparse.ArgumentParser(prog="lossy.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("relay", type=pathlib.Path, help="lab_relay, which is built beside the tests")
    parser.add_argument("--conditions", nargs="*", default=list(CONDITIONS), choices=CONDITIONS, metavar="NAME",
                        help=f"of {', '.join(CONDITIONS)} (default: all)")  # fmt: skip
    parser.add_argument("--samples", type=int, default=3, metavar="N", help="a turn (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each transport (default: 3)")
    parser.add_argument("--sockets", nargs="*", type=int, default=[1], metavar="N", help="of each link over tcp (default: 1)")
    parser.add_argument("--fair", nargs="*", default=list(CONTROLS), metavar="CONTROL", help="of tcp beside udp on one link")
    parser.add_argument("--fair-seconds", type=float, default=20, metavar="S", help="of sharing a link (default: 20)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results there")
    arguments = parser.parse_args()
    arguments.ranvier, arguments.relay = arguments.ranvier.resolve(), arguments.relay.resolve()
    if reason := reason_to_skip():
        print(f"lossy.py: {reason}", file=sys.stderr)
        return 1
    rows, fair = [], []
    try:
        if arguments.conditions:
            tcp = ways_of_tcp(arguments.sockets)
            heads = ["", *(f"{name}, Mbit/s" for name in tcp), "udp, Mbit/s",
                     *(f"udp / {name.removeprefix('tcp ')}" for name in tcp)]  # fmt: skip
            print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
        for name in arguments.conditions:
            rows.append(compare(arguments, CONDITIONS[name]))
            print_comparison(rows[-1])
        for control in arguments.fair:
            for delay_ms, queue_ms in FAIR_PATHS:
                fair.append(found := shares(arguments, control, delay_ms, queue_ms))
                path = f"100 Mbit/s, {delay_ms} ms, a queue of {queue_ms} ms"
                print(f"{path}: tcp {control} {found['tcp']:.0%}, udp {found['udp']:.0%}", flush=True)
    except LabError as problem:
        print(f"lossy.py: {problem}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows, "fair": fair}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
