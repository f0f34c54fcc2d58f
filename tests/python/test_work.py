"""Asynchronous operations: handles, futures, callbacks, lifetimes."""

import gc
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks


def asynchronous(rank, world):
    tensors = [torch.full((1000,), float(rank + i)) for i in range(50)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):  # in another order than they were started in
        assert work.wait()
    for i, tensor in enumerate(tensors):
        assert torch.equal(tensor, torch.full((1000,), float(world * i + sum(range(world)))))
        assert works[i].is_completed() and works[i].is_success() and works[i].exception() is None
        assert works[i].result()[0].data_ptr() == tensor.data_ptr()


def test_many_operations_run_at_once_and_can_be_waited_for_in_any_order():
    on_ranks(3, asynchronous)


def every_kind(rank, world):
    mine = torch.full((6, 2), float(rank))
    ranks = torch.arange(float(world))
    reduced, sent = torch.full((7,), float(rank)), torch.full((9,), float(rank))
    lists = [torch.empty(6, 2) for _ in range(world)]
    gathered = [torch.empty(6, 2) for _ in range(world)] if rank == 0 else None
    whole, swapped, part, scattered = torch.empty(6 * world, 2), torch.empty(world), torch.empty(4), torch.empty(3)
    works = [
        dist.reduce(reduced, 1, async_op=True),
        dist.broadcast(sent, 1, async_op=True),
        dist.all_gather(lists, mine, async_op=True),
        dist.all_gather_into_tensor(whole, mine, async_op=True),
        dist.gather(mine, gathered, 0, async_op=True),
        dist.all_to_all_single(swapped, ranks + 10 * rank, async_op=True),
        dist.reduce_scatter(part, [torch.full((4,), float(r)) for r in range(world)], async_op=True),
        dist.scatter(scattered, [torch.full((3,), float(r)) for r in range(world)] if rank == 0 else None, 0, async_op=True),
        dist.barrier(async_op=True),
    ]
    for work in works:
        work.wait()
    expected = torch.stack([torch.full((6, 2), float(r)) for r in range(world)])
    assert rank != 1 or torch.equal(reduced, torch.full((7,), ranks.sum().item()))
    assert torch.equal(sent, torch.ones(9))
    assert torch.equal(torch.stack(lists), expected) and torch.equal(whole, expected.flatten(0, 1))
    assert rank != 0 or torch.equal(torch.stack(gathered), expected)
    assert torch.equal(swapped, 10 * ranks + rank)
    assert torch.equal(part, torch.full((4,), float(rank * world)))
    assert torch.equal(scattered, torch.full((3,), float(rank)))


def impossible(rank, world):
    group, tensor = dist.group.WORLD, torch.ones(4)
    rooted = dist.BroadcastOptions()
    rooted.rootRank, rooted.asyncOp = 7, True
    calls = [
        lambda: group.send([tensor], rank, 0),
        lambda: group.send([tensor], 7, 0),
        lambda: group.recv([tensor], rank, 0),
        lambda: group.recv([tensor], 7, 0),
        lambda: group.broadcast([tensor], rooted),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=rf"rank {rank}\b|\b7\b"):
            call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, pytest.raises(ValueError):
        calls[1]()
    assert [event.name for event in profile.events() if event.name == "ranvier:send"]
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world] * 4


def test_what_can_never_be_is_refused_when_it_is_called_and_the_group_goes_on():
    on_ranks(2, impossible)


def test_collectives_of_every_kind_may_be_under_way_together():
    on_ranks(3, every_kind)


def polled(rank, world):
    work = dist.all_reduce(torch.ones(100_000), async_op=True)
    deadline = time.monotonic() + 30
    while not work.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_an_operation_that_nobody_waits_for_makes_progress():
    on_ranks(2, polled)


def dropped(rank, world):
    results = []
    for i in range(20):
        tensor = torch.full((5000,), float(i))
        results.append(dist.all_reduce(tensor, async_op=True).get_future())
        del tensor
    gc.collect()
    for i, future in enumerate(results):
        assert torch.equal(future.wait()[0], torch.full((5000,), float(i * world)))


def test_tensors_outlive_handles_that_were_dropped():
    on_ranks(2, dropped)


def chained(rank, world):
    first = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
    doubled = first.then(lambda future: future.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((1000,), 2.0 * world))

    # A callback may start the next operation, as communication hooks of DDP do.
    def start_next(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future()

    chain = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(start_next)
    assert torch.equal(chain.wait().wait()[0], torch.full((10,), float(world * world)))

    # And may wait for it, on whatever thread it runs.
    def run_next(future):
        tensor = future.value()[0]
        dist.all_reduce(tensor)
        return tensor

    nested = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(run_next)
    assert torch.equal(nested.wait(), torch.full((10,), float(world * world)))

    # Or for its future, as torch's own hook for PowerSGD does.
    def wait_for_next(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()

    for i in range(20):
        if rank == i % world:
            time.sleep(0.002)
        first = dist.all_reduce(torch.ones(10), async_op=True).get_future()
        last = first.then(wait_for_next).then(wait_for_next)
        assert torch.equal(last.wait()[0], torch.full((10,), float(world**3)))


@pytest.mark.parametrize("world", [2, 3])
def test_callbacks_of_futures_run_and_may_communicate(world):
    on_ranks(world, chained)


def passed_around(rank, world):
    # What is no collective is started, and moves on another thread while the callback waits.
    def pass_on(future):
        mine, theirs = future.value()[0], torch.empty(10)
        receipt = dist.irecv(theirs, (rank - 1) % world)
        dist.isend(mine + rank, (rank + 1) % world)
        receipt.get_future().wait()
        return theirs

    passed = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(pass_on)
    assert torch.equal(passed.wait(), torch.full((10,), float(world + (rank - 1) % world)))
    dist.barrier()


def test_callbacks_may_wait_for_messages():
    on_ranks(3, passed_around)


def impatient(rank, world):
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        try:
            work.wait(timedelta(milliseconds=50))
        except dist.DistBackendError as error:
            message = str(error)
        dist.distributed_c10d._get_default_store().set("impatient", "")
        dist.barrier(async_op=True)
        work.wait()
        return message
    dist.distributed_c10d._get_default_store().wait(["impatient"])
    dist.all_reduce(torch.ones(10))
    dist.barrier()
    return None


def test_wait_with_a_limit_raises_and_the_operation_goes_on():
    message = on_ranks(2, impatient)[0]
    assert "ranvier:all_reduce is not done after the 50 ms" in message
    assert "#0 all_reduce" in message.partition("Last operations")[2] and "still running" in message, message


def functional(rank, world):
    from torch.distributed import _functional_collectives as funcol

    total = funcol.all_reduce(torch.ones(10), "sum", dist.group.WORLD)
    assert torch.equal(total + 0, torch.full((10,), float(world)))
    gathered = funcol.all_gather_tensor(torch.full((2,), float(rank)), 0, dist.group.WORLD)
    assert torch.equal(gathered + 0, torch.arange(world).repeat_interleave(2).float())


def test_functional_collectives_run():
    on_ranks(2, functional)


def profiled(rank, world):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(10))
    return [event.key for event in profile.key_averages()]


def test_profilers_see_operations_by_name():
    assert all("ranvier:all_reduce" in names for names in on_ranks(2, profiled))


def failing(rank, world):
    if rank == 0:
        future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
        try:
            future.wait()
        except RuntimeError as error:
            return str(error)
        return "no error"
    dist.all_reduce(torch.ones(20))
    return None


def test_a_failed_operation_fails_its_future():
    first, second = run_ranks(2, failing)
    assert "10" in first.value and "20" in first.value
    assert second.error
