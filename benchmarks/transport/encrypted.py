#!/usr/bin/env python3
"""What encryption costs tcp and udp between two hosts of the laboratory, as root: `encrypted.py build/release/bin/ranvier`

Claims: at 1 Gbit/s encryption costs next to no throughput, and processor time of the order of AES itself. Plain and
encrypted runs take turns. Processor time is user and system time of both ranks; a short and a long run are subtracted,
which leaves that of the operations between. A GB is of what leaves a host: it is encrypted once and decrypted once.
AES alone is `openssl speed` on records as large as tcp's and on packets as large as udp's.
"""

import argparse
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
    words = ["openssl", "speed", "-mr", "-seconds", "1", "-evp", "aes-128-gcm", "-bytes", str(piece)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return 2e9 / float(re.search(r"^\+F:.*:([\d.]+)$", said, re.MULTILINE).group(1))


def main() -> int:
    parser = argparse.ArgumentParser(prog="encrypted.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("--rate", default="1Gbit", help="of the link (default: 1Gbit)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each (default: 3)")
    arguments = parser.parse_args()
    arguments.ranvier = arguments.ranvier.resolve()
    if reason := reason_to_skip():
        print(f"encrypted.py: {reason}", file=sys.stderr)
        return 1
    gigabytes = 2 * BYTES * SAMPLES * (LONG - SHORT) / 1e9
    print("| | Mbit/s plain | encrypted | CPU s/GB plain | encrypted | more / AES alone |\n| --- | --- | --- | --- | --- | --- |")
    try:
        for transport, piece in PIECES.items():
            rates: dict[bool, list[float]] = {True: [], False: []}
            costs: dict[bool, list[float]] = {True: [], False: []}
            aes = []
            for _ in range(arguments.rounds):
                aes.append(aes_seconds_per_gb(piece))
                for plain in (True, False):
                    with Lab(hosts=2, rate=arguments.rate) as lab:
                        _, little = run(lab, arguments.ranvier, transport, plain, SHORT)
                        seconds, much = run(lab, arguments.ranvier, transport, plain, LONG)
                    rates[plain].append(8 * BYTES / seconds / 1e6)
                    costs[plain].append((much - little) / gigabytes)
            rate, cost = ({plain: statistics.median(of) for plain, of in each.items()} for each in (rates, costs))
            more, alone = cost[False] - cost[True], statistics.median(aes)
            print(f"| {transport} | {rate[True]:.0f} | {rate[False]:.0f} | {cost[True]:.2f} | {cost[False]:.2f} | "
                  f"{more:.2f} / {alone:.2f} = {more / alone:.2f} |", flush=True)  # fmt: skip
    except LabError as problem:
        print(f"encrypted.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
