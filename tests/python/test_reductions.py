"""Sums and other reductions, of every type and operation, for several world sizes."""

import torch
import torch.distributed as dist
from expected import COUNTS, FLOATS, INTEGERS, check, example, reduced, stack, worlds
from ranks import on_ranks
from torch.distributed import ReduceOp


def all_reduce(rank, world):
    for dtype in FLOATS + INTEGERS:
        ops = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
        if dtype in INTEGERS:
            ops += [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
        for op in ops:
            for count in COUNTS:
                tensor = example(rank, dtype, count)
                dist.all_reduce(tensor, op)
                check(tensor, reduced(op, stack(world, dtype, count)), op, dtype, count)


@worlds
def test_all_reduce_applies_every_operation_to_every_type(world):
    on_ranks(world, all_reduce)


def all_reduce_average(rank, world):
    for dtype in FLOATS:
        tensor = torch.full((1001,), float(rank + 1), dtype=dtype)
        dist.all_reduce(tensor, ReduceOp.AVG)
        check(tensor, torch.full((1001,), (world + 1) / 2, dtype=dtype), dtype)


@worlds
def test_all_reduce_averages_floats(world):
    on_ranks(world, all_reduce_average)


def all_reduce_booleans(rank, world):
    mine = torch.arange(100) % (rank + 2) == 0
    inputs = torch.stack([torch.arange(100) % (r + 2) == 0 for r in range(world)])
    odd = inputs.sum(0) % 2 == 1
    for op, expected in ((ReduceOp.BOR, inputs.any(0)), (ReduceOp.BAND, inputs.all(0)), (ReduceOp.MAX, inputs.any(0)),
                         (ReduceOp.SUM, inputs.any(0)), (ReduceOp.BXOR, odd)):  # fmt: skip
        tensor = mine.clone()
        dist.all_reduce(tensor, op)
        check(tensor, expected, op)


@worlds
def test_all_reduce_of_booleans_is_or_and_and(world):
    on_ranks(world, all_reduce_booleans)


def all_reduce_complex(rank, world):
    tensor = torch.complex(torch.arange(50.0) + rank, torch.arange(50.0) * rank)
    dist.all_reduce(tensor)
    numbers = torch.arange(50.0)
    total = world * (world - 1) / 2
    check(tensor, torch.complex(numbers * world + total, numbers * total))


def test_all_reduce_sums_complex_numbers():
    on_ranks(3, all_reduce_complex)


def reduce(rank, world):
    for root in range(world):
        for count in COUNTS:
            tensor = example(rank, torch.float32, count)
            dist.reduce(tensor, root)
            if rank == root:
                check(tensor, reduced(ReduceOp.SUM, stack(world, torch.float32, count)), root, count)


def complex_halves(rank, world):
    """torch.distributed hands reduce and reduce_scatter a backend as they are; all_reduce makes real numbers of them."""
    numbers = torch.complex(torch.arange(6.0) + rank, torch.arange(6.0) * rank).to(torch.complex32)
    expected = torch.complex(torch.arange(6.0) * world + 3, torch.arange(6.0) * 3).to(torch.complex32)
    whole = numbers.clone()
    dist.reduce(whole, 0)
    part = torch.empty(2, dtype=torch.complex32)
    dist.reduce_scatter(part, list(numbers.chunk(world)))
    if rank == 0:
        assert torch.equal(torch.view_as_real(whole), torch.view_as_real(expected))
    assert torch.equal(torch.view_as_real(part), torch.view_as_real(expected.chunk(world)[rank]))


def test_complex_numbers_of_half_precision_are_summed():
    on_ranks(3, complex_halves)


def averages(rank, world):
    """To the bit: the sum, divided."""
    generator = torch.Generator().manual_seed(5)
    for dtype in (torch.float32, torch.float64):
        inputs = torch.randint(-(2**20), 2**20, (world, 1000), generator=generator).to(dtype)  # their sums are exact
        tensor = inputs[rank].clone()
        dist.all_reduce(tensor, ReduceOp.AVG)
        assert torch.equal(tensor, inputs.sum(0) / world)


def test_averages_are_sums_divided():
    on_ranks(3, averages)


@worlds
def test_reduce_gives_the_root_the_sum(world):
    on_ranks(world, reduce)


def reduce_every_kind(rank, world):
    """Each type with each operation, where gloo takes them; 70001 elements go by another algorithm than 7."""
    root = world - 1
    for dtype in FLOATS + INTEGERS:
        ops = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
        if dtype in INTEGERS:
            ops += [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
        for op in ops:
            for count in (0, 7, 70_001):
                everybodys = stack(world, dtype, count)
                tensor = example(rank, dtype, count)
                dist.reduce(tensor, root, op)
                if rank == root:
                    check(tensor, reduced(op, everybodys), "reduce", op, dtype, count)
                parts = [example(rank, dtype, count) + part for part in range(world)]
                expected = reduced(op, everybodys + rank)
                output = torch.empty(count, dtype=dtype)
                dist.reduce_scatter(output, parts, op)
                check(output, expected, "reduce_scatter", op, dtype, count)
                output = torch.empty(count, dtype=dtype)
                dist.reduce_scatter_tensor(output, torch.cat(parts), op)
                check(output, expected, "reduce_scatter_tensor", op, dtype, count)


@worlds
def test_reduce_and_reduce_scatter_apply_every_operation_to_every_type(world):
    on_ranks(world, reduce_every_kind)


def reduce_complex_and_averages(rank, world):
    for dtype in (torch.complex64, torch.complex128):
        mine = torch.complex(example(rank, torch.float64, 7), example(rank + 1, torch.float64, 7)).to(dtype)
        others = torch.stack([example(r + 1, torch.float64, 7) for r in range(world)])
        expected = torch.complex(stack(world, torch.float64, 7).sum(0), others.sum(0)).to(dtype)
        tensor = mine.clone()
        dist.reduce(tensor, 0)
        if rank == 0:
            check(tensor, expected, "reduce", dtype)
        output = torch.empty(7, dtype=dtype)
        dist.reduce_scatter_tensor(output, mine.repeat(world))
        check(output, expected, "reduce_scatter_tensor", dtype)
    for dtype in (torch.float32, torch.float64):
        output = torch.empty(7, dtype=dtype)
        dist.reduce_scatter_tensor(output, (world * example(rank, dtype, 7)).repeat(world), ReduceOp.AVG)
        check(output, stack(world, dtype, 7).sum(0), "average", dtype)


@worlds
def test_reduce_and_reduce_scatter_sum_complex_numbers_and_average(world):
    on_ranks(world, reduce_complex_and_averages)


def reduce_scatter(rank, world):
    for dtype in (torch.float32, torch.int32):
        for count in COUNTS:
            inputs = [example(rank, dtype, count) + part for part in range(world)]
            expected = reduced(ReduceOp.SUM, stack(world, dtype, count) + rank)
            output = torch.empty(count, dtype=dtype)
            dist.reduce_scatter(output, inputs)
            check(output, expected, count)
            output = torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(output, torch.cat(inputs))
            check(output, expected, count)


@worlds
def test_reduce_scatter_gives_each_rank_its_part_of_the_sum(world):
    on_ranks(world, reduce_scatter)


def reduce_scatter_uneven(rank, world):
    output = torch.empty(3 * rank + 1)
    dist.reduce_scatter(output, [example(rank, torch.float32, 3 * part + 1) for part in range(world)])
    check(output, reduced(ReduceOp.SUM, stack(world, torch.float32, 3 * rank + 1)))


@worlds
def test_reduce_scatter_takes_parts_of_different_sizes(world):
    on_ranks(world, reduce_scatter_uneven)
