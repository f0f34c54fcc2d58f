"""Ranks that wait for each other in different places: the timeout's error says on every rank where the other one is."""

import re
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks

LIMIT_S = 4
LIMIT = timedelta(seconds=LIMIT_S)
ATTEMPTS = 4


def all_say(says, run) -> None:
    """That each rank's error says it. Ranks ask each other a second before their time is over: on a machine that keeps them
    from their cores for longer, one of some attempts has to."""
    for _ in range(ATTEMPTS):
        errors = run()
        assert all(f"waited {LIMIT_S} s for rank" in error for error in errors), errors
        if all(says(rank, error) for rank, error in enumerate(errors)):
            return
    raise AssertionError(errors)


def told(call, *args, **options) -> str:
    """The sentence of its error."""
    with pytest.raises(dist.DistError) as raised:
        call(*args, **options)
    return str(raised.value).partition("\n")[0]


def opposite_order(rank, world, late):
    first, second = dist.new_group([0, 1], timeout=LIMIT), dist.new_group([0, 1], timeout=LIMIT)
    dist.barrier(first)
    if rank == 1:
        time.sleep(late)
    groups = [first, second] if rank == 0 else [second, first]
    said = told(dist.all_reduce, torch.ones(10), group=groups[0])
    store = dist.distributed_c10d._get_default_store()
    store.set(f"told {rank}", "")
    store.wait(["told 0", "told 1"])  # or the other one may hear first that this one has left
    return said


IN_FIRST, IN_SECOND = "all_reduce #1 of group '1'", "all_reduce #0 of group '2'"


def test_groups_in_opposite_order_are_named_on_both_ranks():
    def says(rank, error):
        own, other = ("#1", IN_SECOND) if rank == 0 else ("#0", IN_FIRST)
        call = f"all_reduce {own} (f32 x 10, sum) of group"
        assert f"rank {rank} waited {LIMIT_S} s for rank {1 - rank} in {call}" in error, error
        # Whose timeout comes second may ask when the first one is through with it.
        if re.search(rf"is in no operation now \([\d.]+ s after {other.partition(' of ')[0]} ", error):
            return True
        # Whose own timeout comes second may say of the first what the other rank has said.
        return (
            f"rank {1 - rank} has not called it, and has been in {other} for" in error
            and f"which rank {rank} has not called; call both in the same order on every rank" in error
        )

    all_say(says, lambda: on_ranks(2, opposite_order, 0))


def test_a_rank_that_came_later_is_told_of_both_too():
    def says(rank, error):
        assert f"rank 0 waited {LIMIT_S} s for rank 1 in all_reduce #1 (f32 x 10, sum) of group '1'" in error, error
        return f"rank 1 has not called it, and has been in {IN_SECOND} for" in error

    all_say(says, lambda: on_ranks(2, opposite_order, LIMIT_S / 2))


def collective_and_message(rank, world, first):
    tensor = torch.ones(4)
    if rank != first:
        time.sleep(LIMIT_S / 2)  # so that the other one's timeout ends both
    return told(dist.all_reduce, tensor) if rank == 0 else told(dist.recv, tensor, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_a_collective_and_a_message_are_named_on_both_ranks(first):
    def says(rank, error):
        return (
            "rank 0" in error
            and "rank 1" in error
            and bool(re.search(r"all_reduce #0\b", error))
            and "recv of 16 B from rank 0" in error
            and "has been in " + ("recv" if first == 0 else "all_reduce") in error
        )

    all_say(says, lambda: on_ranks(2, collective_and_message, first, group_timeout=LIMIT_S))


def only_sends(rank, world):
    tensor = torch.ones(20_000_000)
    return told(dist.send, tensor, 1 - rank)


def test_two_ranks_that_only_send_are_both_named():
    def says(rank, error):
        return "send of 80000000 B to rank 0" in error and "send of 80000000 B to rank 1" in error

    all_say(says, lambda: on_ranks(2, only_sends, group_timeout=LIMIT_S))
