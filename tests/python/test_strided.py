"""Tensors with gaps: views of which collectives read and write the elements and nothing between them."""

import pytest
import torch
import torch.distributed as dist
from expected import check
from ranks import on_ranks


def strided(rank, world):
    backing = torch.zeros(6, 10)
    view = backing[:, ::2]
    view.fill_(rank + 1)
    dist.all_reduce(view)
    total = world * (world + 1) / 2
    assert torch.equal(backing[:, ::2], torch.full((6, 5), total)) and torch.equal(backing[:, 1::2], torch.zeros(6, 5))

    transposed = torch.full((4, 3), float(rank)).t()
    dist.broadcast(transposed, world - 1)
    assert torch.equal(transposed, torch.full((3, 4), float(world - 1)))

    columns = torch.zeros(4, world)
    dist.all_gather([columns[:, r] for r in range(world)], torch.arange(4.0) + rank)
    assert torch.equal(columns, torch.arange(4.0)[:, None] + torch.arange(float(world)))

    parameter = torch.nn.Parameter(torch.full((5, 2), float(rank)))
    dist.broadcast(parameter.data.t(), 0)
    assert torch.equal(parameter.data, torch.zeros(5, 2))


def test_tensors_with_gaps_are_read_and_written_in_place():
    on_ranks(2, strided)


def with_gaps(values: torch.Tensor) -> torch.Tensor:
    """A view of every other column of a tensor whose other columns are -1."""
    view = torch.full((values.shape[0], 2 * values.shape[1]), -1.0)[:, ::2]
    assert not view.is_contiguous()
    return view.copy_(values)


def room(*shape: int) -> torch.Tensor:
    return with_gaps(torch.zeros(shape))


def check_view(view: torch.Tensor, expected: torch.Tensor, *what) -> None:
    check(view, expected, *what)
    assert (view._base[:, 1::2] == -1).all(), (what, "the gaps were written")


def strided_parts(rank, world):
    def given(sender, receiver=0):
        return torch.arange(6.0).reshape(2, 3) + 10 * sender + 100 * receiver

    mine, everybody = given(rank), [given(r) for r in range(world)]
    for_each = [given(rank, r) for r in range(world)]  # what this rank has for the others, …
    for_me = [given(r, rank) for r in range(world)]  # … and they for it

    view = with_gaps(mine)
    dist.reduce(view, 1)
    if rank == 1:
        check_view(view, sum(everybody), "reduce")

    rooms = [room(2, 3) for _ in range(world)]
    dist.gather(with_gaps(mine), rooms if rank == 0 else None, 0)
    if rank == 0:
        for view, expected in zip(rooms, everybody, strict=True):
            check_view(view, expected, "gather")

    view = room(2, 3)
    dist.scatter(view, [with_gaps(given(0, r)) for r in range(world)] if rank == 0 else None, 0)
    check_view(view, given(0, rank), "scatter")

    view = room(2, 3)
    dist.reduce_scatter(view, [with_gaps(each) for each in for_each])
    check_view(view, sum(for_me), "reduce_scatter")

    view = room(2, 3)
    dist.reduce_scatter_tensor(view, with_gaps(torch.cat(for_each)))
    check_view(view, sum(for_me), "reduce_scatter_tensor")

    view = room(2 * world, 3)
    dist.all_gather_into_tensor(view, with_gaps(mine))
    check_view(view, torch.cat(everybody), "all_gather_into_tensor")

    rooms = [room(2, 3) for _ in range(world)]
    dist.all_to_all(rooms, [with_gaps(each) for each in for_each])
    for view, expected in zip(rooms, for_me, strict=True):
        check_view(view, expected, "all_to_all")

    view = room(2 * world, 3)
    dist.all_to_all_single(view, with_gaps(torch.cat(for_each)))
    check_view(view, torch.cat(for_me), "all_to_all_single")

    sent = [rank + 1, rank]  # rows
    received = [1, 2] if rank == 0 else [0, 1]
    view = room(sum(received), 3)
    whole = torch.cat([each[:rows] for each, rows in zip(for_each, sent, strict=True)])
    dist.all_to_all_single(view, with_gaps(whole), received, sent)
    expected = torch.cat([each[:rows] for each, rows in zip(for_me, received, strict=True)])
    check_view(view, expected, "all_to_all_single with splits")

    view, other = room(2, 3), 1 - rank
    if rank == 0:
        dist.send(with_gaps(mine), other)
        dist.recv(view, other)
    else:
        dist.recv(view, other)
        dist.send(with_gaps(mine), other)
    check_view(view, given(other), "send and recv")


def test_parts_with_gaps_are_read_and_written_in_place():
    on_ranks(2, strided_parts)


def strided_coalesced(rank, world):
    def given(sender, number, rows=2):
        return torch.arange(3.0 * rows).reshape(rows, 3) + 10 * sender + 100 * number

    numbers = range(2)
    views = [with_gaps(given(rank, number)) for number in numbers]
    with dist._coalescing_manager():
        for view in views:
            dist.all_reduce(view)
    for number, view in zip(numbers, views, strict=True):
        check_view(view, sum(given(r, number) for r in range(world)), "all_reduce")

    views = [room(2 * world, 3) for _ in numbers]
    with dist._coalescing_manager():
        for number, view in zip(numbers, views, strict=True):
            dist.all_gather_into_tensor(view, with_gaps(given(rank, number)))
    for number, view in zip(numbers, views, strict=True):
        check_view(view, torch.cat([given(r, number) for r in range(world)]), "all_gather_into_tensor")

    views = [room(2, 3) for _ in numbers]
    with dist._coalescing_manager():
        for number, view in zip(numbers, views, strict=True):
            dist.reduce_scatter_tensor(view, with_gaps(given(rank, number, 2 * world)))
    for number, view in zip(numbers, views, strict=True):
        total = sum(given(r, number, 2 * world) for r in range(world))
        check_view(view, total.chunk(world)[rank], "reduce_scatter_tensor")

    # Which torch.distributed has no word for since it has the manager.
    views = [[room(2, 3) for _ in numbers] for _ in range(world)]
    dist.group.WORLD.allgather_coalesced(views, [with_gaps(given(rank, number)) for number in numbers]).wait()
    for sender, list_of_sender in enumerate(views):
        for number, view in zip(numbers, list_of_sender, strict=True):
            check_view(view, given(sender, number), "all_gather of lists")


def test_coalesced_tensors_with_gaps_are_read_and_written_in_place():
    on_ranks(2, strided_coalesced)


def shared_memory(rank, world):
    """Each of these has an output whose elements lie in one place."""
    one, whole, part = torch.ones(1), torch.ones(world), torch.ones(1)
    small, large = one.expand(4), one.expand(world)
    calls = {
        "all_reduce": lambda: dist.all_reduce(small),
        "broadcast": lambda: dist.broadcast(small, 1 - rank),
        "reduce": lambda: dist.reduce(small, rank),
        "all_gather": lambda: dist.all_gather([small] * world, torch.ones(4)),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(large, part),
        "reduce_scatter": lambda: dist.reduce_scatter(small, [torch.ones(4)] * world),
        "all_to_all": lambda: dist.all_to_all_single(large, whole),
        "gather": lambda: dist.gather(torch.ones(4), [small] * world, rank),
        "scatter": lambda: dist.scatter(small, [torch.ones(4)] * world, rank),
        "recv": lambda: dist.recv(small, 1 - rank),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=rf"ranvier:{name}: elements of this output share memory, .* clone\(\)"):
            call()
    assert one.item() == 1
    # As inputs they are as good as others, and nothing has been sent.
    gathered = [torch.zeros(4) for _ in range(world)]
    dist.all_gather(gathered, small)
    assert all(torch.equal(each, torch.ones(4)) for each in gathered)


def test_an_output_whose_elements_share_memory_is_refused_before_anything_is_sent():
    on_ranks(2, shared_memory)
