"""A codec that has momentum, under DistributedDataParallel: the optimizer, which the hook is not told of, has none beside it."""

import gc
import weakref
from functools import partial

import pytest
import ranvier
import torch
from ranks import on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

OF_ITS_OWN = {
    "momentum": lambda net: torch.optim.SGD(net.parameters(), 0.1, momentum=0.9),
    "Adam": lambda net: torch.optim.Adam(net.parameters(), 0.1),
    "AdamW": lambda net: torch.optim.AdamW(net.parameters(), 0.1),
}


def hooked(spec, **options):
    net = DistributedDataParallel(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2)), bucket_cap_mb=0.00001, **options)
    state, hook = ranvier.hook(spec)
    net.register_comm_hook(state, hook)
    return state, net


def loss_of(net):
    loss = net(torch.ones(1, 8)).sum()
    loss.backward()
    return loss


def all_of(net):
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def with_two_momenta(rank, world, spec):
    for word, make in OF_ITS_OWN.items():
        for in_a_closure in (False, True):
            _, net = hooked(spec)
            optimizer, before = make(net), all_of(net)
            if not in_a_closure:
                loss_of(net)
            with pytest.raises(ValueError, match=f"'{spec}' has a momentum of .* in the optimizer's place.*{word}"):
                optimizer.step(partial(loss_of, net) if in_a_closure else None)  # by one, as Lightning steps
            assert torch.equal(all_of(net), before)
    for spec_without in ("int8", "dgc:0.1,momentum=0"):
        _, net = hooked(spec_without)
        loss_of(net)
        OF_ITS_OWN["momentum"](net).step()


@pytest.mark.parametrize("spec", ["strong", "demo:8", "topk:0.1,momentum=0.9"])
def test_an_optimizer_that_has_momentum_beside_the_codecs_is_refused_before_it_changes_anything(spec):
    on_ranks(2, with_two_momenta, spec, backend="gloo")


def with_momentum_elsewhere(rank, world):
    state, net = hooked("strong")
    elsewhere = nn.Linear(8, 4)
    first = torch.optim.SGD([{"params": net.module[0].parameters()}, {"params": elsewhere.parameters(), "momentum": 0.9}], 0.1)
    second = torch.optim.SGD(net.module[1].parameters(), 0.1, momentum=0.9)
    loss_of(net)
    loss_of(elsewhere)
    OF_ITS_OWN["Adam"](elsewhere).step()
    first.step()
    with pytest.raises(ValueError, match="make the optimizer with momentum=0"):
        second.step()


def test_only_what_the_hook_averages_counts():
    on_ranks(2, with_momentum_elsewhere, backend="gloo")


def with_momentum_later(rank, world):
    state, net = hooked("strong")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    loss_of(net)
    optimizer.step()
    schedule.step()
    loss_of(net)
    with pytest.raises(ValueError, match="betas"):  # another one, for the next phase
        OF_ITS_OWN["Adam"](net).step()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.param_groups[0]["momentum"] = 0.9
    loss_of(net)
    before = all_of(net)
    with pytest.raises(ValueError, match="momentum=0"):
        optimizer.step()
    assert torch.equal(all_of(net), before)
    cycled = torch.optim.SGD(net.parameters(), 0.1)
    torch.optim.lr_scheduler.OneCycleLR(cycled, max_lr=0.1, total_steps=10)  # sets it
    with pytest.raises(ValueError, match="cycle_momentum=False"):
        cycled.step()
    with pytest.raises(ValueError, match="cycle_momentum=False"):
        cycled.step(partial(loss_of, net))
    torch.optim.SGD(net.parameters(), 0.1).step()
    net.module[0].weight.grad = torch.ones_like(net.module[0].weight)
    OF_ITS_OWN["Adam"](net.module).step()  # of gradients that the hook has not averaged
    state.close()
    cycled.step()


def test_an_optimizer_that_comes_later_and_momentum_that_does_are_refused_too():
    on_ranks(2, with_momentum_later, backend="gloo")


def looked_at(rank, world):
    hooks = _global_optimizer_pre_hooks, _global_optimizer_post_hooks
    before = [len(each) for each in hooks]
    states = []
    for _ in range(2):
        state, net = hooked("strong")
        optimizer, kept = torch.optim.SGD(net.parameters(), 0.1), weakref.ref(net.module)
        loss_of(net)
        optimizer.step()
        loss_of(net)
        states.append(state)
        assert [len(each) for each in hooks] == [each + 1 for each in before]
    alive = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert alive() is None
    states.pop().close()
    assert [len(each) for each in hooks] == [each + 1 for each in before]
    states.pop().close()
    assert [len(each) for each in hooks] == before
    del state, net
    gc.collect()
    assert kept() is None


def test_optimizers_are_looked_at_while_a_hook_has_momentum_and_are_not_kept():
    on_ranks(2, looked_at, backend="gloo")


def attached(rank, world):
    net = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    sync = ranvier.attach(net, optimizer, "bsp", compress="strong")
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    net(torch.ones(1, 8)).sum().backward()
    with pytest.raises(ValueError, match="cycle_momentum=False"):
        optimizer.step()
    optimizer.param_groups[0]["momentum"] = 0
    optimizer.step()
    sync.finish()


def test_momentum_that_comes_later_is_refused_under_attach_too():
    on_ranks(2, attached, backend="gloo")
