"""Ranks that call different things are told so, on every rank, by names and numbers, where gloo hangs or sums garbage."""

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


def different_shapes(rank, world, kind, shapes):
    tensor = torch.ones(shapes[rank])
    if kind == "all_reduce":
        dist.all_reduce(tensor)
    elif kind == "reduce":
        dist.reduce(tensor, 0)
        dist.barrier()
    elif kind == "all_gather":
        dist.all_gather([torch.empty_like(tensor) for _ in range(world)], tensor)
    else:
        dist.broadcast(tensor, 0)
        dist.barrier()


@pytest.mark.parametrize("kind", ["all_reduce", "reduce", "broadcast", "all_gather"])
def test_shapes_of_equal_size_are_refused(kind):
    for error in errors(run_ranks(2, different_shapes, kind, [(2, 3), (3, 2)])):
        assert "the shapes of rank" in error and "rank 0" in error and "rank 1" in error, error
        assert f"{kind} #" in error, error


@pytest.mark.parametrize("kind", ["all_reduce", "reduce", "broadcast", "all_gather"])
def test_dimensions_of_one_do_not_matter(kind):
    on_ranks(2, different_shapes, kind, [(1, 5, 1), (5,)])
    on_ranks(2, different_shapes, kind, [(), (1,)])


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
