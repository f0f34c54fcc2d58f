"""ranvier.attach under torch's Join: ranks whose data ends earlier neither stop the others nor pull at their averages."""

import copy
from contextlib import nullcontext

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from test_synchronize import flat, network, optimizer_for
from torch import nn
from torch.distributed.algorithms.join import Join

# Of each epoch how many samples each rank has in each of its steps; the third rank has none at all in the first one.
EPOCHS = [
    [[3, 1, 2, 5], [4, 4, 1, 1, 2, 6, 3], [], [2, 2]],
    [[2] * 3, [2] * 5, [2] * 2, [2] * 5],
    [[1, 2], [5], [3, 3, 3], [4, 1, 6, 2, 2]],
]
WORLD = 4
STEPS = sum(max(map(len, by_rank)) for by_rank in EPOCHS)


def batch(epoch: int, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    count = EPOCHS[epoch][rank][step]
    generator = torch.Generator().manual_seed(1000 * epoch + 10 * step + rank)
    return torch.randn(count, 6, generator=generator), torch.randn(count, 4, generator=generator)


def rate(step: int) -> float:
    return 0.1 / (1 + step)


def alone(name: str, nodes: int, period: int, slow: tuple[float, float] = (1, 0), together: int = 0) -> torch.Tensor:
    """What one process ends with that plays all nodes: gradients of the samples that a node has in a step, and every
    `period` steps the mean of nodes by the samples that they have had since the last one (0: never), which slow
    momentum (rate, momentum) takes for a direction. In the first `together` steps all take the gradient of all samples."""
    nets = [network() for _ in range(nodes)]
    optimizers = [optimizer_for(name, net) for net in nets]
    seen, total, rates = [0] * nodes, 0, list[float]()
    anchor, slow_momentum = flat(nets[0]), torch.zeros(())

    def average(slow: tuple[float, float]) -> None:
        nonlocal anchor, slow_momentum
        if sum(seen) > 0:
            mean = sum(count / sum(seen) * flat(net) for count, net in zip(seen, nets, strict=True))
            unit = sum(rates) / len(rates)  # of the period
            slow_momentum = slow[1] * slow_momentum + (anchor - mean) / unit
            anchor = anchor - slow[0] * unit * slow_momentum
            for net in nets:
                nn.utils.vector_to_parameters(anchor.clone(), net.parameters())
        seen[:] = [0] * nodes
        rates.clear()

    for epoch, by_rank in enumerate(EPOCHS):
        for step in range(max(map(len, by_rank))):
            for node, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
                ours = [r for r in range(WORLD) if total < together or r * nodes // WORLD == node]
                ranks = [r for r in ours if step < len(by_rank[r])]
                if not ranks:
                    continue
                inputs, targets = map(torch.cat, zip(*(batch(epoch, step, rank) for rank in ranks), strict=True))
                optimizer.param_groups[0]["lr"] = rate(step)
                optimizer.zero_grad()
                nn.functional.mse_loss(net(inputs), targets).backward()
                optimizer.step()
                seen[node] += len(inputs) if total >= together else 0
            total += 1
            rates.append(rate(step))
            if period > 0 and (total - together) % period == 0:
                average(slow)
    average((1, 0))
    return flat(nets[0])


def train_unevenly(net, optimizer, sync, rank, epochs):
    for epoch in epochs:
        with Join([sync]):
            for step in range(len(EPOCHS[epoch][rank])):
                inputs, targets = batch(epoch, step, rank)
                sync.set_samples(len(inputs))
                optimizer.param_groups[0]["lr"] = rate(step)
                optimizer.zero_grad()
                nn.functional.mse_loss(net(inputs), targets).backward()
                optimizer.step()
            for parameter in net.parameters():
                if parameter.grad is not None:
                    parameter.grad.fill_(torch.inf)  # whatever is left of the last step, nobody is to see it


def attached(rank, world, cases):
    ends = []
    for name, spec, place, *_ in cases:
        net = network()
        optimizer = optimizer_for(name, net)
        sync = ranvier.attach(net, optimizer, spec, place=place, steps=STEPS)
        train_unevenly(net, optimizer, sync, rank, range(len(EPOCHS)))
        assert sync.step == STEPS
        sync.finish()
        ends.append(flat(net))
    return ends


CASES = [
    ("sgd", "bsp", "", 1, 0),
    ("momentum", "bsp", "", 1, 0),
    ("adamw", "bsp", "", 1, 0),
    ("momentum", "local:4", "", 4, 4),
    ("adamw", "local:100", "", 4, 100),
    ("momentum", "slowmo:3,rate=0.8,momentum=0.5", "", 4, 3, (0.8, 0.5)),
    ("adamw", "node:3", "node=2", 2, 3),
    ("momentum", "hierarchy:node=1,world=4", "node=2", 2, 4),
    ("sgd", "post-local:4", "", 4, 4, (1, 0), (STEPS + 1) // 2),
    # Averages that begin with the last step, or before it, and come too late.
    ("adamw", f"local:{STEPS},delay=2", "", 4, 100),
    ("momentum", f"node:{STEPS - 1},delay=2", "node=2", 2, 100),
]


def with_a_layer_at_times(rank, world):
    """Rank 1 is done after the first step, in which alone a layer was used."""
    torch.manual_seed(0)
    always, at_times = nn.Linear(3, 2), nn.Linear(3, 2)
    model = nn.ModuleList([always, at_times])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    sync = ranvier.attach(model, optimizer, "bsp")
    with Join([sync]):
        for step in range(1 if rank == 1 else 4):
            optimizer.zero_grad()
            inputs = torch.ones(2, 3) * (rank + step)
            (always(inputs) + (at_times(inputs) if step == 0 else 0)).square().mean().backward()
            optimizer.step()
    sync.finish()
    return flat(model)


def test_who_is_done_leaves_alone_what_nobody_has_used():
    assert torch.equal(*on_ranks(2, with_a_layer_at_times))


def behind_a_join(rank, world):
    """Each rank's gradient is its number."""
    weight = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.01)
    sync = ranvier.attach(weight, optimizer, "node:3", place="node=2")

    def step():
        optimizer.zero_grad()
        (weight.weight * rank).sum().backward()
        optimizer.step()
        return float(weight.weight.grad)

    with Join([sync]):
        for _ in range(2 if rank % 2 else 5):
            step()
    averages = [step() for _ in range(4)]
    sync.finish()
    return averages


def test_gradients_behind_a_join_weigh_as_samples_say():
    for rank, averages in enumerate(on_ranks(WORLD, behind_a_join)):
        assert averages == pytest.approx([0.5 if rank < 2 else 2.5] * 4)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_uneven_ranks_train_as_one_process_on_the_samples_that_there_are(backend):
    cases = CASES[3:4] if backend == "gloo" else CASES  # each operation of gloo takes milliseconds
    ranks = on_ranks(WORLD, attached, cases, backend=backend)
    for case, (name, spec, _, *rule) in enumerate(cases):
        for end in ranks:
            assert torch.equal(end[case], ranks[0][case]), f"{spec}: all end with the same bits"
        torch.testing.assert_close(ranks[0][case], alone(name, *rule), rtol=0, atol=5e-5, msg=lambda text: f"{name} by {spec}: {text}")


def resumed(rank, world):
    """After one epoch, in the middle of a period that ranks have had different samples of."""

    def begin():
        net = network()
        optimizer = optimizer_for("momentum", net)
        return net, optimizer, ranvier.attach(net, optimizer, "local:5")

    net, optimizer, sync = begin()
    train_unevenly(net, optimizer, sync, rank, range(1))
    kept = copy.deepcopy((net.state_dict(), optimizer.state_dict(), sync.state_dict()))
    again = begin()
    for each, state in zip(again, kept, strict=True):
        each.load_state_dict(state)
    ends = []
    for net, optimizer, sync in ((net, optimizer, sync), again):
        train_unevenly(net, optimizer, sync, rank, range(1, len(EPOCHS)))
        sync.finish()
        ends.append(flat(net))
    assert torch.equal(*ends)
    return ends[0]


def test_a_checkpoint_knows_what_each_rank_has_seen_of_a_period():
    ends = on_ranks(WORLD, resumed, backend="gloo")
    torch.testing.assert_close(ends[0], alone("momentum", WORLD, 5), rtol=0, atol=5e-5)


class Pair(nn.Module):
    """Two networks, of which the second learns from the first: each has an optimizer, as those of a GAN have."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = network(), network()


def two_optimizers(rank, world):
    pair = Pair()
    optimizers = [optimizer_for("momentum", pair.first), optimizer_for("adamw", pair.second)]
    syncs = [ranvier.attach(net, o, spec) for net, o, spec in zip((pair.first, pair.second), optimizers, ("bsp", "local:3"), strict=True)]
    with Join(syncs):
        for step in range(len(EPOCHS[0][rank])):
            inputs, targets = batch(0, step, rank)
            for net, optimizer in zip((pair.first, pair.second), optimizers, strict=True):
                optimizer.zero_grad()
                nn.functional.mse_loss(net(inputs), targets).backward()
                optimizer.step()
    assert [sync.step for sync in syncs] == [7, 7]
    for sync in syncs:
        sync.finish()
    return flat(pair)


def test_several_optimizers_share_a_join():
    ends = on_ranks(WORLD, two_optimizers, backend="gloo")
    assert all(torch.equal(end, ends[0]) for end in ends)


def statistics(rank, world):
    """Running means of a normalization, which have seen nothing but this rank's samples, all of them `rank`."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.BatchNorm1d(1, momentum=1.0), nn.Linear(1, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    sync = ranvier.attach(net, optimizer, samples=2)
    with Join([sync]):
        for _ in range((6, 1, 0)[rank]):
            optimizer.zero_grad()
            net(torch.full((2, 1), float(rank))).sum().backward()
            optimizer.step()
    sync.finish()
    return net[0].running_mean.item()


def test_buffers_are_weighted_by_all_that_a_rank_has_seen():
    for mean in on_ranks(3, statistics, backend="gloo"):
        assert mean == pytest.approx((6 * 0 + 1 * 1) / 7)


def of_changing_batches(rank, world, spec, place):
    net = nn.Linear(1, 1)
    net.register_buffer("seen", torch.zeros(1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    sync = ranvier.attach(net, optimizer, spec, place=place)
    for step in range(6):
        if step in (0, 5):
            sync.set_samples(9 - 2 * rank if step == 0 else 1)
        optimizer.zero_grad()
        net(torch.ones(1, 1)).sum().backward()
        net.seen.fill_(float(rank))
        optimizer.step()
    sync.finish()
    return net.seen.item()


@pytest.mark.parametrize(
    ("spec", "place"),
    [("bsp", ""), ("node:16", "node=2"), ("node:16", ""), ("hierarchy:node=1,world=16", "node=2"), ("local:4,delay=1", ""),
     ("node:4,delay=1", "node=2"), ("diloco:4,fragments=2", "")],
)  # fmt: skip
def test_buffers_of_all_ranks_count_by_all_their_samples(spec, place):
    samples = [5 * (9 - 2 * rank) + 1 for rank in range(4)]
    expected = sum(rank * each for rank, each in enumerate(samples)) / sum(samples)
    for seen in on_ranks(4, of_changing_batches, spec, place, backend="gloo"):
        assert seen == pytest.approx(expected)


def behind_a_part_that_just_left(rank, world):
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    sync = ranvier.attach(net, optimizer, "diloco:2,fragments=1,delay=1,merge=1,rate=1,momentum=0")
    sync.set_samples(1 + 8 * rank)
    for _ in range(2):
        net.weight.grad = torch.full_like(net.weight, -1.0 if rank == 0 else 0.0)
        optimizer.step()
    sync.finish()
    return net.weight.item()


def test_the_last_mean_is_by_samples_though_none_have_been_used_since_a_part_left():
    assert on_ranks(2, behind_a_part_that_just_left, backend="gloo") == [pytest.approx(0.2)] * 2


def adaptive(rank, world):
    net = network()
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, "local:1,adapt=0.1,most=64")
    with Join([sync]):
        for _ in range(0 if rank else 7):
            optimizer.zero_grad()
            net(torch.ones(1, 6)).sum().backward()
            optimizer.step()
    return sync.rounds


def test_replicas_that_do_not_count_have_not_parted():
    assert on_ranks(2, adaptive, backend="gloo") == [3, 3]  # behind steps 1, 3 and 7


def after_a_join(rank, world):
    """Even steps behind uneven ones, without a Join; then what is refused."""
    net = network()
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, samples=rank + 1)
    with Join([sync]):
        for _ in range(rank):
            optimizer.zero_grad()
            net(torch.ones(1, 6)).sum().backward()
            optimizer.step()
    assert not sync._join_config.enable, "averages are plain again"
    before = net[2].bias.detach().clone()
    optimizer.zero_grad()
    (net(torch.ones(1, 6)).sum() * (rank + 1)).backward()
    optimizer.step()
    moved = (before - net[2].bias.detach()) / 0.1  # the gradient of the bias: rank + 1, weighted by rank + 1
    torch.testing.assert_close(moved, torch.full((4,), (1 * 1 + 2 * 2 + 3 * 3) / (1 + 2 + 3)))
    with Join([sync]):
        for samples in (0, float("nan")):
            with pytest.raises(ValueError, match=f"rank {rank} has"):
                sync.set_samples(samples)
    sync.finish()
    with pytest.raises(ValueError, match="'gossip' does not weigh ranks"):
        Join([ranvier.attach(net, optimizer, "gossip")])
    return dist.get_world_size()


def test_behind_a_join_everything_is_as_before():
    assert on_ranks(3, after_a_join, backend="gloo") == [3, 3, 3]


def with_long_gradients(rank, world):
    """Of short parameters, and of rank 0 alone."""
    ends = []
    for spec, codec, joins in (("bsp", "none", False), ("node:2", "none", False), ("bsp", "int8", False), ("bsp", "none", True)):
        net = nn.Linear(3, 2, bias=False, dtype=torch.bfloat16)
        nn.init.zeros_(net.weight)
        net.weight.grad_dtype = torch.float32
        sync = ranvier.attach(net, optimizer := torch.optim.SGD(net.parameters(), lr=1), spec, place="node=1", compress=codec)
        with Join([sync]) if joins else nullcontext():
            for _ in range(world - rank if joins else 2):
                net.weight.grad = torch.ones(2, 3) if rank == 0 or joins else None
                optimizer.step()
        sync.finish()
        ends.append(net.weight.tolist())
    return ends


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="gradients have their parameters' type")
def test_gradients_may_be_of_another_type_than_parameters():
    for *half, joined in on_ranks(2, with_long_gradients, backend="gloo"):
        assert half == [[[-1.0] * 3] * 2] * 3 and joined == [[-2.0] * 3] * 2


def with_steps(rank, world, spec, steps):
    net = nn.Linear(3, 1, bias=False)
    nn.init.constant_(net.weight, 10.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    sync = ranvier.attach(net, optimizer, spec)
    why = ""
    try:
        for _ in range(steps[rank]):
            net.weight.grad = torch.ones_like(net.weight)
            optimizer.step()
        sync.finish()
    except (ValueError, RuntimeError) as error:
        why = f"{type(error).__name__}: {error}"
    return why, flat(net)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize(
    ("spec", "steps", "all_end"),
    [
        ("diloco:3", (5, 6), False),
        ("slowmo:3", (6, 5), False),
        ("bsp", (2, 3), False),
        ("local:3,delay=2", (5, 9), False),
        ("local:3,delay=2", (5, 6), True),
        ("local:3", (6, 7), True),
    ],
)
def test_no_rank_takes_the_end_of_another_for_an_average(backend, spec, steps, all_end):
    """Where it waits for one in a step (`all_end` says that none does) only ranvier's groups tell that at once."""
    outcomes = on_ranks(2, with_steps, spec, steps, backend=backend, group_timeout=3)
    for rank, (why, weights) in enumerate(outcomes):
        if all_end or steps[rank] < steps[1 - rank]:
            assert why.startswith(f"ValueError: rank {rank} calls finish() behind step {steps[rank]}"), why
            assert "let every rank take as many steps, or train inside torch's Join" in why
        assert why, outcomes
        assert (weights > 8).all(), weights  # between where replicas have been


@pytest.mark.parametrize("spec", ["local:3", "diloco:3"])
def test_steps_behind_the_last_average_may_differ(spec):
    (why, one), (whys, other) = on_ranks(2, with_steps, spec, (4, 5), backend="gloo")
    assert (why, whys) == ("", "")
    assert torch.equal(one, other)
