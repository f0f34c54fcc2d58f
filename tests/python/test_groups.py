"""Subgroups, mixed backends, stores of every kind."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from ranvier import _library


def subgroups(rank, world):
    even = dist.new_group([0, 2])
    last = dist.new_group([1, 2])
    tensor = torch.full((100,), float(rank))
    if rank in (0, 2):
        dist.all_reduce(tensor, group=even)
        assert torch.equal(tensor, torch.full((100,), 2.0))
    if rank in (1, 2):
        tensor = torch.full((100,), float(rank))
        dist.broadcast(tensor, src=2, group=last)
        assert torch.equal(tensor, torch.full((100,), 2.0))
    both = [dist.all_reduce(torch.ones(10), group=group, async_op=True) for group in (even, last) if _is_in(group)]
    for work in both:
        work.wait()
    dist.barrier()
    if _is_in(even):
        dist.destroy_process_group(even)
    dist.barrier()


def _is_in(group) -> bool:
    return dist.get_rank(group) >= 0


def test_subgroups_communicate_apart():
    on_ranks(3, subgroups)


def named(rank, world):
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((10,), float(world)))
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).name()


@pytest.mark.parametrize("backend", ["ranvier", "cpu:ranvier"])
def test_the_backend_goes_by_its_name_or_by_device(backend):
    assert on_ranks(2, named, backend=backend) == ["ranvier", "ranvier"]


def test_ranks_that_are_threads_meet_through_a_store_in_memory():
    store, sums = dist.HashStore(), {}

    def rank(number: int) -> None:
        backend = _library.connect(store, number, 3, timedelta(seconds=30))
        tensor = torch.full((1000,), float(number))
        backend.allreduce([tensor]).wait()
        sums[number] = tensor
        backend.barrier().wait()
        backend.shutdown()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(sums) == 3 and all(torch.equal(total, torch.full((1000,), 3.0)) for total in sums.values())
