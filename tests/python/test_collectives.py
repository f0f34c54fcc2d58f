"""Every collective gives exactly what it promises, for several world sizes and types."""

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
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
    for op, expected in ((ReduceOp.BOR, inputs.any(0)), (ReduceOp.BAND, inputs.all(0)), (ReduceOp.MAX, inputs.any(0))):
        tensor = mine.clone()
        dist.all_reduce(tensor, op)
        check(tensor, expected, op)


def test_all_reduce_of_booleans_is_or_and_and():
    on_ranks(2, all_reduce_booleans)


def all_reduce_complex(rank, world):
    tensor = torch.complex(torch.arange(50.0) + rank, torch.arange(50.0) * rank)
    dist.all_reduce(tensor)
    numbers = torch.arange(50.0)
    total = world * (world - 1) / 2
    check(tensor, torch.complex(numbers * world + total, numbers * total))


def test_all_reduce_sums_complex_numbers():
    on_ranks(3, all_reduce_complex)


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


def reduce(rank, world):
    for root in range(world):
        for count in COUNTS:
            tensor = example(rank, torch.float32, count)
            dist.reduce(tensor, root)
            if rank == root:
                check(tensor, reduced(ReduceOp.SUM, stack(world, torch.float32, count)), root, count)


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


def objects(rank, world):
    gathered = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert gathered == [{"rank": r, "text": "x" * r} for r in range(world)]
    box = [("from", rank)]
    dist.broadcast_object_list(box, src=world - 1)
    assert box == [("from", world - 1)]
    for root in range(world):
        gathered = [None] * world if rank == root else None
        dist.gather_object({"rank": rank, "text": "y" * 100 * rank}, gathered, root)
        assert gathered == ([{"rank": r, "text": "y" * 100 * r} for r in range(world)] if rank == root else None)
        received = [None]
        dist.scatter_object_list(received, [("to", r, "z" * r) for r in range(world)] if rank == root else None, root)
        assert received == [("to", rank, "z" * rank)]


def objects_in_messages(rank, world):
    """Lists of objects of different lengths."""
    if rank == 0:
        got = [None, None]
        assert dist.recv_object_list(got, src=1) == 1
        assert got == [{"from": 1}, "long" * 1000]
        got = [None]
        assert dist.recv_object_list(got, src=2) == 2
        assert got == [("from", 2)]
        dist.send_object_list([None, [rank]], dst=1)
    elif rank == 1:
        dist.send_object_list([{"from": 1}, "long" * 1000], dst=0)
        got = [1, 2]
        dist.recv_object_list(got, src=0)
        assert got == [None, [0]]
    else:
        dist.send_object_list([("from", rank)], dst=0)


def test_python_objects_go_from_rank_to_rank():
    on_ranks(3, objects_in_messages)


def test_python_objects_travel():
    on_ranks(3, objects)


def barrier(rank, world):
    for _ in range(20):
        dist.barrier()
    dist.barrier(async_op=True).wait()


@worlds
def test_barrier_returns_on_all_ranks(world):
    on_ranks(world, barrier)
