"""Sums of sparse tensors."""

import re
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks


def example(rank: int, dtype=torch.float32, shape=(6, 5, 2), sparse_dims=2) -> torch.Tensor:
    """`rank` non-zeros, some on the same places as those of other ranks, one place twice."""
    count = rank + (rank > 1)
    places = torch.tensor([[(7 * i + rank * (i % 2)) % shape[d] for i in range(rank)] for d in range(sparse_dims)])
    places = places.reshape(sparse_dims, rank).long()
    if count > rank:
        places = torch.cat([places, places[:, :1]], 1)
    values = torch.arange(1, 1 + count * 2, dtype=torch.float64).reshape(count, *shape[sparse_dims:]) * (rank + 1)
    return torch.sparse_coo_tensor(places, values.to(dtype), shape)


def summed(rank, world):
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        expected = sum(example(r, dtype).to_dense() for r in range(world))
        tensor = example(rank, dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor.to_dense(), expected), dtype
    # Several at once, and one after the other with other things.
    tensors = [example((rank + i) % world) for i in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.barrier()
    for work, tensor in zip(reversed(works), reversed(tensors), strict=True):
        work.wait()
        assert torch.equal(tensor.to_dense(), sum(example(r).to_dense() for r in range(world)))
        assert work.result()[0].is_sparse


@pytest.mark.parametrize("world", [1, 2, 3])
def test_all_reduce_of_sparse_tensors_is_the_dense_sum(world):
    on_ranks(world, summed)


def all_empty(rank, world):
    tensor = torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64), torch.empty(0), (3, 4))
    dist.all_reduce(tensor)
    assert tensor.to_dense().count_nonzero() == 0 and tensor.shape == (3, 4)


def test_no_rank_has_anything():
    on_ranks(2, all_empty)


def different_shapes(rank, world):
    dist.all_reduce(torch.eye(3 + (rank == 1)).to_sparse())


def test_different_shapes_are_refused_naming_both_ranks():
    for outcome in run_ranks(3, different_shapes):
        assert outcome.error and "rank 1" in outcome.error, outcome
        assert "3 x 3" in outcome.error and "4 x 4" in outcome.error, outcome
        assert re.search(r"sparse_all_reduce #\d+:", outcome.error), outcome


def behind_a_message(rank, world):
    tensor = example(rank)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        dist.send(torch.ones(1), 1)  # which the other waits for before it calls all_reduce
        work.wait()
    else:
        dist.recv(torch.empty(1), 0)
        dist.all_reduce(tensor)
    assert torch.equal(tensor.to_dense(), sum(example(r).to_dense() for r in range(world)))


def test_the_call_waits_for_nobody():
    on_ranks(2, behind_a_message, group_timeout=20)


def other_things_between(rank, world):
    works, tensors = [], []
    for i in range(6):
        tensors.append(example((rank + i) % world))
        works.append(dist.all_reduce(tensors[-1], async_op=True))
        if (i + rank) % 2:
            works[-1].wait()
        total = torch.ones(5)
        dist.all_reduce(total)
        assert torch.equal(total, torch.full((5,), float(world)))
    for work, tensor in zip(works, tensors, strict=True):
        assert work.wait(timedelta(seconds=20)) and work.is_success()
        assert torch.equal(tensor.to_dense(), sum(example(r).to_dense() for r in range(world)))


def test_its_second_step_is_in_no_order_with_other_collectives():
    on_ranks(3, other_things_between)


def only_sums(rank, world):
    with pytest.raises(ValueError, match="only be summed"):
        dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX)


def test_other_reductions_are_refused():
    on_ranks(1, only_sums)


def embedding(rank, world):
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(20, 3, sparse=True))
    model(torch.tensor([rank, rank + 1, 7])).sum().backward()
    return model.module.weight.grad.to_dense()


def test_ddp_averages_sparse_gradients():
    got = on_ranks(2, embedding)
    expected = torch.zeros(20, 3)
    for row, times in ((0, 0.5), (1, 1.0), (2, 0.5), (7, 1.0)):
        expected[row] = times
    assert torch.equal(got[0], expected) and torch.equal(got[1], expected)
