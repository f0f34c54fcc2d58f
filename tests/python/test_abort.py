"""A group that is aborted: whoever waits is told, and a new one can be made."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks


def begun_anew(rank, world, store):
    limit = timedelta(seconds=30)
    dist.init_process_group("ranvier", init_method=f"file://{store}", rank=rank, world_size=world, timeout=limit)
    total = torch.full((3,), float(rank))
    dist.all_reduce(total)
    return total.tolist()


# Who has left a barrier does not know that the others have.
def say_beyond(rank):
    dist.distributed_c10d._get_default_store().set(f"rank {rank} is beyond the barrier", "")


def wait_for(ranks):
    dist.distributed_c10d._get_default_store().wait([f"rank {rank} is beyond the barrier" for rank in ranks])


def aborted(rank, world, how, store):
    group = dist.group.WORLD
    dist.barrier()
    said = "rank 0 called abort"
    say_beyond(rank)
    if rank == 0:
        wait_for(range(world))
        pending = dist.all_reduce(torch.ones(3), async_op=True)  # which no other rank calls
        if how == "a group's method":
            group.abort()
        else:
            dist.distributed_c10d._abort_process_group()
            assert not dist.is_initialized()
        with pytest.raises(dist.DistBackendError, match=said):
            pending.wait()
        assert said in str(pending.exception())
        with pytest.raises(dist.DistBackendError, match=said):
            group.allreduce([torch.ones(3)], dist.AllreduceOptions()).wait()
    else:
        with pytest.raises(dist.DistBackendError, match=said):
            dist.recv(torch.ones(3), 0)  # nothing that rank 0 could disagree with
        if how == "torch's function":
            dist.distributed_c10d._abort_process_group()
    if how == "a group's method":
        with pytest.raises(dist.DistBackendError, match=said):
            dist.barrier()
        dist.destroy_process_group()
    return begun_anew(rank, world, store)


@pytest.mark.parametrize("how", ["a group's method", "torch's function"])
def test_an_aborted_group_says_so_and_makes_room_for_another(how, tmp_path):
    assert on_ranks(3, aborted, how, str(tmp_path / "again")) == [[3.0] * 3] * 3


def of_some_ranks(rank, world):
    """The others' groups go on."""
    pair = dist.new_group([0, 2])
    if rank != 1:
        dist.barrier(pair)
        say_beyond(rank)
        if rank == 2:
            wait_for([0])
            dist.distributed_c10d._abort_process_group(pair)
        else:
            with pytest.raises(dist.DistBackendError, match=r"rank 2 \(1 of its group\) called abort"):
                for _ in range(1000):
                    pair.allreduce([torch.ones(3)], dist.AllreduceOptions()).wait()
                    time.sleep(0.01)
            dist.destroy_process_group(pair)
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def test_a_group_is_aborted_alone():
    assert on_ranks(3, of_some_ranks) == [3.0] * 3
