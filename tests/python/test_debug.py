"""What torch's debugging and profiling see of the operations."""

import re
import time
from datetime import timedelta

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from ranvier._groups import timeout_of
from torch.nn.parallel import DistributedDataParallel


def detail(rank, world):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(list(range(world)))  # in torch's wrapper, which compares the calls of all ranks
    assert isinstance(group._get_backend(torch.device("cpu")), dist.distributed_c10d._ProcessGroupWrapper)
    if rank == 0:  # messages are not the same on all ranks, and must not count
        dist.send(torch.ones(3), 1, group=group)
    if rank == 1:
        dist.recv(torch.ones(3), 0, group=group)
    total = torch.full((5,), float(rank))
    dist.all_reduce(total, group=group)
    assert torch.equal(total, torch.full((5,), float(sum(range(world)))))
    lists = [torch.empty(5) for _ in range(world)]
    dist.all_gather(lists, total, group=group)
    objects = [None] * world
    dist.all_gather_object(objects, rank, group=group)
    assert objects == list(range(world))
    dist.monitored_barrier(group)
    dist.destroy_process_group(group)

    mismatched = dist.new_group(list(range(world)))
    try:
        if rank == 0:
            dist.all_reduce(total, group=mismatched)
        else:
            dist.broadcast(total, 1, group=mismatched)
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_debug_level_detail_compares_calls():
    for text in on_ranks(3, detail):
        assert "mismatch between collectives on ranks" in text, text


def all_in_wrappers(rank, world, backend):
    whole = dist.group.WORLD
    cpu = torch.device("cpu")
    assert isinstance(whole._get_backend(cpu), dist.distributed_c10d._ProcessGroupWrapper)
    total = torch.full((5,), float(rank))
    dist.all_reduce(total)
    assert total.tolist() == [1.0] * 5
    state, hook = ranvier.hook("int8")
    assert timeout_of(state._way[0].group) == timedelta(seconds=30)
    if backend == "ranvier":  # over gloo, torch 2.13 itself crashes where DDP is made in this mode
        net = DistributedDataParallel(torch.nn.Linear(64, 8))
        net.register_comm_hook(state, hook)
        net(torch.full((2, 64), float(rank))).sum().backward()
        torch.testing.assert_close(net.module.weight.grad, torch.full((8, 64), 1.0), rtol=0.02, atol=0.02)
    net = torch.nn.Linear(3, 3)
    ranvier.attach(net, torch.optim.SGD(net.parameters(), lr=0.1), "local:2").finish()
    dist.monitored_barrier()
    dist.barrier()
    try:
        dist.all_reduce(torch.ones(5)) if rank == 0 else dist.broadcast(torch.ones(5), 1)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_debug_level_detail_in_the_environment_wraps_the_default_group(backend):
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    for text in on_ranks(2, all_in_wrappers, backend, backend=backend, environment=detail):
        assert text and "mismatch between collectives on ranks" in text, text


def split_in_a_wrapper(rank, world):
    part = dist.group.WORLD.split_group([0, 1], timeout=timedelta(seconds=20))
    total = torch.full((5,), float(rank))
    part.allreduce([total]).wait()
    return total.tolist()


def test_a_group_in_a_wrapper_splits():
    assert on_ranks(2, split_in_a_wrapper, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}) == [[1.0] * 5] * 2


def aborted_in_a_wrapper(rank, world):
    from ranvier import _library

    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(list(range(world)))
    assert isinstance(group._get_backend(torch.device("cpu")), dist.distributed_c10d._ProcessGroupWrapper)
    dist.barrier(group)
    if rank == 1:
        _library.load().abort(group.boxed(), "rank 1 ended with KeyError: lost")
    backend = group._get_backend(torch.device("cpu")).wrapped_pg
    with pytest.raises(RuntimeError, match="KeyError: lost"):  # whoever it reaches in a call, or before one
        for _ in range(1000):
            backend.allreduce([torch.ones(3)], dist.AllreduceOptions()).wait()
            time.sleep(0.01)


def test_a_group_in_a_wrapper_is_aborted_with_its_reason():
    on_ranks(2, aborted_in_a_wrapper)


def broadcast_of(root, asynchronous):
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor, options.asyncOp = root, 0, asynchronous
    return options


def counted(rank, world):
    group, backend = dist.group.WORLD, dist.group.WORLD._get_backend(torch.device("cpu"))
    first = group._get_sequence_number_for_group()
    assert first == backend._get_sequence_number_for_group()
    if rank == 0:
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        dist.recv(torch.ones(3), 0)
    dist.barrier()
    for asynchronous in (False, True) if rank == 0 else ():  # what is refused is no call, and was none of the others'
        with pytest.raises(ValueError, match="root"):
            group.broadcast([torch.ones(3)], broadcast_of(9, asynchronous)).wait()
    dist.all_reduce(torch.ones(3))
    return group._get_sequence_number_for_group() - first


@pytest.mark.parametrize("backend", ["ranvier", "cpu:ranvier"])
def test_sequence_numbers_count_collectives(backend):
    assert set(on_ranks(3, counted, backend=backend)) == {2}


def numbered(rank, world):
    """The numbers that c10d has and that errors have of the same call."""
    group = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    tensor = torch.ones(3)
    if rank < 2:
        dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor.to_sparse())
    dist.monitored_barrier()
    group.allreduce_coalesced([tensor, tensor]).wait()
    dist.barrier()
    number = backend._get_sequence_number_for_group()
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(3 + rank))
    return number, re.findall(r"all_reduce #(\d+) ", str(caught.value).partition("\n")[0])


def test_sequence_numbers_are_those_of_errors():
    for number, found in on_ranks(3, numbered):
        assert number == 6 and set(found) == {"6"}, found


def profiled(rank, world):
    other = 1 - rank
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        tensor = torch.ones(3, 4)
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
        dist.all_gather([torch.ones(3, 4), torch.ones(3, 4)], tensor)
        dist.all_to_all_single(torch.empty(2, 3), torch.ones(2, 3))
        sending = dist.isend(tensor, other)
        dist.recv(torch.empty(3, 4), other)
        sending.wait()
        dist.barrier()
    return {event.key: event.input_shapes for event in profile.key_averages(group_by_input_shape=True)}


def test_profilers_see_titles_and_shapes():
    for seen in on_ranks(2, profiled):
        for title in ("all_reduce", "broadcast", "all_gather", "send", "recv"):
            assert seen[f"ranvier:{title}"] == [[3, 4]], (title, seen.get(f"ranvier:{title}"))
        assert seen["ranvier:all_to_all"] == [[2, 3]]
        assert "ranvier:barrier" in seen
