"""ranvier.attach with policies of ranks that do not wait for one another: servers, groups of workers, averages of two."""

import os
import signal
import threading
import time
import warnings

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks
from torch import nn
from torch.distributed.algorithms.join import Join

TARGET = torch.randn(20, 4, generator=torch.Generator().manual_seed(9))


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 4))


def optimizer_for(name: str, net: nn.Module) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(net.parameters(), lr=0.01)
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5 if name == "momentum" else 0)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator, pause: float = 0) -> None:
    inputs = torch.randn(16, 20, generator=generator).to(next(net.parameters()).dtype)
    optimizer.zero_grad()
    outputs = net(inputs)
    time.sleep(pause)
    nn.functional.mse_loss(outputs, torch.tanh(inputs.float() @ TARGET).to(outputs.dtype)).backward()
    optimizer.step()


def loss(net: nn.Module) -> float:
    net.eval()
    inputs = torch.randn(256, 20, generator=torch.Generator().manual_seed(77))
    result = nn.functional.mse_loss(net(inputs), torch.tanh(inputs @ TARGET)).item()
    net.train()
    return result


def everything(net: nn.Module) -> torch.Tensor:
    return torch.cat([t.detach().flatten() for t in [*net.parameters(), *(b for b in net.buffers() if b.is_floating_point())]])


def trained(rank, world, spec, compress, name):
    net = network()
    if rank > 0:  # rank 0's parameters become everybody's
        with torch.no_grad():
            net[0].weight.zero_()
    optimizer = optimizer_for(name, net)
    sync = ranvier.attach(net, optimizer, spec, samples=16, compress=compress)
    generator = torch.Generator().manual_seed(rank)
    before, held = loss(net), []
    for _ in range(3):
        for _ in range(30 + 10 * rank):
            step(net, optimizer, generator)
        sync.meet()
        held.append(everything(net))
    after = loss(net)
    sync.finish()
    assert torch.equal(everything(net), held[-1]), "nobody has changed anything since"
    step(net, optimizer, generator)  # alone
    return before, after, held, sync.step, sync.rounds, sync.bytes


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize(
    ("spec", "compress", "name"),
    [
        ("async", "none", "momentum"),
        ("async", "int8", "adamw"),
        ("ssp:2", "none", "adamw"),
        ("group", "topk:0.1+int8", "momentum"),
        ("ad-psgd", "none", "adamw"),
        ("ad-psgd", "int8", "momentum"),
    ],
)
def test_ranks_with_different_numbers_of_steps_learn_together(backend, spec, compress, name):
    results = on_ranks(3, trained, spec, compress, name, backend=backend)
    _, _, of_first, _, _, _ = results[0]
    for rank, (before, after, held, steps, rounds, sent) in enumerate(results):
        assert after < before / 2
        assert steps == 3 * (30 + 10 * rank)
        if spec == "ad-psgd":
            assert rounds == (steps if rank != 0 else 3 * (40 + 50)), "rank 0 is asked by the two others"
        else:
            assert steps <= rounds <= 3 * 50
        assert 0 < sent < 60e6
        for mine, theirs in zip(held, of_first, strict=True):
            assert torch.equal(mine, theirs), "behind meet() all hold the same, buffers too"


def summed(rank, world):
    net = nn.Linear(5, 1, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    nn.init.constant_(net.weight, 8)
    sync = ranvier.attach(net, optimizer, "async:staleness=0", samples=1 + rank)
    for _ in range(2 * (world - rank)):
        net.weight.grad = torch.full_like(net.weight, 1.0 + rank)
        optimizer.step()
    sync.finish()
    return net.weight.detach().clone()


def test_an_update_counts_by_its_samples():
    expected = 8 - 0.5 * sum(2 * (3 - rank) * (1 + rank) * (1 + rank) / 6 for rank in range(3))
    for weight in on_ranks(3, summed, backend="gloo"):
        assert torch.allclose(weight, torch.full((1, 5), expected))


def with_momentum(rank, world, nesterov):
    net = nn.Linear(5, 1, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5, nesterov=nesterov)
    nn.init.constant_(net.weight, 8)
    sync = ranvier.attach(net, optimizer, "async:staleness=0", samples=1)
    for _ in range(4):
        net.weight.grad = torch.full_like(net.weight, 1.0 + rank)
        optimizer.step()
    sync.finish()
    return net.weight.detach().clone()


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_momentum_of_sgd_looks_ahead_to_what_others_push(nesterov):
    u, pushed = 0.0, 0.0  # by a gradient of 1
    for _ in range(4):
        u = 0.5 * u + 1
        pushed += 1 + 0.5 * u
    for weight in on_ranks(2, with_momentum, nesterov, backend="gloo"):
        assert torch.allclose(weight, torch.full((1, 5), 8 - 0.5 * pushed * (1 + 2) / 2))


def where_nobody_steps(rank, world, nesterov):
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov)
    sync = ranvier.attach(net, optimizer, "async:staleness=0")
    moved = []
    for step in range(7):
        net.weight.grad = None if step == 5 else torch.ones_like(net.weight)
        net.bias.grad = torch.ones_like(net.bias)
        for group in optimizer.param_groups:
            group["lr"] = 0.0 if step == 6 else 0.1
        sync.meet()
        before = net.weight.detach().clone()
        optimizer.step()
        sync.meet()
        moved.append(not torch.equal(before, net.weight))
    sync.finish()
    return moved


@pytest.mark.parametrize("nesterov", [False, True])
def test_what_nobody_steps_stays_where_it_is(nesterov):
    for moved in on_ranks(2, where_nobody_steps, nesterov, backend="gloo"):
        assert moved == [True] * 5 + [False] * 2


def of_another_type(rank, world):
    net = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 4)).to(torch.bfloat16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    sync = ranvier.attach(net, optimizer, "async", samples=16)
    generator = torch.Generator().manual_seed(rank)
    before = loss(net.float())
    net.to(torch.bfloat16)
    for _ in range(100):
        step(net, optimizer, generator)
    sync.finish()
    return before, loss(net.float())


def test_servers_keep_the_digits_that_a_model_of_bfloat16_has_not():
    for before, after in on_ranks(2, of_another_type, backend="gloo"):
        assert after < before * 0.7


def alone(rank, world, spec):
    traces = []
    for attaches in (False, True):
        net = network().double()
        optimizer = optimizer_for("adamw", net)
        sync = ranvier.attach(net, optimizer, spec) if attaches else None
        generator = torch.Generator().manual_seed(1)
        for _ in range(12):
            step(net, optimizer, generator)
        if sync:
            sync.meet()
            sync.finish()
        traces.append(everything(net))
    return torch.equal(*traces)


@pytest.mark.parametrize("spec", ["async", "ssp:1", "group", "ad-psgd"])
def test_one_rank_takes_plain_steps_bit_by_bit(spec):
    assert on_ranks(1, alone, spec, backend="gloo") == [True]


def grouped(rank, world, way):
    net = network()
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, "group", samples=16)
    generator = torch.Generator().manual_seed(rank)
    begun = sync.groups, sync.shares
    if way == "has met":  # to look at what it begins with
        sync.meet()
    pause = 0.04 if rank % 2 else 0.2  # far more than a busy machine adds
    for _ in range(14):
        if way == "closure":
            time.sleep(0.24 - pause)  # for samples: no part of its speed
            inputs = torch.randn(16, 20, generator=generator)

            def closure():
                optimizer.zero_grad()
                result = net(inputs).square().mean()
                time.sleep(pause)  # behind the forward pass, from which on a step computes
                result.backward()
                return result

            optimizer.step(closure)
        else:
            step(net, optimizer, generator, pause)
    if way == "has met":
        groups = sync.groups
        sync.finish()
        return begun, (groups, sync.shares), (sync.groups, sync.shares)
    sync.meet()
    formed = sync.groups, sync.shares
    sync.finish()
    return begun, formed, (sync.groups, sync.shares)


@pytest.mark.parametrize("way", ["loop", "closure", "has met"])
def test_groups_are_formed_by_what_computing_takes(way):
    for begun, formed, ended in on_ranks(4, grouped, way, backend="gloo"):
        assert begun == ([0, 1, 2, 3], [0.25] * 4)
        groups, shares = formed
        assert groups == [1, 0, 1, 0]
        assert shares[1] > 2 * shares[0]
        assert abs(sum(shares) - 1) < 1e-9
        assert ended[0] == groups


def of_a_checkpoint(rank, world):
    """What is owed to updates is in it: a sparse codec leaves most of each for later."""
    kept = {}
    for run in ("first", "second"):
        net = network()
        optimizer = optimizer_for("sgd", net)
        sync = ranvier.attach(net, optimizer, "async", samples=16, compress="topk:0.01")
        if run == "second":
            for state, owner in zip(kept["first"], (net, optimizer, sync), strict=True):
                owner.load_state_dict(state)
            before = everything(net)
            assert torch.equal(sync.state_dict()["residual"], kept["first"][2]["residual"])
            sync.meet()  # begins from there
            assert torch.equal(everything(net), before)
            assert torch.equal(sync.state_dict()["residual"], kept["first"][2]["residual"])
        generator = torch.Generator().manual_seed(rank)
        for _ in range(5):
            step(net, optimizer, generator)
        sync.meet()
        kept[run] = [{**each.state_dict()} for each in (net, optimizer, sync)]
        kept[run][0] = {name: value.clone() for name, value in kept[run][0].items()}
        if run == "second":
            with pytest.raises(ValueError, match="before the first step"):
                sync.load_state_dict(kept["first"][2])
        sync.finish()
        assert torch.equal(sync.state_dict()["residual"], kept[run][2]["residual"])
    other = ranvier.attach(net, optimizer, "ssp:2")
    with pytest.raises(ValueError, match="attach the same"):
        other.load_state_dict(kept["first"][2])
    other.finish()
    return [kept[run][2]["step"] for run in kept], int((kept["first"][2]["residual"] != 0).sum())


def test_checkpoints_hold_what_is_owed():
    for steps, owed in on_ranks(2, of_a_checkpoint, backend="gloo"):
        assert steps == [5, 10]
        assert owed > 100


def within_a_subgroup(rank, world):
    members = dist.new_group([1, 2])
    net = network()
    optimizer = optimizer_for("sgd", net)
    if rank == 0:
        return None
    sync = ranvier.attach(net, optimizer, "ad-psgd", group=members)
    for _ in range(5 * rank):
        step(net, optimizer, torch.Generator().manual_seed(rank))
    sync.finish()
    return everything(net)


@pytest.mark.parametrize("debug", ["OFF", "DETAIL"])
def test_some_ranks_attach(debug):
    _, one, two = on_ranks(3, within_a_subgroup, backend="ranvier", environment={"TORCH_DISTRIBUTED_DEBUG": debug})
    assert torch.equal(one, two)


def refused(rank, world):
    net = network()
    optimizer = optimizer_for("sgd", net)
    for spec, compress, words in (
        ("async:servers=1", "none", "every rank trains"),
        ("ad-psgd", "topk:0.01", "take int4, int8"),
        ("async", "powersgd:2", "powersgd"),
        ("ssp:-1", "none", "ssp"),
    ):
        with pytest.raises(ValueError, match=words):
            ranvier.attach(net, optimizer, spec, compress=compress)
    with pytest.raises(ValueError, match="has no nodes: leave out place='node=2'"):
        ranvier.attach(net, optimizer, "async", place="node=2")
    with pytest.raises(ValueError, match="rank 1 has 0 samples in a step.* give a finite number above 0"):
        ranvier.attach(net, optimizer, "async", samples=1 - rank)
    with pytest.raises(ValueError, match="give attach\\(\\) the same on every rank"):
        ranvier.attach(net, optimizer, ("async", "bsp")[rank])
    with pytest.raises(ValueError, match="'ad-psgd' averages two ranks at a time.* these are 1, 2 by rank"):
        ranvier.attach(net, optimizer, "ad-psgd", samples=1 + rank)
    frozen = torch.optim.SGD([nn.Parameter(torch.zeros(2), requires_grad=False)], 0.1)
    frozen.add_param_group({"params": list(net.parameters())})
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="all parameters of the optimizer are frozen"):
        ranvier.attach(net, frozen, "async")
    for parameter in net.parameters():
        parameter.requires_grad_(True)
    sync = ranvier.attach(net, optimizer, "ad-psgd")
    with pytest.raises(ValueError, match="stay the 1 in a step that all were attached with, and this rank gives 2"):
        sync.set_samples(2)
    sync.finish()
    sync = ranvier.attach(net, optimizer, "async")
    with pytest.raises(ValueError, match="leave out Join"), Join([sync]):
        pass
    with pytest.raises(TypeError, match="samples are a number, and this is '32'"):
        sync.set_samples("32")
    with pytest.raises(ValueError, match="finite number above 0"):
        sync.set_samples(float("nan"))
    with pytest.raises(ValueError, match="attached already"):
        ranvier.attach(net, optimizer, "async")
    sync.finish()
    with pytest.raises(ValueError, match="attach the optimizer anew"):
        sync.meet()
    return True


def test_what_cannot_be_is_refused():
    assert on_ranks(2, refused, backend="gloo") == [True] * 2


def ending_apart(rank, world):
    net = network()
    sync = ranvier.attach(net, optimizer_for("sgd", net), "async")
    if rank == 0:
        sync.finish()
    else:
        sync.meet()


def test_ranks_of_which_only_some_end_are_told():
    for outcome in run_ranks(2, ending_apart, backend="gloo"):
        assert "rank 0 ends its training where rank 1 only meets" in outcome.error


def leaving_early(rank, world, spec, lost, way):
    net = network()
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, spec)
    generator = torch.Generator().manual_seed(rank)
    for number in range(1_000_000):
        if rank == lost and number == 5:
            time.sleep(0.5)  # the others are at the bound, if there is one
            if way == "dies":
                os._exit(3)
            return sync
        step(net, optimizer, generator)
    sync.finish()


def left_behind(rank, world, spec, lost, way):
    kept.append(leaving_early(rank, world, spec, lost, way))  # to the end of the process, as a script's globals are


kept = []


@pytest.mark.parametrize("way", ["dies", "returns"])
@pytest.mark.parametrize(("spec", "lost"), [("async", 1), ("ssp:2", 1), ("ad-psgd", 1)])
def test_a_rank_that_is_gone_is_named_to_the_others(spec, lost, way):
    began = time.monotonic()
    outcomes = run_ranks(3, left_behind, spec, lost, way, backend="gloo", limit=60)
    for rank in {0, 1, 2} - {lost}:
        assert f"rank {lost}" in outcomes[rank].error, outcomes[rank]
    assert time.monotonic() - began < 40


def going_on_alone(rank, world, spec, store):
    net = network()
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, spec)
    generator = torch.Generator().manual_seed(rank)
    with pytest.raises(RuntimeError, match="rank 1"):
        for number in range(1_000_000):
            if rank == 1 and number == 15:
                os._exit(3)
            step(net, optimizer, generator)
    with pytest.raises(RuntimeError, match="rank 1"):
        sync.finish()
    sync.finish()
    dist.destroy_process_group()
    dist.init_process_group("ranvier", init_method=f"file://{store}", rank=0, world_size=1)
    sync = ranvier.attach(net, optimizer, spec)
    step(net, optimizer, generator)
    sync.finish()
    return sync.step


@pytest.mark.parametrize("spec", ["bsp", "local:3", "group"])
def test_who_is_left_can_attach_again(spec, tmp_path):
    first, _ = run_ranks(2, going_on_alone, spec, tmp_path / "store", lost={1})
    assert (first.value, first.error) == (1, None), first.trace


def with_nothing_to_do(rank, world):
    net = network()
    net.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, "async")
    if rank == 0:
        net[0].weight.grad = torch.zeros_like(net[0].weight)
        optimizer.step()
    sync.finish()
    return net.mask.tolist()


def test_a_rank_without_steps_leaves_buffers_as_they_are():
    assert on_ranks(2, with_nothing_to_do, backend="gloo") == [[0.0, float("-inf")]] * 2


def with_other_momentum(rank, world):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9 if rank == 0 else 0)
    ranvier.attach(net, optimizer, "group")
    with pytest.raises(RuntimeError, match="the momentum of rank 1's optimizer is 0 where rank 0's is 0.9"):
        step(net, optimizer, torch.Generator().manual_seed(rank))
    return True


def test_members_of_a_group_need_one_momentum():
    assert on_ranks(3, with_other_momentum, backend="gloo", limit=30) == [True] * 3


def interrupted_at_its_turn(rank, world):
    net = network()
    optimizer = optimizer_for("sgd", net)
    ranvier.attach(net, optimizer, "ssp:1")
    generator = torch.Generator().manual_seed(rank)
    step(net, optimizer, generator)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # behind whom the other one waits at last
        until = time.monotonic() + 30
        while not store.check(["interrupted"]) and time.monotonic() < until:
            time.sleep(0.1)
        with pytest.raises(RuntimeError, match="rank 0"):
            step(net, optimizer, generator)
        return 0.0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(50):
            step(net, optimizer, generator)
    store.set("interrupted", "")
    return time.monotonic() - began


def test_a_wait_for_a_turn_can_be_interrupted():
    took, _ = on_ranks(2, interrupted_at_its_turn, backend="gloo", limit=60)
    assert took < 20


def of_two_types(rank, world):
    warned = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        net = network().to(dtype)
        with warnings.catch_warnings(record=True) as each:
            warnings.simplefilter("always")
            sync = ranvier.attach(net, optimizer_for("sgd", net), "async")
        warned.append([str(one.message) for one in each])
        assert all(one.filename == __file__ for one in each), "the script's own line"
        sync.finish()
    return warned


def test_who_attaches_more_than_32_bits_is_warned():
    first, second = on_ranks(2, of_two_types, backend="gloo")
    assert [len(each) for each in first] == [1, 0, 0] and "'async' carries and keeps 32 bits" in first[0][0]
    assert second == [[], [], []], "rank 0 speaks for all"


MOMENTUM, RATE = 0.9, 0.01


def behind_ten_steps(rank, world, samples):
    """The first push of each new group, of a gradient of 1; and the momentum that each rank has brought into its group."""
    net = nn.Linear(4, 1, bias=False)
    nn.init.constant_(net.weight, 2.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)
    sync = ranvier.attach(net, optimizer, "group", samples=samples[rank])
    for _ in range(10):
        net(torch.zeros(1, 4))  # from where computing counts
        time.sleep((0.01 if rank % 2 else 0.06) * samples[rank])
        net.weight.grad = torch.full_like(net.weight, 1.0 + 10 * (rank // 2))
        optimizer.step()
    brought = optimizer.state[net.weight]["momentum_buffer"][0, 0].item()
    sync.meet()
    groups, start = sync.groups, net.weight.detach()[0, 0].item()
    moved = 0.0
    for group in sorted(set(groups)):
        if groups[rank] == group:
            net.weight.grad = torch.ones_like(net.weight)
            optimizer.step()
            moved = start - net.weight.detach()[0, 0].item()
        dist.barrier()
    sync.finish()
    return groups, brought, moved


def test_momenta_of_a_new_group_count_by_samples():
    samples = [1, 1, 4, 4]
    outcomes = on_ranks(4, behind_ten_steps, samples, backend="gloo")
    groups = outcomes[0][0]
    assert groups == [1, 0, 1, 0]
    for rank, (_, _, moved) in enumerate(outcomes):
        members = [other for other in range(4) if groups[other] == groups[rank]]
        share = {other: samples[other] / sum(samples[each] for each in members) for other in members}
        before = sum(share[other] * outcomes[other][1] for other in members)
        now = MOMENTUM * before + 1
        pushed = (1 + MOMENTUM) * 1 + MOMENTUM**2 * now
        assert moved == pytest.approx(RATE * sum(samples[each] for each in members) / sum(samples) * pushed, rel=1e-3)


RATES = [0.0, 0.1, 0.2, 0.0, 0.0, 0.3, 0.1]


def with_rests(rank, world):
    net = nn.Linear(5, 1)
    groups = [{"params": [net.weight]}, {"params": [net.bias], "lr": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.5)
    for parameter in net.parameters():
        nn.init.constant_(parameter, 8)
    sync = ranvier.attach(net, optimizer, "async:staleness=0")
    for step, rate in enumerate(RATES):
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = rate, rate / 2
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, (1.0 + step) * (1 + rank))
        optimizer.step()
    sync.finish()
    return [parameter.detach().flatten() for parameter in net.parameters()]


def test_momentum_goes_on_in_steps_at_a_rate_of_zero():
    u, moved = 0.0, 0.0  # by a gradient of 1, 2, …
    for step, rate in enumerate(RATES):
        u = 0.5 * u + 1 + step
        moved += rate * (1 + step + 0.5 * u)
    for weight, bias in on_ranks(2, with_rests, backend="gloo"):
        assert torch.allclose(weight, torch.full((5,), 8 - moved * (1 + 2) / 2))
        assert torch.allclose(bias, torch.full((1,), 8 - moved / 2 * (1 + 2) / 2)), bias
