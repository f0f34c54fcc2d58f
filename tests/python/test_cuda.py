"""Tensors on a GPU: the backend stages them, hooks and attach() encode them on the CPU. All ranks share one GPU."""

import os
import re
import tomllib
from contextlib import nullcontext

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that this torch can use")

SOME_TIME = 200_000_000  # clock cycles of a GPU: a tenth of a second
CUDA = "cuda:0"


def all_collectives(device, rank, world):
    def full(value, *shape, dtype=torch.float32):
        return torch.full(shape, float(value), dtype=dtype, device=device)

    total = full(rank, 1000).add_(torch.arange(1000, device=device))
    dist.all_reduce(total)
    average = full(rank, 7, dtype=torch.bfloat16)
    dist.all_reduce(average, dist.ReduceOp.AVG)
    strided = full(0, 6, 4)
    dist.all_reduce(strided.t()[1:3].add_(rank))
    several = [full(rank + i, 5 + i) for i in range(3)]
    dist.all_reduce_coalesced(several)
    told = full(rank, 3)
    dist.broadcast(told, 1)
    reduced = full(rank + 1, 3)
    dist.reduce(reduced, 0)
    parts = [full(0, 4) for _ in range(world)]
    dist.all_gather(parts, full(rank, 4))
    gathered = full(0, world * 4)
    dist.all_gather_into_tensor(gathered, full(rank, 4))
    share = full(0, 2)
    dist.reduce_scatter(share, [full(rank + i, 2) for i in range(world)])
    scattered = full(0, 2)
    dist.reduce_scatter_tensor(scattered, full(rank, world * 2))
    exchanged = full(0, world)
    dist.all_to_all_single(exchanged, full(rank, world))
    lists = [full(0, 2) for _ in range(world)]
    dist.all_to_all(lists, [full(10 * rank + i, 2) for i in range(world)])
    collected = [full(0, 2) for _ in range(world)] if rank == 0 else None
    dist.gather(full(rank, 2), collected, 0)
    dealt = full(0, 2)
    dist.scatter(dealt, [full(i, 2) for i in range(world)] if rank == 0 else None, 0)
    message = full(rank, 5)
    if rank == 0:
        dist.send(message, 1)
    elif rank == 1:
        dist.recv(message, 0)
    sparse = torch.sparse_coo_tensor([[rank, 3]], full(1, 2), (8,), device=device)
    dist.all_reduce(sparse)
    objects = [None] * world
    dist.all_gather_object(objects, rank)
    dist.barrier()
    dist.monitored_barrier()
    results = [total, average, strided, *several, told, reduced, *parts, gathered, share, scattered, exchanged, *lists]
    results += [*(collected or []), dealt, message, sparse.to_dense()]
    assert {each.device.type for each in results} == {torch.device(device).type} and objects == list(range(world))
    return [each.cpu() for each in results]


def on_both_devices(rank, world):
    return all_collectives(CUDA, rank, world), all_collectives("cpu", rank, world)


def test_every_collective_gives_on_a_gpu_what_it_gives_on_the_cpu():
    for of_gpu, of_cpu in on_ranks(3, on_both_devices):
        assert len(of_gpu) == len(of_cpu) > 20
        for gpu, cpu in zip(of_gpu, of_cpu, strict=True):
            assert torch.equal(gpu, cpu)


def late_input(rank, world):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        values = torch.zeros(1 << 20, device=CUDA)
        torch.cuda._sleep(SOME_TIME)
        values.fill_(rank + 1)  # long after the call below has begun
        work = dist.all_reduce(values, async_op=True)
        work.wait()
        doubled = values * 2
    stream.synchronize()
    return doubled.unique().tolist()


def test_a_collective_waits_for_the_kernels_before_it_on_its_stream():
    assert on_ranks(2, late_input) == [[6.0], [6.0]]


def received_late(rank, world):
    stream = torch.cuda.Stream()
    room = torch.empty(4, device=CUDA)
    for _ in range(2):  # what loads a kernel or gets page-locked memory for the first time may wait for the GPU
        torch.cuda.synchronize()
        dist.barrier()
        with torch.cuda.stream(stream):
            if rank == 0:
                dist.send(torch.ones(4, device=CUDA), 1)
            else:
                torch.cuda._sleep(3 * SOME_TIME)
                room.fill_(-1)  # the message is here before this runs, and must be written behind it
                dist.recv(room, 0)
    torch.cuda.synchronize()
    return room.tolist() if rank == 1 else None


def test_a_result_is_written_behind_the_kernels_that_use_its_memory():
    assert on_ranks(2, received_late) == [None, [1.0] * 4]


def by_callback(rank, world):
    values = torch.ones(1 << 16, device=CUDA)
    future = dist.all_reduce(values, async_op=True).get_future()
    halved = future.then(lambda done: done.value()[0] / 2)
    with torch.cuda.stream(torch.cuda.Stream()):
        return halved.wait().unique().tolist()


def test_a_future_brings_the_result_to_whatever_stream():
    assert on_ranks(2, by_callback) == [[1.0], [1.0]]


def trained(rank, world):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    alone = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    alone.load_state_dict(net.state_dict())
    torch.manual_seed(1)
    images = torch.randn(10, world, 16, 64)
    with torch.cuda.stream(torch.cuda.Stream()):
        shared = DistributedDataParallel(net.to(CUDA), bucket_cap_mb=0.01)
        optimizer = torch.optim.SGD(shared.parameters(), lr=0.1, momentum=0.9)
        for step in images:
            optimizer.zero_grad()
            shared(step[rank].to(CUDA)).square().mean().backward()
            optimizer.step()
        parameters = [each.detach().cpu() for each in net.parameters()]
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for step in images:
        optimizer.zero_grad()
        alone(step.flatten(0, 1)).square().mean().backward()
        optimizer.step()
    return parameters, [each.detach() for each in alone.parameters()]


def test_ddp_trains_as_one_process_with_the_whole_batch():
    first, second = on_ranks(2, trained)
    for mine, theirs, alone in zip(first[0], second[0], first[1], strict=True):
        assert torch.equal(mine, theirs)
        torch.testing.assert_close(mine, alone, rtol=1e-3, atol=1e-4)


def hooked(rank, world, spec, dtype):
    net = nn.Linear(1024, 64, bias=False).to(device=CUDA, dtype=dtype)
    ddp = DistributedDataParallel(net, gradient_as_bucket_view=True)
    state, hook = ranvier.hook(spec)
    ddp.register_comm_hook(state, hook)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):  # buckets are formed anew after the first
            net.weight.grad = None
            inputs = torch.empty(1, 1024, device=CUDA, dtype=dtype)
            torch.cuda._sleep(SOME_TIME)
            inputs.fill_(rank + 1)  # the gradient
            ddp(inputs).sum().backward()
        gradient = net.weight.grad.float().cpu()
    return gradient, state.bytes_sent, state.plain_buckets


SPECS = ("none", "int8", "hadamard:32+int4+rans", "topk:0.5+int8", "powersgd:4", "thc:8", "switchml", "demo:32")


@pytest.mark.parametrize("backend", ["ranvier", "gloo", "cpu:ranvier,cuda:nccl", "nccl"])
def test_a_hook_averages_gradients_of_a_gpu(backend):
    for spec in SPECS if backend != "gloo" else SPECS[:4]:
        for dtype in (torch.float32, torch.bfloat16):
            (first, sent, plain), (second, *_) = on_ranks(
                2, one_gpu_as_several_hosts, hooked, spec, dtype, backend="gloo", environment={"BACKEND": backend}
            )
            assert torch.equal(first, second) and plain == 0 and sent > 0
            if spec.split(":")[0] in ("none", "int8", "powersgd", "switchml"):  # all that a single step brings
                torch.testing.assert_close(first, torch.full((64, 1024), 1.5), rtol=0.02, atol=0.02)


def one_gpu_as_several_hosts(rank, world, body, *args):
    """NCCL takes two ranks with one GPU for a mistake, unless they say that they are on two hosts."""
    os.environ |= {"NCCL_HOSTID": f"host {rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    store = dist.distributed_c10d._get_default_store()
    torch.cuda.set_device(0)
    dist.destroy_process_group()
    dist.init_process_group(
        os.environ["BACKEND"], store=dist.PrefixStore("again", store), rank=rank, world_size=world
    )
    return body(rank, world, *args)


def attached(rank, world, sync, codec):
    torch.manual_seed(rank)
    net = nn.Linear(64, 64).to(CUDA)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    ranvier.attach(net, optimizer, sync=sync, compress=codec)
    for _ in range(8):
        optimizer.zero_grad()
        net(torch.randn(16, 64, device=CUDA)).square().mean().backward()
        optimizer.step()
    return [each.detach().cpu() for each in net.parameters()]


@pytest.mark.parametrize("sync", ["bsp", "local:4", "node:4", "diloco:4"])
@pytest.mark.parametrize("backend", ["ranvier", "nccl"])
def test_attach_synchronizes_a_model_on_a_gpu(backend, sync):
    for codec in ("none", "int8"):
        first, second = on_ranks(
            2, one_gpu_as_several_hosts, attached, sync, codec, backend="gloo", environment={"BACKEND": backend}
        )
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(first, second, strict=True))


TARGET = torch.randn(64, 8, generator=torch.Generator().manual_seed(9))


def teach(net, optimizer, device, generator, steps):
    """Steps on a stream of their own, of which each one's gradients come long after it has been launched."""
    with torch.cuda.stream(torch.cuda.Stream()) if device == CUDA else nullcontext():
        for _ in range(steps):
            inputs = torch.randn(16, 64, generator=generator)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(inputs.to(device)), torch.tanh(inputs @ TARGET).to(device))
            if device == CUDA:
                torch.cuda._sleep(SOME_TIME // 20)
            loss.backward()
            optimizer.step()
        return loss.item()


def learner(device):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 8)).to(device)
    return net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)


def held(net):
    floats = [each for each in net.state_dict().values() if each.is_floating_point()]
    return torch.cat([each.flatten().cpu() for each in floats])


def on_either_device(rank, world, spec, codec):
    results = []
    for device in (CUDA, "cpu"):
        net, optimizer = learner(device)
        ranvier.attach(net, optimizer, spec, compress=codec)
        teach(net, optimizer, device, torch.Generator().manual_seed(rank), 20)
        assert {each.device.type for each in net.state_dict().values()} == {torch.device(device).type}
        results.append(held(net))
    return results


@pytest.mark.parametrize("backend", ["ranvier", "gloo", "cpu:ranvier,cuda:nccl", "cpu:gloo,cuda:nccl"])
def test_what_travels_while_a_gpu_computes_is_what_would_on_the_cpu(backend):
    for spec in ("diloco:4,fragments=2,delay=1,merge=0.5", "gossip", "slowmo:4", "hierarchy:node=1,rack=4"):
        for codec in ("none", "bf16"):
            for of_gpu, of_cpu in on_ranks(
                2, one_gpu_as_several_hosts, on_either_device, spec, codec, backend="gloo", environment={"BACKEND": backend}
            ):
                near = 1e-4 if codec == "none" else 0.005  # behind rounded codes
                torch.testing.assert_close(of_gpu, of_cpu, rtol=near, atol=near)


def at_own_pace(rank, world, spec, codec):
    net, optimizer = learner(CUDA)
    sync = ranvier.attach(net, optimizer, spec, samples=16, compress=codec)
    generator = torch.Generator().manual_seed(rank)
    before, met = teach(net, optimizer, CUDA, generator, 1), []
    for _ in range(2):
        after = teach(net, optimizer, CUDA, generator, 30 + 10 * rank)
        sync.meet()
        met.append(held(net))
    sync.finish()
    assert all(each.is_cuda for each in net.state_dict().values())
    return before, after, met


@pytest.mark.parametrize("backend", ["ranvier", "nccl"])
@pytest.mark.parametrize("spec", ["async", "ssp:2", "group", "ad-psgd"])
def test_ranks_at_their_own_pace_meet_on_a_gpu(spec, backend):
    for codec in ("none", "int8"):
        results = on_ranks(
            2, one_gpu_as_several_hosts, at_own_pace, spec, codec, backend="gloo", environment={"BACKEND": backend}
        )
        for before, after, met in results:
            assert after < before / 2
            for mine, theirs in zip(met, results[0][2], strict=True):
                assert torch.equal(mine, theirs)


def grouped(rank, world):
    net, optimizer = learner(CUDA)
    net[2].register_forward_hook(lambda *_: torch.cuda._sleep(SOME_TIME // (40 if rank % 2 else 4)))
    sync = ranvier.attach(net, optimizer, "group", samples=16)
    teach(net, optimizer, CUDA, torch.Generator().manual_seed(rank), 14)
    sync.meet()
    formed = sync.groups, sync.shares
    sync.finish()
    return formed


def test_groups_are_formed_by_what_a_gpu_takes():
    for groups, shares in on_ranks(4, grouped):
        assert groups == [1, 0, 1, 0]
        assert shares[1] > 1.3 * shares[0]


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        torch.cuda._sleep(SOME_TIME)
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        torch.cuda._sleep(3 * SOME_TIME)
        return gradient.clone()


class SlowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, values):
        return self.second(Slow.apply(self.first(values)))


def test_a_recording_goes_by_the_clock_of_the_gpu(tmp_path):
    net = SlowNet().to(CUDA)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with ranvier.record(net, tmp_path / "workload.toml"):
        for _ in range(7):
            optimizer.zero_grad()
            net(torch.ones(4, 8, device=CUDA)).sum().backward()
            optimizer.step()
    recorded = tomllib.loads((tmp_path / "workload.toml").read_text())
    forward = {layer["name"]: layer["forward_ns"] for layer in recorded["layer"]}
    backward = {layer["name"]: layer["weight_gradient_ns"] for layer in recorded["layer"][:-1]}
    slow = max(forward.pop("second.weight"), forward.pop("second.bias"))  # what comes before a module is its own
    assert 2.5 < max(backward["first.weight"], backward["first.bias"]) / slow < 3.5
    others = [*forward.values(), backward["second.weight"], backward["second.bias"], recorded["other_ns"]]
    assert max(others) < slow / 5


def paced(rank, world):
    net = nn.Linear(8, 8).to(CUDA)
    net.register_forward_hook(lambda *_: torch.cuda._sleep(SOME_TIME // 5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    sync = ranvier.attach(net, optimizer, sync="auto", place="node=2")
    for _ in range(11):
        optimizer.zero_grad()
        net(torch.ones(4, 8, device=CUDA)).sum().backward()
        optimizer.step()
    return sync.decisions


def test_auto_measures_computing_where_it_happens():
    """To launch it takes no millisecond."""
    for ((step, _, reason),) in on_ranks(2, paced):
        assert step == 10 and float(re.search(r"takes ([\d.]+) ms for a step", reason)[1]) > 5, reason
