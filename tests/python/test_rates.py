"""ranvier.attach where each rank's scheduler goes by its own loss, so that learning rates part."""

import contextlib
import warnings

import pytest
import ranvier
import torch
from ranks import on_ranks, run_ranks
from torch import nn, optim
from torch.distributed.algorithms.join import Join
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

WORLD = 4
STEPS = 13
FIRST = 0.1


def network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def trained(rank, world, spec, words, kind, joins=False):
    """By its own loss only rank 1 finds itself on a plateau, behind every second step; and what it was warned of."""
    net = network()
    rate = torch.tensor(FIRST) if kind == "tensor" else FIRST
    optimizer = optim.Adam(net.parameters(), lr=rate) if kind == "tensor" else optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    sync = ranvier.attach(net, optimizer, spec, steps=STEPS, **words)
    own, alike = ReduceLROnPlateau(optimizer, factor=0.5, patience=0), CosineAnnealingLR(optimizer, 2 * STEPS)
    rates, generator = [], torch.Generator().manual_seed(rank)
    with warnings.catch_warnings(record=True) as warned, Join([sync]) if joins else contextlib.nullcontext():
        warnings.simplefilter("always")
        for step in range(STEPS - 2 * rank if joins else STEPS):
            optimizer.zero_grad()
            net(torch.randn(4, 6, generator=generator)).square().mean().backward()
            optimizer.step()
            rates.append(float(optimizer.param_groups[0]["lr"]))
            if kind == "alike":
                alike.step()
            else:
                own.step(1.0 if rank == 1 and step % 2 else 1.0 / (2 + step))
    end = [p.detach().clone() for p in net.parameters()]  # nobody has averaged them yet
    sync.finish()
    return end, rates, [str(each.message) for each in warned if "learning rates" in str(each.message)]


def are_equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("backend", "spec", "words", "kind"),
    [
        ("gloo", "bsp", {}, "float"),
        ("ranvier", "bsp", {}, "float"),
        ("gloo", "bsp", {}, "tensor"),
        ("gloo", "bsp", {"compress": "int8"}, "float"),
        ("gloo", "post-local:100,after=1", {}, "float"),
    ],
)
def test_ranks_that_average_gradients_take_the_rates_of_the_first_and_are_told(backend, spec, words, kind):
    ends, rates, warned = zip(*on_ranks(WORLD, trained, spec, words, kind, backend=backend), strict=True)
    for rank in range(WORLD):
        assert are_equal(ends[rank], ends[0])
        assert rates[rank] == pytest.approx([FIRST] * STEPS), "rank 0 has been on no plateau"
        assert len(warned[rank]) == (1 if rank == 1 else 0), "once, where a rate was another one"
    assert "[0.1" in warned[1][0] and "rank 0, and not [0.05" in warned[1][0] and "ReduceLROnPlateau" in warned[1][0]


def test_nodes_and_ranks_that_average_parameters_keep_rates_of_their_own():
    ends, rates, warned = zip(*on_ranks(WORLD, trained, "node:4", {"place": "node=2"}, "float", backend="gloo"), strict=True)
    assert are_equal(ends[0], ends[1]) and are_equal(ends[2], ends[3]) and not are_equal(ends[0], ends[2])
    assert [len(each) for each in warned] == [0, 1, 0, 0]
    ends, rates, warned = zip(*on_ranks(2, trained, "local:100", {}, "float", backend="gloo"), strict=True)
    assert rates[1][-1] < FIRST / 2 and not any(warned)


def test_slow_momentum_goes_by_the_mean_of_all_rates():
    """Behind each period, of which one ends with the last step, replicas are one."""
    ends, rates, warned = zip(*on_ranks(3, trained, f"slowmo:{STEPS}", {}, "float", backend="gloo"), strict=True)
    assert rates[1][-1] < rates[0][-1] and not any(warned)
    assert are_equal(ends[1], ends[0]) and are_equal(ends[2], ends[0])


def test_ranks_that_are_done_have_no_say():
    """Of a Join, whose third rank is done first."""
    ends, rates, warned = zip(*on_ranks(3, trained, "bsp", {}, "float", True, backend="gloo"), strict=True)
    assert are_equal(ends[1], ends[0]) and are_equal(ends[2], ends[0])
    assert rates[1] == pytest.approx([FIRST] * len(rates[1]))
    assert [len(each) for each in warned] == [0, 1, 0]


def test_of_equal_rates_nobody_is_warned():
    ends, rates, warned = zip(*on_ranks(2, trained, "bsp", {}, "alike", backend="gloo"), strict=True)
    assert are_equal(*ends) and rates[0] == rates[1] and rates[0][-1] < FIRST and not any(warned)


def with_other_groups(rank, world):
    net = network()
    parameters = [*net.parameters()]
    groups = [{"params": parameters}] if rank == 0 else [{"params": parameters[:1]}, {"params": parameters[1:]}]
    ranvier.attach(net, optimizer := optim.SGD(groups, lr=0.1), "bsp")
    net(torch.ones(2, 6)).sum().backward()
    optimizer.step()


def test_other_groups_of_parameters_are_refused():
    for outcome in run_ranks(2, with_other_groups, backend="gloo"):
        assert "make the same groups on every rank" in outcome.error
