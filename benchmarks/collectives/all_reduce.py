#!/usr/bin/env python3
"""all_reduce from 4 bytes to 256 MiB beside Open MPI, and through torch.distributed beside gloo: the recorded tables of
docs/benchmarks.md, with 2 and 4 ranks, over shared memory (in any memory, and in memory that ranvier lends) and over tcp.
--crowded runs 8 and 16 ranks beside Open MPI instead: more than this machine has cores, all of which yield as they wait.
--beside N has N processes compute meanwhile, as other people's do on a machine that is shared.

Each world is one run of `ranvier bench`, which measures all peers sample by sample in turn and leaves every sample in
FOLDER/NAME.json. The tables, printed and in FOLDER/tables.md, are of all such files that FOLDER has: a run that was cut
short is completed with --only. A cell has ranvier's time and the peer's, medians in us, and the ratio, the peer's time /
ranvier's of samples of one turn: the median with the quartiles in brackets, in bold where it is below the goal.
Stop what else runs on the machine first (`ranvier doctor` says how busy it is).

usage: all_reduce.py build/release/bin/ranvier PYTHON_WITH_TORCH [--folder FOLDER] [--samples 15] [-e 256M]
                     [--beside N] [--crowded | --only NAME …]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass


@contextlib.contextmanager
def busy_processes(count: int):
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass
class World:
    name: str
    title: str
    ranks: int
    flags: list[str]
    baselines: str
    goals: tuple[float, ...] = (1, 1, 1, 1)  # of the ratio, up to 4 KiB, 256 KiB, 16 MiB, and beyond

    def goal(self, size: int) -> float:
        return self.goals[sum(size > 1 << shift for shift in (12, 18, 24))]

    def measured(self, options: argparse.Namespace) -> None:
        command = [options.ranvier, "bench", "--ranks", str(self.ranks), *self.flags]
        command += ["-b", options.minbytes, "-e", options.maxbytes, "-f", str(options.stepfactor)]
        command += ["--samples", str(options.samples), "--baseline", self.baselines, "--python", options.python]
        file = self.file(options.folder)
        file.unlink(missing_ok=True)
        try:
            subprocess.run([*command, "--json", str(file)], check=True, stdout=subprocess.DEVNULL)
        except subprocess.CalledProcessError:  # it may have found wrong results: those are for no table
            file.unlink(missing_ok=True)
            raise

    def file(self, folder: pathlib.Path) -> pathlib.Path:
        return folder / f"{self.name}.json"


LENT = ["--buffers", "ranvier"]
BESIDE_MPI = [
    World("shm-2", "2 ranks, shm", 2, ["--transport", "shm"], "mpi", (1.5, 2.5, 2, 3.5)),
    World("shm-2-lent", "2 ranks, shm, lent", 2, ["--transport", "shm", *LENT], "mpi", (1.5, 4, 4, 4)),
    World("shm-4", "4 ranks, shm", 4, ["--transport", "shm"], "mpi", (1.5, 2, 1.8, 3.5)),
    World("shm-4-lent", "4 ranks, shm, lent", 4, ["--transport", "shm", *LENT], "mpi", (1.5, 2, 1.8, 3.5)),
    World("tcp-2", "2 ranks, tcp", 2, ["--transport", "tcp"], "mpi", (1.2, 1.5, 1.25, 2)),
    World("tcp-4", "4 ranks, tcp", 4, ["--transport", "tcp"], "mpi", (1.2, 1.5, 1.25, 2)),
]
CROWDED = [
    World("shm-8", "8 ranks, shm", 8, ["--transport", "shm"], "mpi"),
    World("shm-16", "16 ranks, shm", 16, ["--transport", "shm"], "mpi"),
    World("tcp-8", "8 ranks, tcp", 8, ["--transport", "tcp"], "mpi"),
    World("tcp-16", "16 ranks, tcp", 16, ["--transport", "tcp"], "mpi"),
]
BESIDE_GLOO_GOALS = (8, 5, 4, 4)
BESIDE_GLOO = [
    World("torch-shm-2", "2 ranks, shm", 2, ["--transport", "shm"], "torch,gloo", BESIDE_GLOO_GOALS),
    World("torch-shm-4", "4 ranks, shm", 4, ["--transport", "shm"], "torch,gloo", BESIDE_GLOO_GOALS),
    World("torch-tcp-2", "2 ranks, tcp", 2, ["--transport", "tcp"], "torch,gloo", BESIDE_GLOO_GOALS),
    World("torch-tcp-4", "4 ranks, tcp", 4, ["--transport", "tcp"], "torch,gloo", BESIDE_GLOO_GOALS),
]


def show_size(size: int) -> str:
    for unit, shift in (("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return str(size)


def show_time(samples: list[float]) -> str:
    middle = statistics.median(samples)
    return f"{middle:.0f}" if middle >= 1000 else f"{middle:.3g}"


def show_ratio(peer: list[float], own: list[float], goal: float) -> str:
    ratios = [a / b for a, b in zip(peer, own)]
    if len(ratios) < 2:
        return f"{ratios[0]:.2f}"
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    digits = 0 if middle >= 20 else 2
    text = f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
    return f"**{text}**" if middle < goal else text


def table(worlds: list[World], own: str, peer: str, folder: pathlib.Path) -> list[str]:
    """A line a size, a column a world; `own` and `peer` name baselines, or "" for ranvier itself."""
    there = [world for world in worlds if world.file(folder).exists()]
    if not there:
        return []
    cells: dict[int, dict[str, str]] = {}
    for world in there:
        for row in json.loads(world.file(folder).read_text())["rows"]:
            ours = (row["baseline"][own] if own else row).get("samples_us")
            theirs = row["baseline"][peer].get("samples_us")
            if not ours or not theirs:  # a size that one of them refuses
                continue
            ratio = show_ratio(theirs, ours, world.goal(row["bytes"]))
            cell = f" {show_time(ours)}, {show_time(theirs)}: {ratio} |"
            cells.setdefault(row["bytes"], {})[world.name] = cell
    name = "Open MPI" if peer == "mpi" else peer
    lines = [f"| ranvier, {name}, us: ratio |" + "".join(f" {world.title} |" for world in there)]
    lines.append("| --- |" + " --- |" * len(there))
    for size in sorted(cells):
        lines.append(f"| {show_size(size)} |" + "".join(cells[size].get(world.name, " |") for world in there))
    return [*lines, ""]


def main() -> None:
    usual = BESIDE_MPI + BESIDE_GLOO
    names = [world.name for world in usual + CROWDED]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranvier")
    parser.add_argument("python")
    parser.add_argument("--folder", type=pathlib.Path, help="where the samples and tables stay (default: nowhere)")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("-b", "--minbytes", default="4")
    parser.add_argument("-e", "--maxbytes", default="256M")
    parser.add_argument("-f", "--stepfactor", type=float, default=4)
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="processes that compute meanwhile")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--crowded", action="store_true", help="8 and 16 ranks, beside Open MPI")
    which.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    options = parser.parse_args()
    chosen = options.only or [world.name for world in (CROWDED if options.crowded else usual)]

    failed = []
    with tempfile.TemporaryDirectory() as scratch, busy_processes(options.beside):
        options.folder = options.folder or pathlib.Path(scratch)
        options.folder.mkdir(parents=True, exist_ok=True)
        for world in usual + CROWDED:
            if world.name not in chosen:
                continue
            start = time.monotonic()
            print(f"{world.name} beside {world.baselines} …", end=" ", file=sys.stderr, flush=True)
            try:
                world.measured(options)
                print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)
            except subprocess.CalledProcessError:  # bench has said why
                failed.append(world.name)
        lines = table(BESIDE_MPI, "", "mpi", options.folder) + table(CROWDED, "", "mpi", options.folder)
        lines += table(BESIDE_GLOO, "torch", "gloo", options.folder)
        text = "\n".join(lines)
        (options.folder / "tables.md").write_text(text)
        print(text)
    if failed:
        sys.exit(f"not in the tables: {', '.join(failed)}; complete them with --folder and --only")


if __name__ == "__main__":
    main()
