"""What ranks give to collectives in tests, and what they must get back."""

from __future__ import annotations

import pytest
import torch
from torch.distributed import ReduceOp

worlds = pytest.mark.parametrize("world", [1, 2, 3])

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
MOVED_ONLY = [torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.float8_e4m3fn]
COUNTS = [0, 1, 7, 1000, 70_001]


def example(rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Small whole numbers: their sums and products are exact in every type."""
    return ((torch.arange(count) * 5 + rank * 3) % 4 + 1).to(dtype)


def check(got: torch.Tensor, expected: torch.Tensor, *what) -> None:
    assert got.dtype == expected.dtype and got.shape == expected.shape, what
    if got.dtype == torch.float8_e4m3fn:
        got, expected = got.view(torch.uint8), expected.view(torch.uint8)
    assert torch.equal(got, expected), (what, got, expected)


def stack(world: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    return torch.stack([example(r, dtype, count) for r in range(world)])


def reduced(op, inputs: torch.Tensor) -> torch.Tensor:
    dtype = inputs.dtype
    if op == ReduceOp.SUM:
        return inputs.sum(0, dtype=dtype)
    if op == ReduceOp.PRODUCT:
        return inputs.prod(0, dtype=dtype)
    if op == ReduceOp.MIN:
        return inputs.amin(0)
    if op == ReduceOp.MAX:
        return inputs.amax(0)
    result = inputs[0].clone()
    for other in inputs[1:]:
        if op == ReduceOp.BAND:
            result &= other
        elif op == ReduceOp.BOR:
            result |= other
        else:
            result ^= other
    return result
