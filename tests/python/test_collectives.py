"""Every collective that moves data gives exactly what it promises, for several world sizes and types."""

import pytest
import torch
import torch.distributed as dist
from expected import COUNTS, FLOATS, INTEGERS, MOVED_ONLY, check, example, stack, worlds
from ranks import on_ranks


def broadcast(rank, world):
    for dtype in FLOATS + INTEGERS + MOVED_ONLY:
        for root in range(world):
            for count in COUNTS:
                tensor = example(rank, dtype, count)
                dist.broadcast(tensor, root)
                check(tensor, example(root, dtype, count), dtype, root, count)


@worlds
def test_broadcast_gives_everyone_the_roots_values(world):
    on_ranks(world, broadcast)


def all_gather(rank, world):
    for dtype in FLOATS + INTEGERS + MOVED_ONLY:
        for count in COUNTS:
            outputs = [torch.empty(count).to(dtype) for _ in range(world)]
            dist.all_gather(outputs, example(rank, dtype, count))
            for r, output in enumerate(outputs):
                check(output, example(r, dtype, count), dtype, count)
    for dtype in (torch.float32, torch.int64):
        output = torch.empty(world * 333, dtype=dtype)
        dist.all_gather_into_tensor(output, example(rank, dtype, 333))
        check(output, stack(world, dtype, 333).flatten())


@worlds
def test_all_gather_collects_every_ranks_tensor(world):
    on_ranks(world, all_gather)


def all_gather_uneven(rank, world):
    outputs = [torch.empty(10 * r + 1) for r in range(world)]
    dist.all_gather(outputs, example(rank, torch.float32, 10 * rank + 1))
    for r, output in enumerate(outputs):
        check(output, example(r, torch.float32, 10 * r + 1))


@worlds
def test_all_gather_takes_tensors_of_different_sizes(world):
    on_ranks(world, all_gather_uneven)


def gather_and_scatter(rank, world):
    for dtype in FLOATS + INTEGERS + MOVED_ONLY:
        for root in range(world):
            for count in (0, 1, 1000):
                mine = example(rank, dtype, count)
                outputs = [torch.empty(count).to(dtype) for _ in range(world)] if rank == root else None
                dist.gather(mine, outputs, root)
                if rank == root:
                    for r, output in enumerate(outputs):
                        check(output, example(r, dtype, count), dtype, root, count)
                received = torch.empty(count).to(dtype)
                dist.scatter(received, [example(r, dtype, count) for r in range(world)] if rank == root else None, root)
                check(received, mine, dtype, root, count)


@worlds
def test_gather_and_scatter_are_inverse(world):
    on_ranks(world, gather_and_scatter)


def part(sender: int, receiver: int, rows: int) -> torch.Tensor:
    return torch.arange(rows * 2.0).reshape(rows, 2) + 100 * sender + 10_000 * receiver


def all_to_all(rank, world):
    inputs = torch.cat([part(rank, r, 4) for r in range(world)])
    output = torch.empty_like(inputs)
    dist.all_to_all_single(output, inputs)
    check(output, torch.cat([part(r, rank, 4) for r in range(world)]))
    # A rank without split sizes meets others that have them, also where few bytes would go by another algorithm.
    splits = [4] * world if rank % 2 == 1 else None
    dist.all_to_all_single(output.zero_(), inputs, splits, splits)
    check(output, torch.cat([part(r, rank, 4) for r in range(world)]))

    def rows(sender, receiver):
        return (sender + 2 * receiver) % 4

    sent = [rows(rank, r) for r in range(world)]
    received = [rows(r, rank) for r in range(world)]
    expected = [part(r, rank, rows(r, rank)) for r in range(world)]
    output = torch.empty(sum(received), 2)
    dist.all_to_all_single(output, torch.cat([part(rank, r, rows(rank, r)) for r in range(world)]), received, sent)
    check(output, torch.cat(expected))
    outputs = [torch.empty(count, 2) for count in received]
    dist.all_to_all(outputs, [part(rank, r, rows(rank, r)) for r in range(world)])
    for r in range(world):
        check(outputs[r], expected[r])


@worlds
def test_all_to_all_transposes_even_and_uneven_parts(world):
    on_ranks(world, all_to_all)


def barrier(rank, world):
    for _ in range(20):
        dist.barrier()
    dist.barrier(async_op=True).wait()


@worlds
def test_barrier_returns_on_all_ranks(world):
    on_ranks(world, barrier)


def of_this_group():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def several_of_a_rank(rank, world):
    """Tensor i of rank r as one that rank 2r + i of twice as many ranks would give: what c10d asks of several GPUs of a
    process, and gloo takes. Strided ones, and of a type whose sum has to be rounded, too."""
    group = of_this_group()
    ranks = range(2 * world)
    for dtype in FLOATS + INTEGERS:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
            mine = [torch.full((3, 2), 2 * rank + i + 1).to(dtype) for i in range(2)]
            mine[1] = mine[1].t().contiguous().t()
            options = dist.AllreduceOptions()
            options.reduceOp = op
            group.allreduce(mine, options).wait()
            total = 2 * world if op == dist.ReduceOp.MAX else sum(r + 1 for r in ranks)
            expected = torch.full((3, 2), total / world if op == dist.ReduceOp.AVG else total).to(dtype)
            assert torch.equal(mine[0], expected) and torch.equal(mine[1], expected), (op, mine)
    for root in ranks:
        mine = [example(2 * rank + i, torch.float32, 6).view(3, 2) for i in range(2)]
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = divmod(root, 2)
        group.broadcast(mine, options).wait()
        for tensor in mine:
            check(tensor.flatten(), example(root, torch.float32, 6), root)
    mine = [example(2 * rank + i, torch.int64, 5) for i in range(2)]
    outputs = [[torch.empty(5, dtype=torch.int64) for _ in ranks] for _ in mine]
    group.allgather(outputs, mine).wait()
    for gathered in outputs:
        for r, output in enumerate(gathered):
            check(output, example(r, torch.int64, 5), r)
    for wrong in ([torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(2, dtype=torch.int32)]):
        for call in (group.allreduce, group.broadcast, lambda w: group.allgather([[], []], w)):
            with pytest.raises(ValueError, match="must be alike"):
                call(wrong)
    with pytest.raises(ValueError, match="2 lists|1 lists"):
        group.allgather([[torch.ones(2) for _ in ranks]], [torch.ones(2), torch.ones(2)])
    options.rootTensor = 2
    with pytest.raises(ValueError, match="number 2 of 2"):
        group.broadcast([torch.ones(2), torch.ones(2)], options)


@worlds
def test_a_rank_may_give_several_tensors(world):
    on_ranks(world, several_of_a_rank)
