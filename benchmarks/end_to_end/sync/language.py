#!/usr/bin/env python3
"""A language model of characters by DiLoCo and by codecs: validation loss, rounds and bytes beside bsp.
`language.py build/release/bin/ranvier book.txt --seeds 0 1 2 [--model lstm] [--codecs int8 topk:0.1+int8 …]`

With --codecs, what those lose beside bsp without one; AdamW has the momentum, so that they can have none.

Twenty rounds are few for the paper's momentum of 0.9, which remembers ten: so there are ways with 0.5 too.
The transformer has 3 blocks of width 96 and windows of 64 characters; 4 workers with batches of 12, AdamW at 0.002 in the first
tenth of a cosine, so nearly constant: at its end nothing would be learnt, and 600 steps are few. Any text will do; losses of
two texts have nothing to do with each other.
"""

import argparse
import pathlib
import sys

from runs import Runs, by_seed, mean, table

WAYS = {
    "bsp": [],
    "local:30": [],
    "diloco:30": [],
    "diloco:30 int4": ["--compress", "hadamard:32+int4"],
    "diloco:30,rate=1,momentum=0.5": [],
    "diloco:30,rate=1,momentum=0.5 int4": ["--compress", "hadamard:32+int4"],
    "diloco:30,fragments=3,delay=5,merge=0.5": [],
    "diloco:30,fragments=3,delay=5,merge=0.5 int4": ["--compress", "hadamard:32+int4"],
}


def row(way: str, runs: list[dict], bsp: list[dict]) -> list[str]:
    sent = mean(r["bytes_sent_per_worker"] for r in runs)
    return [
        f"`{way}`",
        f"{mean(r['test_loss'] for r in runs):.4f}",
        by_seed((r["test_loss"] - b["test_loss"] for r, b in zip(runs, bsp, strict=True)), "+.4f"),
        f"{100 * mean(r['test_loss'] / b['test_loss'] - 1 for r, b in zip(runs, bsp, strict=True)):+.2f}",
        f"{mean(r['bits_per_character'] for r in runs):.3f}",
        str(runs[0]["rounds"]["inside"]),
        f"{sent / 2**20:.2f}",
        f"{mean(b['bytes_sent_per_worker'] for b in bsp) / sent:.0f}",
        f"{mean(r['seconds'] for r in runs):.0f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="language.py", description=__doc__.partition(":\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, metavar="WAY", help="default: all, or bsp and --codecs")
    parser.add_argument("--codecs", nargs="+", default=[], metavar="SPEC", help="bsp by these")
    parser.add_argument("--model", default="transformer", choices=("transformer", "lstm"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--steps", type=int, default=600, metavar="N")
    parser.add_argument("--epochs", type=int, default=10, metavar="N", help="the cosine ends after so many times --steps")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="add the runs there, and take those that it has")
    arguments = parser.parse_args()
    # The text is cut so that this many steps are an epoch.
    characters = arguments.steps * 4 * 12 * 64 * 10 // 9 + 10 * 64
    known = Runs(arguments.ranvier, arguments.json, [])
    part = arguments.text.with_name(f"{arguments.text.stem}-{characters}.txt")
    text = arguments.text.read_bytes()
    if len(text) < characters:
        sys.exit(f"language.py: {arguments.text} has {len(text)} bytes; {arguments.steps} steps want {characters}")
    part.write_bytes(text[:characters])
    common = (
        "--workers", 4, "--model", arguments.model, "--data", part, "--optimizer", "adamw", "--lr", 0.002, "--batch", 12,
        "--epochs", arguments.epochs, "--steps", arguments.steps,
    )  # fmt: skip
    ways = {way: WAYS[way] for way in arguments.ways or (["bsp"] if arguments.codecs else WAYS)}
    ways |= {f"bsp {spec}": ["--compress", spec] for spec in arguments.codecs}
    runs = {
        way: [known.get(*common, "--seed", seed, "--sync", way.split()[0], *options) for seed in arguments.seeds]
        for way, options in ways.items()
    }
    first = runs[next(iter(ways))]
    columns = ["policy", "validation loss", "against bsp, by seed", "in %", "bits a character", "rounds", "MiB a worker",
               "times fewer bytes", "seconds"]  # fmt: skip
    print(table(columns, (row(way, runs[way], first) for way in ways)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
