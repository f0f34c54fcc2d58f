"""Codes between nodes only: the averages, what travels, and what goes plain. RANVIER_NODE makes nodes of one host."""

import os

import pytest
import ranvier
import torch
from ranks import on_ranks
from ranvier._nodes import BetweenNodes
from test_ddp import BATCH, model, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PLACES = ["0101", "01233"]


def train_with(rank, world, spec, places):
    os.environ["RANVIER_NODE"] = places[rank]
    net = DistributedDataParallel(model())
    state, hook = ranvier.hook(spec)
    net.register_comm_hook(state, hook)
    parameters = train(net, slice(rank * BATCH // world, (rank + 1) * BATCH // world))
    return parameters, state.bytes_sent, state.plain_buckets, isinstance(state._way[1], BetweenNodes)


@pytest.mark.parametrize(
    ("backend", "places", "spec", "near"),
    [
        ("gloo", "0011", "fp32", 1e-4),
        ("ranvier", "0011", "int8", 0.1),
        ("ranvier", "0101", "powersgd:8", 0.6),
        ("gloo", "0101", "topk:0.1+int8", 0.6),
        ("ranvier", "0011", "thc:8", 0.2),
    ],
)
def test_ranks_agree_in_every_bit_and_train_nearly_as_without(backend, places, spec, near):
    runs = on_ranks(4, train_with, spec, places, backend=backend)
    alone = train(model(), slice(None))
    start = torch.cat([p.detach().flatten() for p in model().parameters()])
    assert all(torch.equal(run[0], runs[0][0]) for run in runs)
    assert (runs[0][0] - alone).norm() < near * (alone - start).norm()
    assert all(run[2] == 0 and run[3] for run in runs)


def test_one_node_or_one_rank_each_needs_no_teams():
    for places in ("00", "01"):
        assert not on_ranks(2, train_with, "int8", places)[0][3]


def average(rank, world, places, poison):
    os.environ["RANVIER_NODE"] = places[rank]
    net = DistributedDataParallel(nn.Linear(64, 8))
    state, hook = ranvier.hook("int8:ef=0")
    net.register_comm_hook(state, hook)
    for step in range(2):
        net.zero_grad()
        scale = float("inf") if poison and step == 0 and rank == world - 1 else float(rank + 1)
        net(torch.full((2, 64), scale)).sum().backward()
        if step == 0:
            first = net.module.weight.grad.clone()
    return first, net.module.weight.grad, state.plain_buckets


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("poison", [False, True])
def test_every_rank_counts_alike_and_what_is_not_finite_reaches_everybody(places, poison):
    world = len(places)
    results = on_ranks(world, average, places, poison)
    mean = 2 * (world + 1) / 2
    for first, second, plain in results:
        assert torch.equal(first, results[0][0]) and torch.equal(second, results[0][1])
        assert (second - mean).abs().max() < 0.02 * mean
        assert torch.isinf(first).all() if poison else (first - mean).abs().max() < 0.02 * mean
        assert plain == (1 if poison else 0)


def attached(rank, world, sync):
    os.environ["RANVIER_NODE"] = "0011"[rank]
    torch.manual_seed(1)
    net = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    synchronization = ranvier.attach(net, optimizer, sync=sync, compress="int8")
    for _ in range(6):
        optimizer.zero_grad()
        net(torch.full((2, 16), float(rank))).square().mean().backward()
        optimizer.step()
    synchronization.finish()
    return net.weight.detach()


@pytest.mark.parametrize("sync", ["bsp", "local:3"])
def test_attach_averages_between_nodes_too(sync):
    weights = on_ranks(4, attached, sync)
    assert all(torch.equal(each, weights[0]) for each in weights)
    assert torch.isfinite(weights[0]).all()


def resumed_elsewhere(rank, world, spec, before, after):
    """Saved with some nodes, taken up with others: what only some ranks have would part them."""

    def run(places, saved, steps):
        os.environ["RANVIER_NODE"] = places[rank]
        torch.manual_seed(0)
        net = nn.Linear(64, 32)
        ddp = DistributedDataParallel(net)
        state, hook = ranvier.hook(spec)
        if saved:
            state.load_state_dict(net, saved)
        ddp.register_comm_hook(state, hook)
        for step in range(steps):
            ddp.zero_grad()
            ddp(torch.full((2, 64), float(rank + step))).square().mean().backward()
        return net.weight.grad.clone(), state.state_dict(net)

    _, saved = run(before, None, 3)
    return run(after, saved, 2)[0]


@pytest.mark.parametrize("spec", ["delta+int8", "thc:8", "acpsgd:2"])
@pytest.mark.parametrize(("before", "after"), [("0011", "0101"), ("0000", "0011")])
def test_whoever_speaks_for_a_node_next_nobody_counts_apart(spec, before, after):
    gradients = on_ranks(4, resumed_elsewhere, spec, before, after, backend="gloo")
    assert all(torch.equal(each, gradients[0]) for each in gradients)
    assert torch.isfinite(gradients[0]).all()
