"""Subgroups, mixed backends, stores of every kind."""

import os
import re
import sys
import threading
import time
from datetime import timedelta

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks, said_by
from ranvier import _library
from ranvier._register import made_with
from torch.distributed.device_mesh import init_device_mesh


def subgroups(rank, world):
    even = dist.new_group([0, 2])
    last = dist.new_group([1, 2])
    tensor = torch.full((100,), float(rank))
    if rank in (0, 2):
        dist.all_reduce(tensor, group=even)
        assert torch.equal(tensor, torch.full((100,), 2.0))
    if rank in (1, 2):
        tensor = torch.full((100,), float(rank))
        dist.broadcast(tensor, src=2, group=last)
        assert torch.equal(tensor, torch.full((100,), 2.0))
    both = [dist.all_reduce(torch.ones(10), group=group, async_op=True) for group in (even, last) if _is_in(group)]
    for work in both:
        work.wait()
    dist.barrier()
    if _is_in(even):
        dist.destroy_process_group(even)
    dist.barrier()


def _is_in(group) -> bool:
    return dist.get_rank(group) >= 0


def test_subgroups_communicate_apart():
    on_ranks(3, subgroups)


def named(rank, world):
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((10,), float(world)))
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).name()


@pytest.mark.parametrize("backend", ["ranvier", "cpu:ranvier"])
def test_the_backend_goes_by_its_name_or_by_device(backend):
    assert on_ranks(2, named, backend=backend) == ["ranvier", "ranvier"]


def parts(rank, world):
    whole = dist.group.WORLD
    mine = whole.split_group([0, 2], timeout=timedelta(seconds=20))
    if rank == 1:
        assert mine is None
    else:
        total = torch.full((100,), float(rank))
        mine.allreduce([total]).wait()
        assert torch.equal(total, torch.full((100,), 2.0))
    # Groups that overlap, each rank in two of them.
    pairs = [pair for pair in ([0, 1], [1, 2], [0, 2]) if rank in pair]
    for pair in pairs:
        group = whole.split_group(pair, group_name=f"pair{pair}")
        total = torch.full((5,), float(rank))
        group.allreduce([total]).wait()
        assert torch.equal(total, torch.full((5,), float(sum(pair))))
    dist.barrier()


def test_a_group_splits():
    on_ranks(3, parts)


def part_with_a_timeout(rank, world):
    part = dist.group.WORLD.split_group([0, 1], timeout=timedelta(seconds=3))
    if rank == 1:
        time.sleep(4)  # longer than the part would wait
    dist.barrier()
    with pytest.raises(dist.DistBackendError, match="waited 3 s"):
        if rank == 1:
            time.sleep(4)
        part.allreduce([torch.ones(3)]).wait()


def test_a_part_has_a_timeout_of_its_own():
    on_ranks(2, part_with_a_timeout)


def absent(rank, world, how, folder):
    """Rank 2 does not come; the others, who wait for it, are of a world that would wait longer."""
    limit = timedelta(seconds=3 if how == "merge" else 1)  # those who merge have to come within it, but for rank 2
    try:
        if rank == 2:
            return "elsewhere"
        if how == "new":
            if rank == 0:
                dist.new_group([0, 2], timeout=limit, use_local_synchronization=True)
        elif how == "split":
            if rank == 0:
                dist.group.WORLD.split_group([0, 2], timeout=limit)
        else:
            dist.group.WORLD.merge_remote_group(dist.FileStore(f"{folder}/both", 4), 4, limit, group_name="both")
    except dist.DistBackendError as error:
        return str(error)
    finally:
        dist.barrier()  # rank 2 has not left, either


@pytest.mark.parametrize("how", ["new", "split"])
def test_members_that_do_not_come_are_named_within_the_groups_own_timeout(how):
    error = on_ranks(3, absent, how, "", group_timeout=600, limit=60)[0]
    assert error == (
        "rank 2 (1 of its group) of a group of 2 did not come in time; start all of them, or allow more time "
        "(timeout= of init_process_group, new_group or split_group)"
    )


def ended(rank, world, how, making):
    """Rank 2 ends while the others make a group of all; they are of a world that would wait longer."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 2:
        store.wait(["met 0", "met 1"])
        if how == "dies":
            os._exit(1)
        return None
    store.set(f"met {rank}", "")
    if making == "new":
        dist.new_group([0, 1, 2])
    elif making == "split":
        dist.group.WORLD.split_group([0, 1, 2])
    else:
        ranvier.hook("int8")


@pytest.mark.parametrize(
    ("how", "making", "reason"),
    [
        ("dies", "new", "will not come to a group of 3: rank 2 .*died"),
        ("dies", "split", "will not come to a group of 3: rank 2 .*died"),
        ("dies", "hook", "rank 2 .*died"),  # in the broadcast that comes before
        ("leaves", "new", "will not come to a group of 3: rank 2 has left the job"),
    ],
)
def test_a_group_is_not_made_with_a_rank_that_another_group_has_lost(how, making, reason):
    for outcome in run_ranks(3, ended, how, making, lost=[2], group_timeout=600, limit=60)[:2]:
        assert outcome.error and re.search(f"DistNetworkError: .*{reason}", outcome.error), outcome


ENDS = """
import sys
from datetime import timedelta
import ranvier
import torch.distributed as dist
rank = int(sys.argv[1])
store = dist.TCPStore("127.0.0.1", int(sys.argv[2]), is_master=False)
dist.init_process_group("ranvier", store=store, rank=rank, world_size=3, timeout=timedelta(seconds=600))
if rank == 2:
    store.wait(["met 0", "met 1"])  # they fail with the same reason, but in another call, where it ends before
    raise ValueError("no such file")
store.set(f"met {rank}", "")
dist.new_group([0, 1, 2])
"""


def test_a_group_is_not_made_with_a_rank_that_an_exception_has_ended():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    command = [sys.executable, "-c", ENDS]
    errors = said_by([[*command, str(rank), str(store.port)] for rank in range(3)])
    for error in errors[:2]:
        assert "rank 2 will not come to a group of 3: " in error and "rank 2 ended with ValueError: no such file" in error
        assert "socket.cpp" not in error, "torch warns of each wait of a TCPStore's that ends without what was waited for"


def test_worlds_that_merge_wait_no_longer_than_they_were_told(tmp_path):
    for error in on_ranks(3, absent, "merge", str(tmp_path), group_timeout=600, limit=60)[:2]:
        assert re.match(r"ranks 2, 3 of a world of 4 did not come in time", error), error


def merging(rank, world, folder):
    dist.destroy_process_group()
    # Two worlds, of ranks 0 and 1 and of rank 2, which know nothing of each other.
    mine, ranks = ("first", 2) if rank < 2 else ("second", 1)
    dist.init_process_group("ranvier", init_method=f"file://{folder}/{mine}", rank=rank % 2, world_size=ranks)
    store = dist.FileStore(f"{folder}/both", world)
    merged = dist.group.WORLD.merge_remote_group(store, world, timedelta(seconds=20), group_name="both")
    total = torch.tensor([1.0, float(rank)])
    merged.allreduce([total]).wait()
    own = torch.ones(1)
    dist.all_reduce(own)
    assert own.item() == ranks, "the world is as it was"
    return merged.rank(), merged.size(), total.tolist()


def test_worlds_merge(tmp_path):
    got = on_ranks(3, merging, tmp_path)
    assert sorted(rank for rank, _, _ in got) == [0, 1, 2]
    assert all((size, total) == (3, [3.0, 3.0]) for _, size, total in got), got


def subgroups_of_two(rank, world):
    mine, _ = dist.new_subgroups(2)
    assert dist.get_world_size(mine) == 2
    total = torch.full((3,), float(rank))
    dist.all_reduce(total, group=mine)
    assert torch.equal(total, torch.full((3,), float(rank // 2 * 4 + 1)))
    chosen, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    dist.all_reduce(total.fill_(rank), group=chosen)
    assert torch.equal(total, torch.full((3,), 3.0))


def test_subgroups_of_one_size():
    on_ranks(4, subgroups_of_two)


def grid_of_all(rank, world):
    line = [0, 1] if rank < 2 else [2, 3]
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    for group in (groups[rank // 2], dist.group.WORLD.split_group(line), dist.group.WORLD):
        total = torch.ones(100)
        group.allreduce([total]).wait()
        assert torch.equal(total, torch.full((100,), float(group.size())))


def test_dimensions_that_the_environment_names_are_those_of_all_ranks():
    on_ranks(4, grid_of_all, environment={"RANVIER_TOPOLOGY": "torus:2x2", "RANVIER_ALGORITHM": "torus:2x2"})


def optioned(rank, world):
    ring = dist.new_group([0, 1], pg_options=ranvier.Options(algorithm="ring", transport="tcp"))
    total = torch.full((1000,), float(rank))
    dist.all_reduce(total, group=ring)
    assert torch.equal(total, torch.full((1000,), 1.0))
    with pytest.raises((dist.DistBackendError, ValueError), match="'tpc'.*tcp"):
        dist.new_group([0, 1], pg_options=ranvier.Options(transport="tpc"))
    with pytest.raises(TypeError, match="ranvier.Options, and not a dict"):
        dist.new_group([0, 1], pg_options={"transport": "tcp"})


def test_groups_have_options_of_their_own():
    on_ranks(2, optioned)


def world_with_options(rank, world, store):
    dist.destroy_process_group()
    chosen = ranvier.Options(algorithm="swing")
    dist.init_process_group("ranvier", init_method=f"file://{store}", rank=rank, world_size=world, pg_options=chosen)
    total = torch.full((5,), float(rank))
    dist.all_reduce(total)
    assert total.tolist() == [1.0] * 5
    # Only errors tell by which algorithm a group runs.
    with pytest.raises(dist.DistBackendError, match="all_reduce #1 .* by swing"):
        dist.all_reduce(torch.ones(5 + rank))


def test_the_default_group_has_options_of_its_own(tmp_path):
    on_ranks(2, world_with_options, str(tmp_path / "store"))


def impatient(rank, world, how):
    group = dist.new_group([0, 1])
    if how == "method":
        group.set_timeout(timedelta(seconds=0.5))
    else:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=0.5), group)
    if rank == 0:
        dist.all_reduce(torch.ones(3), group=group)
    else:
        time.sleep(2)


@pytest.mark.parametrize("how", ["method", "function"])
def test_the_timeout_of_a_group_can_be_changed(how):
    error = run_ranks(2, impatient, how)[0].error
    assert error and "waited 0.5 s" in error, error


def patient(rank, world):
    limit = timedelta(days=200_000)  # of nanoseconds 64 bits hold half of it
    group = dist.new_group([0, 1], timeout=limit)
    part = dist.group.WORLD.split_group([0, 1], timeout=limit)
    for each in (group, part):
        total = torch.ones(3)
        each.allreduce([total]).wait()
        assert total.tolist() == [2.0] * 3
    work = dist.all_reduce(total, group=group, async_op=True)
    assert work.wait(limit)
    dist.monitored_barrier(group, limit)
    group.set_timeout(limit)
    other = 1 - rank
    sent, received = torch.tensor(float(rank)), torch.tensor(-1.0)
    for work in (dist.isend(sent, other, group=group), dist.irecv(received, other, group=group)):
        work.wait()
    assert received.item() == other
    opts = dist.AllreduceOptions()
    opts.timeout = limit
    group.allreduce([total], opts).wait()
    _library.connect(dist.HashStore(), 0, 1, timedelta.max, ranvier.Options(dead_after=timedelta(days=1))).shutdown()


def test_timeouts_of_ages_are_no_timeouts_of_an_instant():
    on_ranks(2, patient)


def test_ranks_that_are_threads_meet_through_a_store_in_memory():
    store, sums = dist.HashStore(), {}

    def rank(number: int) -> None:
        backend = _library.connect(store, number, 3, timedelta(seconds=30))
        tensor = torch.full((1000,), float(number))
        backend.allreduce([tensor]).wait()
        sums[number] = tensor
        backend.barrier().wait()
        backend.shutdown()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(sums) == 3 and all(torch.equal(total, torch.full((1000,), 3.0)) for total in sums.values())


def in_meshes(rank, world):
    options = ranvier.Options(transport="tcp", sockets=2)
    line = init_device_mesh("cpu", (world,), mesh_dim_names=("all",), backend_override={"all": ("ranvier", options)})
    plane = init_device_mesh(
        "cpu", (2, world // 2), mesh_dim_names=("rows", "columns"), backend_override={"columns": ("ranvier", options)}
    )
    sums = []
    for group in (line.get_group(), plane.get_group("rows"), plane.get_group("columns")):
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=group)
        sums.append(total.item())
    return sums, [made_with[group.group_name].transport for group in (line.get_group(), plane.get_group("columns"))]


def test_options_stand_in_a_mesh():
    for rank, (sums, transports) in enumerate(on_ranks(4, in_meshes)):
        assert sums == [6, rank % 2 * 2 + 2, rank // 2 * 4 + 1] and transports == ["tcp"] * 2
