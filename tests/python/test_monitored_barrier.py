"""A barrier that names who did not come, on every rank."""

import os
import re
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks


def together(rank, world):
    for wait_all_ranks in (False, True):
        time.sleep(0.05 * rank)
        dist.monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=wait_all_ranks)
    dist.monitored_barrier()
    part = dist.new_group([0, world - 1])
    dist.monitored_barrier(part, 20.0)  # nothing for ranks that are not in it
    total = torch.ones(10)
    dist.all_reduce(total)
    assert torch.equal(total, torch.full((10,), float(world)))


def test_everyone_passes_when_everyone_comes():
    on_ranks(3, together)


def some_late(rank, world, late, wait_all_ranks):
    store = dist.distributed_c10d._get_default_store()
    try:
        if rank in late:
            store.wait(["rank 0 has given up"])
        else:
            dist.monitored_barrier(timeout=timedelta(seconds=2), wait_all_ranks=wait_all_ranks)
    finally:
        if rank == 0:
            store.set("rank 0 has given up", "")
    dist.all_reduce(torch.ones(1))


@pytest.mark.parametrize(
    ("late", "wait_all_ranks", "verdict"),
    [
        ([1], False, "Rank 1 failed to pass monitoredBarrier in 2000 ms"),
        ([1, 2], False, "Rank 1 failed to pass monitoredBarrier in 2000 ms"),
        ([1, 2], True, "Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms"),
    ],
)
def test_who_does_not_come_is_named_on_every_rank(late, wait_all_ranks, verdict):
    outcomes = run_ranks(4, some_late, late, wait_all_ranks)
    assert all(each.error and verdict in each.error for each in outcomes), outcomes
    assert "Rank 3 successfully reached monitoredBarrier" in outcomes[3].error, outcomes[3]
    for rank in {0, 3} - set(late):
        sentence = outcomes[rank].error.partition("\n")[0]
        assert "monitored_barrier #0: Rank" in sentence and " with tag " not in sentence, sentence


def elsewhere(rank, world, who):
    dist.barrier()
    if rank == who:
        dist.all_reduce(torch.ones(5))
    else:
        dist.monitored_barrier()


@pytest.mark.parametrize("who", [0, 2])
def test_who_calls_another_collective_is_told_with_all_others(who):
    for outcome in run_ranks(3, elsewhere, who, group_timeout=600):
        sentence = outcome.error.partition("\n")[0]
        assert outcome.error.startswith("DistBackendError"), outcome
        assert f"rank {who} called all_reduce #1 of f32 sum with 5 elements" in sentence, outcome
        assert re.search(r"rank \d called monitored_barrier #1[,;]", sentence), outcome
        assert " with tag " not in sentence, outcome


def first_missing(rank, world):
    if rank:
        dist.monitored_barrier(timeout=timedelta(seconds=0.3))
    else:
        time.sleep(3)


def test_the_others_do_not_wait_for_rank_0_for_ever():
    outcomes = run_ranks(2, first_missing)
    assert "waiting for send/recv from rank 0" in outcomes[1].error, outcomes[1]


def dead(rank, world):
    if rank == 1:
        os._exit(1)
    dist.monitored_barrier(timeout=timedelta(seconds=20))


def test_a_dead_rank_is_named_at_once():
    start = time.monotonic()
    outcome = run_ranks(2, dead, lost={1})[0]
    assert "Rank 1 failed to pass monitoredBarrier" in outcome.error, outcome
    assert time.monotonic() - start < 15  # the barrier's own limit is 20 s


def no_time(rank, world):
    if rank == 0:
        dist.monitored_barrier(timeout=timedelta(0))


def test_no_time_at_all_is_too_little():
    assert "Rank 0 timed out in monitoredBarrier after 0 ms" in run_ranks(2, no_time)[0].error


def on_gloo(rank, world):
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=7))


def test_groups_of_other_backends_behave_as_before():
    on_ranks(2, on_gloo, backend="gloo")
