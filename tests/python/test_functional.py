"""Functional collectives, which return new tensors and have gradients: what DTensor, FSDP2 and torch.compile call."""

import torch
import torch.distributed as dist
from ranks import on_ranks
from torch.distributed import _functional_collectives as funcol


def of(rank: int, *shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) + 100 * rank


def total(world: int, *shape: int) -> torch.Tensor:
    return torch.stack([of(r, *shape) for r in range(world)]).sum(0)


def equal(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(funcol.wait_tensor(got), expected), (got, expected)


def by_name(rank, world):
    group = dist.group.WORLD
    mine = of(rank, 2 * world, 3)
    equal(funcol.all_reduce(mine, "sum", group), total(world, 2 * world, 3))
    equal(funcol.all_reduce(mine, "max", group), of(world - 1, 2 * world, 3))
    equal(funcol.broadcast(mine, 1, group), of(1, 2 * world, 3))
    equal(funcol.reduce_scatter_tensor(mine, "sum", 0, group), total(world, 2 * world, 3).chunk(world)[rank])
    wide = of(rank, 3, 2 * world)
    average = total(world, 3, 2 * world) / world
    equal(funcol.reduce_scatter_tensor(wide, "avg", 1, group), average.chunk(world, 1)[rank])
    equal(funcol.all_gather_tensor(mine, 0, group), torch.cat([of(r, 2 * world, 3) for r in range(world)]))
    equal(funcol.all_gather_tensor(mine, 1, group), torch.cat([of(r, 2 * world, 3) for r in range(world)], 1))
    assert torch.equal(mine, of(rank, 2 * world, 3)), "inputs stay as they are"


def test_functional_collectives_give_what_their_names_say():
    on_ranks(3, by_name)


def coalesced(rank, world):
    group = dist.group.WORLD
    shapes = [(world, 2), (2 * world,)]
    mine = [of(rank, *shape) for shape in shapes]
    for got, shape in zip(funcol.all_reduce_coalesced(mine, "sum", group), shapes, strict=True):
        equal(got, total(world, *shape))
    for got, shape in zip(funcol.all_gather_into_tensor_coalesced(mine, group), shapes, strict=True):
        equal(got, torch.cat([of(r, *shape) for r in range(world)]))
    for got, shape in zip(funcol.reduce_scatter_tensor_coalesced(mine, "sum", [0, 0], group), shapes, strict=True):
        equal(got, total(world, *shape).chunk(world)[rank])


def test_functional_collectives_of_many_tensors_reduce_each():
    on_ranks(3, coalesced)


def rows(sender: int, receiver: int) -> int:
    return (sender + 2 * receiver) % 4  # none for some


def cut(rank: int, heights: list[int], width: int) -> tuple[torch.Tensor, ...]:
    """What that rank gives to each."""
    return of(rank, sum(heights), width).split(heights)


def exchanged(rank, world):
    group = dist.group.WORLD
    swapped = funcol.all_to_all_single(of(rank, world, 2), None, None, group)
    equal(swapped, torch.stack([of(r, world, 2)[rank] for r in range(world)]))
    given = [rows(rank, r) for r in range(world)]
    taken = [rows(r, rank) for r in range(world)]
    got = funcol.all_to_all_single(of(rank, sum(given), 2), taken, given, group)
    equal(got, torch.cat([cut(r, [rows(r, q) for q in range(world)], 2)[rank] for r in range(world)]))


def test_functional_exchanges_transpose():
    on_ranks(3, exchanged)


def with_gradients(rank, world):
    group = dist.group.WORLD
    weights = [of(r, 2 * world, 3) for r in range(world)]  # of each rank's result in its loss

    def gradient(collective, shape, weight):
        leaf = of(rank, *shape).requires_grad_()
        (funcol.wait_tensor(collective(leaf)) * weight).sum().backward()
        return leaf.grad

    summed = torch.stack(weights).sum(0)
    got = gradient(lambda x: funcol.all_gather_tensor_autograd(x, 0, group), (2, 3), weights[rank])
    equal(got, summed.chunk(world)[rank])

    parts = [of(r, 2, 3) for r in range(world)]
    got = gradient(lambda x: funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group), (2 * world, 3), parts[rank])
    equal(got, torch.cat(parts))

    given = [rows(rank, r) for r in range(world)]
    taken = [rows(r, rank) for r in range(world)]
    got = gradient(
        lambda x: funcol.all_to_all_single_autograd(x, taken, given, group), (sum(given), 3), of(rank, sum(taken), 3)
    )
    equal(got, torch.cat([cut(r, [rows(q, r) for q in range(world)], 3)[rank] for r in range(world)]))

    equal(gradient(lambda x: funcol.all_reduce(x, "sum", group), (2 * world, 3), weights[rank]), summed)


def test_gradients_go_the_way_back():
    on_ranks(3, with_gradients)
