"""A process group with a backend for each type of device."""

import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from ranvier import settings
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def mixed(rank, world):
    cpu = dist.group.WORLD._get_backend(torch.device("cpu"))
    cuda = dist.group.WORLD._get_backend(torch.device("cuda"))  # there need not be one to have its backend
    total = torch.full((5,), float(rank))
    dist.all_reduce(total)
    gathered = [None] * world
    dist.all_gather_object(gathered, rank)
    dist.barrier()
    half = dist.new_group([0, 1])
    if rank < 2:
        dist.broadcast(total, 0, group=half)
    dist.monitored_barrier()
    return cpu.name(), cuda.name(), total[0].item(), gathered


def test_a_group_of_two_backends_uses_each_for_its_devices():
    for cpu, cuda, total, gathered in on_ranks(3, mixed, backend="cpu:ranvier,cuda:gloo"):
        assert (cpu, cuda, total, gathered) == ("ranvier", "gloo", 3.0, [0, 1, 2])


def with_options(rank, world):
    dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", 0, world_size=1, is_master=True)
    chosen = []
    original = settings.for_group
    settings.for_group = lambda *given: chosen.append(original(*given)) or chosen[-1]
    with ranvier.Options(algorithm="ring"):
        dist.init_process_group("cpu:ranvier,cuda:gloo", store=store, rank=0, world_size=1)
    total = torch.ones(3)
    dist.all_reduce(total)
    ranvier.hook("int8")  # makes a group of the same kind
    first, of_hook = chosen
    assert first["name"] == "default_pg" and of_hook["name"] != "default_pg"
    assert of_hook == first | {"world_ranks": "0", "name": of_hook["name"]}
    return chosen[0]["RANVIER_ALGORITHM"], total.sum().item()


def test_options_of_a_block_reach_ranvier_in_a_mix():
    assert on_ranks(1, with_options, backend="gloo") == [("ring", 3.0)]


def bound_to_a_gpu(rank, world):
    """As init_process_group(device_id=…) leaves it, which there has to be a GPU for."""
    dist.group.WORLD.bound_device_id = torch.device("cuda", 0)
    half = dist.new_group([0, 1])
    total = torch.ones(2)
    if rank < 2:
        dist.all_reduce(total, group=half)
    dist.all_reduce(total)
    return total[0].item()


def test_a_world_bound_to_a_device_has_groups_that_leave_ranks_out():
    assert on_ranks(3, bound_to_a_gpu, backend="cpu:ranvier,cuda:ranvier") == [5.0] * 3


def hooked(rank, world):
    net = DistributedDataParallel(nn.Linear(64, 8))
    state, hook = ranvier.hook("int8")
    net.register_comm_hook(state, hook)
    net(torch.full((2, 64), float(rank))).sum().backward()
    wire = state._way[0]
    return net.module.weight.grad, wire.device_for(torch.device("cpu")), wire.device_for(torch.device("cuda"))


def test_codes_go_by_the_buckets_device_and_not_by_the_backends_name():
    for backend, of_cuda in (("cpu:ranvier,cuda:gloo", "cuda"), ("gloo", "cpu")):
        for gradient, of_cpu, other in on_ranks(2, hooked, backend=backend):
            torch.testing.assert_close(gradient, torch.full((8, 64), 1.0), rtol=0.02, atol=0.02)
            assert (of_cpu.type, other.type) == ("cpu", of_cuda)
