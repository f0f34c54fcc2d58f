#!/usr/bin/env python3
"""What encryption costs tcp and udp between two hosts of the laboratory, as root: `encrypted.py build/release/bin/ranvier`

Claims: at 1 Gbit/s encryption costs at most 2 % of throughput, and at most 1.2 times the processor time of AES itself;
the last column says whether that is so, and the exit status is 3 where it is not. Plain and encrypted runs take turns,
each round has its own difference, and medians and quarters of the rounds are told: others on the machine disturb both.
Processor time is user and system time of both ranks; a short and a long run are subtracted, which leaves that of the
operations between. Most of it is not the bytes' but that of ranks that poll and wake while the link is busy, which
comes and goes with what else they have to do: tls_benchmark counts the work alone. A GB is of what leaves a host: it is
encrypted once and decrypted once. AES alone is `openssl speed` on records as large as tcp's and on packets as large as
udp's.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "support" / "lab"))

from lab import Lab, LabError, reason_to_skip  # noqa: E402

BYTES = 16 << 20
SHORT, LONG, SAMPLES = 3, 23, 3
LIMIT_S = 120
MOST_LOSS, MOST_MORE = 0.02, 1.2  # the goals: of throughput, and of AES's own time
PIECES = {"tcp": 16384, "udp": 1400}  # bytes that are encrypted at a time


def run(lab: Lab, program: pathlib.Path, transport: str, plain: bool, iterations: int) -> tuple[float, float]:
    """Seconds of one operation, and of all processors together for all of them."""
    file = lab.network.folder / "bench.json"
    words = [program, "bench", "--transport", transport, "--no-pin", "--no-measure", "--algorithm", "ring", "-b", BYTES, "-e", BYTES,
             "-n", iterations, "-w", 1, "--samples", SAMPLES, "--json", file, *(["--insecure"] if plain else [])]  # fmt: skip
    timed = ["bash", "-c", 'TIMEFORMAT="cpu %U %S"; time "$@"', "-", *map(str, words)]
    cpu = 0.0
    for result in lab.run(timed, limit=LIMIT_S):
        if result.code != 0:
            raise LabError(f"ranvier bench over {transport} on host {result.host}: {result.err.strip()}")
        cpu += sum(map(float, re.search(r"cpu (\S+) (\S+)", result.err).groups()))
    (row,) = json.loads(file.read_text())["rows"]
    if row["wrong"]:
        raise LabError(f"{row['wrong']} elements over {transport} are wrong")
    return row["time_us"] / 1e6, cpu


def aes_seconds_per_gb(piece: int) -> float:
    """To encrypt and to decrypt."""
    seconds = 0.0
    for way in ([], ["-decrypt"]):
        words = ["openssl", "speed", "-mr", "-seconds", "1", *way, "-evp", "aes-128-gcm", "-bytes", str(piece)]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        seconds += 1e9 / float(re.search(r"^\+F:.*:([\d.]+)$", said, re.MULTILINE).group(1))
    return seconds


@dataclasses.dataclass
class Turn:
    """One round: plain and encrypted, seconds of an operation and CPU seconds of a GB."""

    seconds: dict[bool, float]
    cpu: dict[bool, float]
    aes: float

    @property
    def more(self) -> float:
        return self.cpu[False] - self.cpu[True]


def measure(arguments: argparse.Namespace, transport: str, plain_first: bool) -> Turn:
    gigabytes = 2 * BYTES * SAMPLES * (LONG - SHORT) / 1e9
    turn = Turn({}, {}, aes_seconds_per_gb(PIECES[transport]))
    with Lab(hosts=2, rate=arguments.rate) as lab:
        for plain in (plain_first, not plain_first):
            _, little = run(lab, arguments.ranvier, transport, plain, SHORT)
            turn.seconds[plain], much = run(lab, arguments.ranvier, transport, plain, LONG)
            turn.cpu[plain] = (much - little) / gigabytes
    return turn


def spread(values: list[float], digits: int) -> str:
    """The median, and the quarters around it."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def row(transport: str, turns: list[Turn]) -> tuple[str, bool]:
    rates = {plain: [8 * BYTES / turn.seconds[plain] / 1e6 for turn in turns] for plain in (True, False)}
    losses = [1 - turn.seconds[True] / turn.seconds[False] for turn in turns]
    ratios = [turn.more / turn.aes for turn in turns]
    met = statistics.median(losses) <= MOST_LOSS and statistics.median(ratios) <= MOST_MORE
    cells = [
        transport, *(spread(rates[plain], 0) for plain in (True, False)), spread([100 * loss for loss in losses], 1),
        *(spread([turn.cpu[plain] for turn in turns], 2) for plain in (True, False)),
        f"{statistics.median(turn.aes for turn in turns):.2f}", spread(ratios, 2), "met" if met else "missed",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |", met


def main() -> int:
    parser = argparse.ArgumentParser(prog="encrypted.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--rate", default="1Gbit", help="of the link (default: 1Gbit)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each, 2 at least (default: 9)")
    parser.add_argument("--transport", choices=PIECES, action="append", help="default: both")
    arguments = parser.parse_args()
    arguments.ranvier = arguments.ranvier.resolve()
    if reason := reason_to_skip():
        print(f"encrypted.py: {reason}", file=sys.stderr)
        return 1
    heads = ["", "Mbit/s plain", "encrypted", "lost, %", "CPU s/GB plain", "encrypted", "AES alone", "more / AES", "goals"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    all_met = True
    try:
        for transport in arguments.transport or PIECES:
            turns = [measure(arguments, transport, number % 2 == 0) for number in range(max(arguments.rounds, 2))]
            text, met = row(transport, turns)
            print(text, flush=True)
            all_met &= met
    except LabError as problem:
        print(f"encrypted.py: {problem}", file=sys.stderr)
        return 1
    return 0 if all_met else 3


if __name__ == "__main__":
    sys.exit(main())
