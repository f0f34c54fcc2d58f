"""ranvier.attach where tensors lie in memory in other ways than one value behind the other, and what it gives back."""

import gc
import os
import time
import weakref

import pytest
import ranvier
import torch
from ranks import on_ranks
from torch import nn

POLICIES = ("bsp", "local:3", "node:3", "node:3,delay=1", "diloco:4,fragments=2", "gossip", "async")
STEPS = 6


class Odd(nn.Module):
    """Half of the ranks have the convolution's weight channel by channel, and the others pixel by pixel."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(7)
        self.convolution = nn.Conv2d(4, 6, 3)
        if rank % 2 == 1:
            self.convolution.to(memory_format=torch.channels_last)
        self.gaps = nn.Parameter(torch.randn(6, 8)[:, ::2])
        self.register_buffer("mean", torch.zeros(3, 4)[:, ::2])
        self.register_buffer("expanded", torch.full((1,), float(rank)).expand(5))
        self.register_buffer("short", torch.full((2,), float(rank)).to(torch.float8_e4m3fn))

    def forward(self, images):
        self.mean += images.mean()
        self.expanded[:1] += 1
        return (self.convolution(images).mean((2, 3)) @ self.gaps).square().mean()


def trained(rank, world, policies):
    ends = []
    for spec in policies:
        model = Odd(rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        sync = ranvier.attach(model, optimizer, spec, place="node=2" if spec.startswith("node") else "")
        assert torch.equal(model.expanded, torch.zeros(5)), "what rank 0 had, which is its number"
        assert torch.equal(model.short.float(), torch.zeros(2))
        generator = torch.Generator().manual_seed(rank)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(2, 4, 5, 5, generator=generator)).backward()
            optimizer.step()
        if spec == "async":
            sync.meet()
        sync.finish()
        values = (model.convolution.weight, model.gaps, model.mean, model.expanded)
        ends.append(torch.cat([each.detach().reshape(-1) for each in values]))
    return ends


def test_all_end_alike_however_their_tensors_lie_in_memory():
    by_backend = [on_ranks(4, trained, POLICIES, backend=backend) for backend in ("gloo", "ranvier")]
    for case, spec in enumerate(POLICIES):
        gloo, ours = ([rank[case] for rank in ranks] for ranks in by_backend)
        for ranks in (gloo, ours):
            for end in ranks:
                assert torch.equal(end, ranks[0]), spec
        if spec != "async":  # which goes by who is first
            torch.testing.assert_close(gloo[0], ours[0], rtol=0, atol=1e-5, msg=spec)
        assert ours[0][-1] == STEPS, f"{spec}: the mean of what each has counted"


def by_a_hook():
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)))
    state, hook = ranvier.hook("topk:0.5+int8")
    model.register_comm_hook(state, hook)
    for _ in range(5):
        model(torch.ones(2, 3)).sum().backward()
    sent, kept = state.bytes_sent, state.state_dict(model.module)
    state.close()
    state.close()
    assert sent > 0 and state.bytes_sent == sent
    assert state.state_dict(model.module)["parameters"].keys() == kept["parameters"].keys() != set()
    with pytest.raises(ValueError, match="close\\(\\) has ended this hook"):
        model(torch.ones(2, 3)).sum().backward()


def counted(rank, world, spec):
    def round():
        if spec == "hook":
            return by_a_hook()
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        sync = ranvier.attach(model, optimizer, spec, place="node=2", compress="int8" if "local" in spec else "none")
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        sync.finish()

    def held():
        gc.collect()
        groups = torch.distributed.distributed_c10d._world.pg_map
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(groups)

    round()
    first = held()
    for _ in range(4):
        round()
    until = time.monotonic() + 5  # what others close comes to its end here a moment later
    while any(now > before for now, before in zip(held(), first, strict=True)) and time.monotonic() < until:
        time.sleep(0.1)
    return first, held()


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize("spec", ["node:2", "local:3,delay=1", "diloco:2,fragments=2", "hook"])
def test_what_is_over_gives_back_its_connections_and_threads(spec, backend):
    for first, later in on_ranks(4, counted, spec, backend=backend):
        assert all(now <= before for now, before in zip(later, first, strict=True)), (first, later)


def not_kept(rank, world, spec, options):
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    sync = ranvier.attach(net, optimizer, spec, **options)
    for _ in range(5):
        net.weight.grad, net.bias.grad = torch.ones(4, 4), torch.ones(4)
        optimizer.step()
    sync.finish()
    kept = weakref.ref(net), weakref.ref(optimizer), weakref.ref(sync)
    gc.collect()  # what torch's own first step leaves
    gc.disable()
    del net, optimizer, sync
    alive = [each() is not None for each in kept]
    gc.enable()
    return alive


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("bsp", {"compress": "topk:0.1"}),
        ("local:2", {}),
        ("local:2", {"compress": "int8"}),
        ("diloco:4,fragments=2", {}),
        ("node:2,delay=1", {"place": "node=2"}),
        ("gossip", {}),
        ("async", {}),
        ("auto", {}),
    ],
)
def test_a_model_that_nobody_needs_goes_without_a_search_for_cycles(spec, options):
    assert on_ranks(2, not_kept, spec, options, backend="gloo") == [[False] * 3] * 2
