#!/usr/bin/env python3
"""Encoding 64 MiB of f32 on one core, beside what torch does for the same purpose, sample by sample.

usage: PYTHONPATH=BUILD/python beside_torch.py [--mib 64] [--samples 15]

The peers: a copy; the casts of torch's fp16 and bf16 communication hooks; torch.topk of the magnitudes, which is what a
top-k hook begins with; the two products of torch's PowerSGD hook for a square matrix, rank 4. Medians, and the share of the
copy's speed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from ranvier import _library


def encoder(spec: str, values: torch.Tensor) -> Callable[[], object]:
    codec = torch.classes.ranvier.Codec(spec)
    nothing = torch.empty(0)
    return lambda: codec.encode(values, nothing, nothing, 1, 0)


def power_sgd(values: torch.Tensor, rank: int = 4) -> Callable[[], object]:
    side = int(values.numel() ** 0.5)
    matrix = values[: side * side].view(side, side)
    start = torch.randn(side, rank)

    def products() -> torch.Tensor:
        left = torch.linalg.qr(matrix @ start).Q
        return matrix.t() @ left

    return products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--samples", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    _library.load()
    values = torch.randn(options.mib * 2**18) * 0.01
    to = torch.empty_like(values)
    bodies: dict[str, Callable[[], object]] = {
        "copy": lambda: to.copy_(values),
        "torch fp16": values.half,
        "ranvier fp16": encoder("fp16", values),
        "torch bf16": values.bfloat16,
        "ranvier bf16": encoder("bf16", values),
        "torch.topk 1 %": lambda: torch.topk(values.abs(), values.numel() // 100, sorted=False),
        "ranvier topk:0.01": encoder("topk:0.01", values),
        "torch PowerSGD, rank 4": power_sgd(values),
        "ranvier hadamard:32+int4": encoder("hadamard:32+int4", values),
    }
    times: dict[str, list[float]] = {name: [] for name in bodies}
    for sample in range(options.samples + 1):
        for name, body in bodies.items():
            before = time.perf_counter()
            body()
            if sample > 0:  # the first one warms up
                times[name].append(time.perf_counter() - before)
    copy = statistics.median(times["copy"])
    print("| | ms | GB/s of f32 | of the copy's speed |\n| --- | --- | --- | --- |")
    for name, each in times.items():
        seconds = statistics.median(each)
        print(f"| {name} | {1000 * seconds:.1f} | {options.mib * 2**20 / seconds / 1e9:.2f} | {100 * copy / seconds:.0f} % |")


if __name__ == "__main__":
    main()
