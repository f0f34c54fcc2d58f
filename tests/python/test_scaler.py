"""torch.amp.GradScaler under ranvier.attach: what one rank finds infinite, and who leaves the step out; and under ranvier.hook,
by which what is held back is in no step's factor."""

import pytest
import ranvier
import torch
from ranks import on_ranks
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

WORLD = 4
STEPS = 6
BAD = 3  # the step in which rank 1 finds infinity


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))


OPTIMIZERS = {
    "momentum": lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
    "adamw": lambda net: torch.optim.AdamW(net.parameters(), lr=0.01),
    "fused": lambda net: torch.optim.AdamW(net.parameters(), lr=0.01, fused=True),
}


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def loss_of(net: nn.Module, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (net(torch.randn(8, 6, generator=generator)) - torch.randn(8, 4, generator=generator)).square().mean()


def scaled(rank, world, optimizer_name, spec, place, compress, unscales, bad):
    """What each step left, and the scaler's factor behind it; by a scaler, or where `bad` is None without one."""
    net = network()
    optimizer = OPTIMIZERS[optimizer_name](net)
    marked = vars(optimizer).get("_step_supports_amp_scaling")
    sync = ranvier.attach(net, optimizer, spec, place=place, compress=compress)
    # Powers of two: what it scales has the same bits afterwards.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=bad is not None)
    trace, factors = [], []
    for step in range(STEPS):
        if bad is None and step == BAD:
            continue
        optimizer.zero_grad()
        scaler.scale(loss_of(net, rank, step)).backward()
        if step == BAD and rank == bad:
            net[2].bias.grad[1] = torch.inf
        if unscales:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        trace.append(flat(net).clone())
        factors.append(scaler.get_scale())
    sync.finish()
    assert vars(optimizer).get("_step_supports_amp_scaling") == marked
    assert not hasattr(optimizer, "found_inf") and not hasattr(optimizer, "grad_scale")
    return trace, factors, sync.step


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize(
    ("optimizer", "compress", "unscales"),
    [("momentum", "none", False), ("adamw", "none", True), ("fused", "none", False), ("momentum", "int8", False)],
)
def test_all_whose_gradients_are_one_average_leave_the_step_out(backend, optimizer, compress, unscales):
    fixed = {"backend": backend, "environment": {"RANVIER_ALGORITHM": "ring"}}  # two worlds that add up in the same order
    ranks = on_ranks(WORLD, scaled, optimizer, "bsp", "", compress, unscales, 1, **fixed)
    for trace, factors, steps in ranks:
        assert steps == STEPS
        for mine, theirs in zip(trace, ranks[0][0], strict=True):
            assert torch.equal(mine, theirs) and mine.isfinite().all()
        assert torch.equal(trace[BAD], trace[BAD - 1]) and not torch.equal(trace[BAD + 1], trace[BAD])
    # A scaler follows what its own rank has found.
    assert [factors[BAD] for _, factors, _ in ranks] == [1024, 512, 1024, 1024]
    if compress == "none":  # whose random numbers go by steps
        plain = on_ranks(WORLD, scaled, optimizer, "bsp", "", compress, False, None, **fixed)
        assert torch.equal(ranks[0][0][-1], plain[0][0][-1]), "as if that step had not been"


def test_of_nodes_and_of_own_steps_the_others_go_on():
    nodes = on_ranks(WORLD, scaled, "adamw", "node:4", "node=2", "none", False, 1, backend="gloo")
    left_out = [torch.equal(trace[BAD - 1], trace[BAD]) for trace, _, _ in nodes]
    assert left_out == [False] * WORLD, "node:4 averages parameters behind that step"
    nodes = on_ranks(WORLD, scaled, "adamw", "node:6", "node=2", "none", False, 1, backend="gloo")
    assert [torch.equal(trace[BAD - 1], trace[BAD]) for trace, _, _ in nodes] == [True, True, False, False]
    for spec in ("local:6", "diloco:6", "gossip"):
        own = on_ranks(WORLD, scaled, "momentum", spec, "", "none", False, 1, backend="gloo")
        if spec != "gossip":  # by which a rank hears of another behind each step
            assert [torch.equal(trace[BAD - 1], trace[BAD]) for trace, _, _ in own] == [rank == 1 for rank in range(WORLD)]
        for trace, _, steps in own:
            assert steps == STEPS and trace[-1].isfinite().all()


def shadowed(rank, world, optimizer_name):
    """Rank 0 has fewer steps, the last ranks one more; none of them is to take the step that rank 1 finds infinite."""
    net = network()
    optimizer = OPTIMIZERS[optimizer_name](net)
    sync = ranvier.attach(net, optimizer, "bsp")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with Join([sync]):
        for step in range((0, STEPS, STEPS)[rank]):
            optimizer.zero_grad()
            scaler.scale(loss_of(net, rank, step)).backward()
            if step == BAD and rank == 1:
                net[0].weight.grad[2, 2] = torch.nan
            scaler.step(optimizer)
            scaler.update()
    sync.finish()
    state = [value for each in optimizer.state.values() for value in each.values() if isinstance(value, torch.Tensor)]
    return flat(net), state


def test_who_has_no_steps_left_leaves_out_what_the_others_do():
    ranks = on_ranks(3, shadowed, "adamw", backend="gloo")
    for parameters, state in ranks:
        assert parameters.isfinite().all() and torch.equal(parameters, ranks[0][0])
        for mine, theirs in zip(state, ranks[0][1], strict=True):
            assert torch.equal(mine, theirs)


def of_sixteen_bits(rank, world):
    net = network().to(torch.float16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    sync = ranvier.attach(net, optimizer, "bsp")
    scaler = torch.amp.GradScaler("cpu")
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    scaler.scale(torch.ones(()))
    with pytest.raises(ValueError, match="float16"):
        scaler.step(optimizer)
    assert not hasattr(optimizer, "found_inf") and not hasattr(optimizer, "grad_scale")
    optimizer.step()  # without it
    sync.finish()


def test_gradients_of_sixteen_bits_are_refused():
    on_ranks(2, of_sixteen_bits, backend="gloo")


def at_its_own_pace(rank, world, spec):
    net = network()
    optimizer = OPTIMIZERS["momentum"](net)
    sync = ranvier.attach(net, optimizer, spec, samples=8)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(net, rank, step)).backward()
        if step == BAD and rank == 1:
            net[2].bias.grad[1] = torch.inf
        scaler.step(optimizer)
        scaler.update()
    sync.meet()
    ended = flat(net).clone()
    sync.finish()
    return ended, sync.step


@pytest.mark.parametrize("spec", ["async", "ssp:1", "ad-psgd"])
def test_at_its_own_pace_who_skips_pushes_nothing(spec):
    ranks = on_ranks(2, at_its_own_pace, spec, backend="gloo")
    assert [steps for _, steps in ranks] == [STEPS, STEPS - 1]
    assert ranks[0][0].isfinite().all() and torch.equal(ranks[0][0], ranks[1][0])


def by_a_hook(rank, world, spec):
    """Where steps led without a scaler, with one whose factor grows in each, and with one that the hook is not told of."""
    ends = []
    for enabled, told in ((False, True), (True, True), (True, False)):
        net = DistributedDataParallel(network(), bucket_cap_mb=0.0001)  # several buckets
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        # Powers of two: what it scales has the same bits afterwards.
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=1, enabled=enabled)
        state, hook = ranvier.hook(spec, scaler=scaler if told else None)
        net.register_comm_hook(state, hook)
        for step in range(STEPS):
            optimizer.zero_grad()
            scaler.scale(loss_of(net, rank, step)).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == (2.0 ** (8 + STEPS) if enabled else 1)
        ends.append(flat(net.module))
    return ends


@pytest.mark.parametrize("spec", ["topk:0.1+int8", "dgc:0.1,clip=1", "powersgd:1", "delta+int4", "normalize+int4"])
def test_what_a_hook_holds_back_is_of_gradients_without_the_factor(spec):
    for plain, told, untold in on_ranks(2, by_a_hook, spec, backend="gloo"):
        assert torch.equal(plain, told)
        assert not torch.equal(plain, untold)
