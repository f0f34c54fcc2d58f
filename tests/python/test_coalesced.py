"""Several tensors in one call."""

import torch
import torch.distributed as dist
from expected import check, example, reduced, stack, worlds
from ranks import on_ranks
from torch.distributed import ReduceOp


def all_reduce_coalesced(rank, world):
    tensors = [example(rank, torch.float32, count) for count in (3, 0, 1000)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        check(tensor, reduced(ReduceOp.SUM, stack(world, torch.float32, tensor.numel())))


@worlds
def test_all_reduce_coalesced_reduces_each_tensor(world):
    on_ranks(world, all_reduce_coalesced)


def all_gather_coalesced(rank, world):
    inputs = [example(rank, torch.float32, count) for count in (5, 700)]
    outputs = [torch.empty(world * tensor.numel()) for tensor in inputs]
    with dist._coalescing_manager():
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, tensor)
    for output, tensor in zip(outputs, inputs, strict=True):
        check(output, stack(world, torch.float32, tensor.numel()).flatten())


@worlds
def test_all_gather_coalesced_collects_each_tensor(world):
    on_ranks(world, all_gather_coalesced)


def reduce_scatter_coalesced(rank, world):
    inputs = [example(rank, torch.float32, world * count) for count in (5, 700)]
    outputs = [torch.empty(tensor.numel() // world) for tensor in inputs]
    with dist._coalescing_manager():
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.reduce_scatter_tensor(output, tensor)
    for output, tensor in zip(outputs, inputs, strict=True):
        total = reduced(ReduceOp.SUM, stack(world, torch.float32, tensor.numel()))
        check(output, total.chunk(world)[rank])


@worlds
def test_reduce_scatter_coalesced_scatters_each_tensor(world):
    on_ranks(world, reduce_scatter_coalesced)


def coalesced_under_way(rank, world):
    """Nothing is complete before its wait, as far as the caller may know, and several are under way at once."""
    sizes = (5, 700)
    sums = [example(rank, torch.float32, size) for size in sizes]
    with dist._coalescing_manager(async_ops=True) as reducing:
        for tensor in sums:
            dist.all_reduce(tensor)
    gathered = [torch.empty(world * size) for size in sizes]
    with dist._coalescing_manager(async_ops=True) as gathering:
        for output, size in zip(gathered, sizes, strict=True):
            dist.all_gather_into_tensor(output, example(rank, torch.float32, size))
    parts = [torch.empty(size, dtype=torch.int32) for size in sizes]
    with dist._coalescing_manager(async_ops=True) as scattering:
        for output, size in zip(parts, sizes, strict=True):
            dist.reduce_scatter_tensor(output, example(rank, torch.int32, world * size), ReduceOp.MAX)
    for manager in (scattering, reducing, gathering):
        assert len(manager.works) == 1
        manager.wait()
    for size, total, whole, part in zip(sizes, sums, gathered, parts, strict=True):
        check(total, stack(world, torch.float32, size).sum(0))
        check(whole, stack(world, torch.float32, size).flatten())
        check(part, stack(world, torch.int32, world * size).amax(0).chunk(world)[rank])


@worlds
def test_coalesced_collectives_may_be_waited_for_later(world):
    on_ranks(world, coalesced_under_way)
