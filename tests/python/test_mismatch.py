"""Ranks that call different things are told so, on every rank, by names and numbers, where gloo hangs or sums garbage."""

import re
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks


def errors(outcomes) -> list[str]:
    assert all(each.error and each.error.startswith("DistBackendError") for each in outcomes), outcomes
    return [each.error for each in outcomes]


def two_roots(rank, world, following):
    dist.barrier()
    tensor = torch.ones(10)
    if rank < 2:
        dist.broadcast(tensor, rank)
    else:
        dist.broadcast(tensor, 0)
    if following == "all_reduce":
        dist.all_reduce(tensor)
    elif following == "send":
        other = 1 - rank
        if rank < 2:
            works = [dist.isend(tensor, other), dist.irecv(torch.empty(10), other)]
            for work in works:
                work.wait()
    elif following == "silence":  # and no call: the next one, long after, says it
        time.sleep(1)
        dist.barrier()


@pytest.mark.parametrize("following", ["all_reduce", "send", "silence"])
def test_two_roots_are_noticed_by_whatever_comes_next(following):
    for error in errors(run_ranks(2, two_roots, following)):
        assert "rank 0" in error and "rank 1" in error and "broadcast #" in error, error


def test_two_roots_are_noticed_at_the_end():
    for _ in range(10):  # who has left half a second before the other one can hear of it no more
        told = [each.error for each in run_ranks(2, two_roots, "nothing") if each.error]
        assert told
        for error in told:
            assert error.startswith("DistBackendError") and "rank 0" in error and "rank 1" in error, error
            assert "broadcast #" in error and "root 0" in error and "root 1" in error, error
        if len(told) == 2:
            return
    raise AssertionError("never on both ranks")


def groups_of_two_roots(rank, world, trials):
    silent = 0
    for _ in range(trials):
        group = None
        try:
            group = dist.new_group(list(range(world)))  # which others may have left already when this returns
            dist.broadcast(torch.ones(4), world - 1 if rank == world - 1 else 0, group=group)
            dist.destroy_process_group(group)
            silent += 1
        except RuntimeError:
            if group is not None:
                dist.destroy_process_group(group)
        dist.barrier()
    return silent


@pytest.mark.parametrize("world", [3, 4])
def test_two_roots_are_noticed_at_the_end_by_whoever_agrees_with_one_that_left(world):
    # A machine that is busy elsewhere for half a second may keep it from a rank, once.
    assert all(silent <= 2 for silent in on_ranks(world, groups_of_two_roots, 40))


def lists_of_different_length(rank, world, kind):
    count = 2 + rank
    tensors = [torch.ones(3) for _ in range(count)]
    if kind == "all_reduce":
        dist.group.WORLD.allreduce_coalesced(tensors).wait()
    else:
        dist.group.WORLD.allgather_into_tensor_coalesced([torch.empty(3 * world) for _ in tensors], tensors).wait()


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_lists_of_different_length_are_refused_with_both_lengths(kind):
    for error in errors(run_ranks(2, lists_of_different_length, kind)):
        assert "list of 2" in error and "list of 3" in error, error
        assert "rank 0" in error and "rank 1" in error and f"{kind} #" in error, error


TYPES = [(torch.uint16, 2, torch.uint8, 4), (torch.float8_e4m3fn, 8, torch.float8_e5m2, 8)]


def different_types(rank, world, pair, kind):
    mine, count = pair[:2] if rank == 0 else pair[2:]
    tensor = torch.zeros(count, dtype=torch.uint8).to(mine)
    if kind == "broadcast":
        dist.broadcast(tensor, 0)
        dist.barrier()  # the root only had to send
    elif kind == "all_gather":
        dist.all_gather([torch.empty_like(tensor) for _ in range(world)], tensor)
    elif rank == 0:
        dist.send(tensor, 1)
        dist.barrier()
    else:
        dist.recv(tensor, 0)
        dist.barrier()


@pytest.mark.parametrize("kind", ["broadcast", "all_gather", "send"])
@pytest.mark.parametrize("pair", TYPES, ids=lambda pair: f"{pair[0]}-{pair[2]}".replace("torch.", ""))
def test_types_that_look_alike_on_the_way_are_refused(kind, pair):
    for error in errors(run_ranks(2, different_types, pair, kind)):
        assert all(str(each).removeprefix("torch.") in error for each in (pair[0], pair[2])), error
        assert "rank 0" in error and "rank 1" in error, error


def complex_and_real(rank, world, kind):
    # Not through torch.distributed, which makes real tensors of complex ones before a backend sees them.
    group = dist.group.WORLD
    tensor = torch.zeros(5, dtype=torch.complex64) if rank == 0 else torch.zeros(10)
    if kind == "all_reduce":
        group.allreduce([tensor]).wait()
    elif rank == 0:
        group.send([tensor], 1, 0).wait()
    else:
        group.recv([tensor], 0, 0).wait()
    group.barrier().wait()


@pytest.mark.parametrize("kind", ["all_reduce", "send"])
def test_complex_and_real_numbers_are_refused(kind):
    for error in errors(run_ranks(2, complex_and_real, kind)):
        assert "complex64" in error and "float32" in error, error


def complex_and_real_in_python(rank, world, kind):
    tensor = torch.zeros(5, dtype=torch.complex64) if rank == 0 else torch.zeros(10)
    if kind == "all_reduce":
        dist.all_reduce(tensor)
    else:
        dist.all_gather([torch.empty_like(tensor) for _ in range(world)], tensor)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_complex_and_real_numbers_are_refused_by_their_shapes_where_torch_hides_their_types(kind):
    for error in errors(run_ranks(2, complex_and_real_in_python, kind)):
        assert "the shapes of rank" in error and f"{kind} #" in error, error


def different_operators(rank, world):
    dist.all_reduce(torch.ones(3), [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank])


def test_two_operators_are_refused():
    for error in errors(run_ranks(2, different_operators)):
        assert "rank 0" in error and "rank 1" in error and "all_reduce #0" in error, error
        assert "sum" in error and "max" in error, error


def destroyed_at_once(rank, world, kind, tensors):
    """The group is destroyed behind it, with no call between."""
    dist.barrier()
    tensor = tensors[rank]
    everybodys = [torch.empty_like(tensor) for _ in range(world)] if rank == 0 else None
    if kind == "broadcast":
        dist.broadcast(tensor, 0)
    elif kind == "reduce":
        dist.reduce(tensor, 0)
    elif kind == "gather":
        dist.gather(tensor, everybodys)
    else:
        dist.scatter(tensor, everybodys)


DIFFERENT = {
    "shape": ((torch.ones(2, 3), torch.ones(3, 2)), ["the shapes of rank 0 and rank 1 differ|the shapes of rank 1 and rank 0 differ"]),
    "type": ((torch.ones(4), torch.ones(4, dtype=torch.int32)), ["f32", "i32"]),
    "type of its length": ((torch.ones(4).to(torch.float8_e4m3fn), torch.ones(4).to(torch.float8_e5m2)), ["e4m3fn", "e5m2"]),
    "size": ((torch.ones(4), torch.ones(5)), ["4 elements|16 B", "5 elements|20 B"]),
}


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize("kind", ["broadcast", "reduce", "gather", "scatter"])
def test_what_flows_one_way_is_noticed_at_the_end(kind, what):
    if kind == "reduce" and "length" in what:
        pytest.skip("there are no sums of such numbers")
    tensors, words = DIFFERENT[what]
    for _ in range(5):  # who has left half a second before the other one can hear of it no more
        told = [each.error for each in run_ranks(2, destroyed_at_once, kind, tensors) if each.error]
        for error in told:
            assert error.startswith("DistBackendError") and f"{kind} #1" in error, error
            assert all(re.search(word, error) for word in ["rank 0", "rank 1", *words]), error
        if len(told) == 2:
            return
    raise AssertionError(f"never on both ranks: {told}")


def different_lengths_of_a_message(rank, world, lengths):
    if rank == 0:
        dist.send(torch.ones(lengths[0]), 1)
    else:
        dist.recv(torch.empty(lengths[1]), 0)
    dist.barrier()  # the sender may be through before it can hear of it


@pytest.mark.parametrize("lengths", [(3, 5), (5, 3), (100_000, 5), (5, 100_000)])
def test_messages_of_another_length_than_expected_are_refused(lengths):
    for error in errors(run_ranks(2, different_lengths_of_a_message, lengths)):
        assert "rank 0" in error and "rank 1" in error, error
        assert all(str(4 * length) in error or str(length) in error for length in lengths), error


def different_shapes(rank, world, kind, shapes):
    tensor = torch.ones(shapes[rank])
    if kind == "all_reduce":
        dist.all_reduce(tensor)
    elif kind == "reduce":
        dist.reduce(tensor, 0)
        dist.barrier()
    elif kind == "all_gather":
        dist.all_gather([torch.empty_like(tensor) for _ in range(world)], tensor)
    elif kind == "all_gather into one":
        dist.all_gather_into_tensor(torch.empty(world * tensor.numel()), tensor)
    elif kind == "reduce_scatter":
        dist.reduce_scatter(torch.empty_like(tensor), [tensor] * world)
    elif kind == "reduce_scatter of one":
        dist.reduce_scatter_tensor(torch.empty_like(tensor), torch.stack([tensor] * world))
    elif kind == "gather":
        dist.gather(tensor, [torch.empty_like(tensor) for _ in range(world)] if rank == 0 else None)
        dist.barrier()
    elif kind == "scatter":
        dist.scatter(tensor, [torch.ones_like(tensor) for _ in range(world)] if rank == 0 else None)
        dist.barrier()
    elif kind == "all_to_all":
        dist.all_to_all([torch.empty_like(tensor) for _ in range(world)], [tensor] * world)
    elif kind == "all_to_all of one":
        dist.all_to_all_single(torch.empty(world, *tensor.shape), torch.stack([tensor] * world))
    else:
        dist.broadcast(tensor, 0)
        dist.barrier()


ALIKE_EVERYWHERE = [
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather into one", "reduce_scatter", "reduce_scatter of one",
    "gather", "scatter", "all_to_all", "all_to_all of one",
]  # fmt: skip


@pytest.mark.parametrize("kind", ALIKE_EVERYWHERE)
def test_shapes_of_equal_size_are_refused(kind):
    for error in errors(run_ranks(2, different_shapes, kind, [(2, 3), (3, 2)])):
        assert "the shapes of rank" in error and "rank 0" in error and "rank 1" in error, error
        assert f"{kind.split()[0]} #" in error, error


def different_sizes(rank, world, kind):
    """Rank 1 has parts of 5 elements where rank 0 has parts of 4."""
    size = 4 + rank
    part, parts = torch.ones(size), [torch.ones(size) for _ in range(world)]
    if kind == "reduce_scatter":
        dist.reduce_scatter(part, parts)
    elif kind == "reduce_scatter of one":
        dist.reduce_scatter_tensor(part, torch.cat(parts))
    elif kind == "gather":
        dist.gather(part, parts if rank == 0 else None)
    elif kind == "scatter":
        dist.scatter(part, parts if rank == 0 else None)
    elif kind == "all_to_all":
        dist.all_to_all([torch.empty(size) for _ in range(world)], parts)
    elif kind == "all_to_all of one":
        dist.all_to_all_single(torch.empty(world * size), torch.cat(parts))
    else:  # each keeps 2; rank 0 has 3 for rank 1, which expects 4 and has 1 for rank 0, as that expects
        sent, expected = ([2, 3], [2, 1]) if rank == 0 else ([1, 2], [4, 2])
        dist.all_to_all_single(torch.empty(sum(expected)), torch.ones(sum(sent)), expected, sent)
    dist.barrier()  # who only had to send hears of it here at the latest


PARTS = [
    "reduce_scatter", "reduce_scatter of one", "gather", "scatter", "all_to_all", "all_to_all of one",
    "all_to_all with splits",
]  # fmt: skip


@pytest.mark.parametrize("kind", PARTS)
def test_parts_of_different_sizes_are_refused(kind):
    for error in errors(run_ranks(2, different_sizes, kind)):
        assert "rank 0" in error and "rank 1" in error and f"{kind.split()[0]} #" in error, error
        bytes_on_link = {"12", "16"} if kind.endswith("splits") else {"16", "20"}
        told = set(re.findall(r"with (\d+) B from rank \d to rank \d\b", error))
        if kind in ("gather", "scatter"):  # who only had to send may know it from what the ranks have called
            told |= {str(4 * int(each)) for each in re.findall(r"with (\d+) elements of each rank", error)}
            assert told and told <= bytes_on_link, error
        else:
            assert told == bytes_on_link, error


def lists_of_other_sizes(rank, world, kind, odd):
    """The sizes of rank 2's part, of which all ranks are given a list, are one more to rank `odd`."""
    sizes = [3, 4, 6 if rank == odd else 5]
    parts, part = [torch.ones(size) for size in sizes], torch.ones(sizes[rank])
    if kind == "all_gather":
        dist.all_gather(parts, part)
    else:
        dist.reduce_scatter(part, parts)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("odd", [0, 1, 2])
def test_lists_of_different_sizes_are_refused_on_ranks_whose_links_agree_too(kind, odd):
    for error in errors(run_ranks(3, lists_of_other_sizes, kind, odd)):
        assert f"rank {odd}" in error and f"{kind} #0" in error, error


@pytest.mark.parametrize("kind", ALIKE_EVERYWHERE)
def test_dimensions_of_one_do_not_matter(kind):
    on_ranks(2, different_shapes, kind, [(1, 5, 1), (5,)])
    on_ranks(2, different_shapes, kind, [(), (1,)])


def nothing(rank, world):
    tensor = torch.empty(0) if rank == 0 else torch.empty(0, 3)
    dist.broadcast(tensor, 0)
    dist.gather(tensor, [torch.empty_like(tensor) for _ in range(world)] if rank == 0 else None)
    dist.all_reduce(tensor)
    dist.barrier()


def test_nothing_has_any_shape():
    on_ranks(2, nothing)


def of_several_shapes(rank, world):
    """Who cuts its tensors otherwise than the others, as it may, is compared with nobody."""
    parts = [torch.ones(2, 3)] * world
    whole = torch.ones(2 * world, 3)
    if rank == 0:  # received as something else than sent
        dist.all_to_all([torch.empty(3, 2) for _ in range(world)], parts)
        dist.all_to_all_single(torch.empty(world, 6), whole)
        dist.all_to_all_single(torch.empty(6 * world), torch.ones(6 * world), [6] * world, [6] * world)
        dist.all_to_all_single(torch.empty(0), torch.empty(0))
    else:
        dist.all_to_all([torch.empty(2, 3) for _ in range(world)], parts)
        dist.all_to_all_single(torch.empty(2 * world, 3), whole)
        dist.all_to_all_single(torch.empty(2 * world, 3), whole)
        dist.all_to_all_single(torch.empty(0, 3), torch.empty(0, 3))
    # Between ranks 1 and 2 go parts of another shape than between them and rank 0; only that has one shape.
    rows = {0: [2] * world, 1: [2, 2, 4], 2: [2, 4, 2]}[rank]
    inputs, outputs = [torch.ones(each, 3) for each in rows], [torch.empty(each, 3) for each in rows]
    dist.all_to_all(outputs, inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, outputs, strict=True))


def test_exchanges_of_parts_of_several_shapes_are_left_alone():
    on_ranks(3, of_several_shapes)


def ahead_and_behind(rank, world):
    """Messages are in no order with collectives."""
    for _ in range(20):
        sent = torch.full((4,), float(rank))
        got = torch.empty(4)
        if rank == 0:
            works = [dist.isend(sent, 1), dist.irecv(got, 1)]
        total = torch.ones(3)
        dist.broadcast(total, 2)
        dist.all_reduce(total)
        if rank == 1:
            works = [dist.irecv(got, 0), dist.isend(sent, 0)]
        if rank < 2:
            for work in works:
                work.wait()
            assert torch.equal(got, torch.full((4,), float(1 - rank)))
    if rank == 2:
        time.sleep(0.5)  # the others leave first


def test_ranks_that_only_take_their_time_are_left_alone():
    on_ranks(3, ahead_and_behind)


def failed_operation(rank, world):
    tensor = torch.ones(10 + rank)
    work = dist.all_reduce(tensor, async_op=True)
    try:
        work.wait()
    except RuntimeError as error:
        raised = str(error)
    assert work.is_completed() and not work.is_success()
    assert isinstance(work.exception(), RuntimeError), work.exception()
    assert str(work.exception()) == raised
    with pytest.raises(RuntimeError, match="no result"):
        work.result()
    return raised


def test_a_failed_operation_gives_its_exception():
    for text in on_ranks(2, failed_operation):
        assert "10" in text and "11" in text, text


def timed(rank, world):
    dist.group.WORLD._enable_collectives_timing()  # as with gloo, there is nothing to do
    dist.all_reduce(torch.ones(3), async_op=True).wait(timedelta(seconds=20))


def test_timing_of_collectives_may_be_asked_for():
    on_ranks(2, timed)
