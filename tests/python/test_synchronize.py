"""ranvier.attach: any optimizer, over gloo and over ranvier."""

import os
import warnings
from unittest import mock

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from ranvier._register import made_with
from torch import nn

STEPS = 12
BATCH = 8


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))


def optimizer_for(name: str, net: nn.Module) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(net.parameters(), lr=0.01)
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9 if name == "momentum" else 0)


def samples(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(BATCH, 6, generator=generator), torch.randn(BATCH, 4, generator=generator)


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def train(net, optimizer, begin, end, steps=range(STEPS)):
    trace = []
    for step in steps:
        inputs, targets = samples(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(net(inputs[begin:end]), targets[begin:end]).backward()
        optimizer.step()
        trace.append(flat(net).clone())
    return trace


def alone(name: str):
    net = network()
    return train(net, optimizer_for(name, net), 0, BATCH)


def attached(rank, world, cases):
    """Of each case (optimizer, policy, place, shares) what every step left, and the end."""
    results = []
    for name, spec, place, shares in cases:
        net = network()
        if rank > 0:  # rank 0's parameters become everybody's
            with torch.no_grad():
                net[0].weight.zero_()
        begin = sum(shares[:rank])
        optimizer = optimizer_for(name, net)
        sync = ranvier.attach(net, optimizer, spec, place=place, samples=shares[rank], steps_per_epoch=6, steps=STEPS)
        trace = train(net, optimizer, begin, begin + shares[rank])
        sync.finish()
        results.append((trace, flat(net), sync.rounds))
    return results


EVEN = (2, 2, 2, 2)
CASES = [
    ("adamw", "bsp", "", EVEN),
    ("momentum", "local:1", "", (1, 4, 2, 1)),
    ("adamw", "node:4", "node=2", EVEN),
    ("momentum", "hierarchy:node=1,rack=2,world=6", "node=4,rack=2", EVEN),
    ("momentum", "slowmo:5", "", EVEN),
    ("adamw", "diloco:4", "", EVEN),
    ("momentum", "post-local:4", "", EVEN),
    ("momentum", "gossip", "", EVEN),
    ("momentum", "local:2,adapt=0.5,most=8", "", EVEN),
    ("adamw", "diloco:4,fragments=2,delay=1,merge=0.5", "", (1, 4, 2, 1)),
    ("momentum", "node:4,delay=2", "node=2", (1, 4, 2, 1)),
]


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_policies_keep_their_promises(backend):
    ranks = on_ranks(4, attached, CASES, backend=backend)
    by_case = [[rank[case] for rank in ranks] for case in range(len(CASES))]
    for case, (name, spec, _, _) in zip(by_case, CASES, strict=True):
        for _, end, _ in case:
            assert torch.equal(end, case[0][1]), f"{spec}: all end with the same bits"
        if spec in ("bsp", "local:1"):
            for step, expected in enumerate(alone(name)):
                torch.testing.assert_close(case[3][0][step], expected, rtol=0, atol=2e-5)

    node = [trace for trace, _, _ in by_case[2]]
    for step in range(STEPS):
        assert torch.equal(node[0][step], node[1][step])
        assert torch.equal(node[0][step], node[2][step]) == ((step + 1) % 4 == 0)
    assert by_case[2][0][2] == STEPS + STEPS // 4 + 0, "a round a step inside, one a period between leaders"
    assert by_case[2][1][2] == STEPS, "who leads no node has no round between nodes"


def attached_for_inference(rank, world):
    for spec in ("diloco:2", "local:2,delay=1", "async"):
        net = network()
        optimizer = optimizer_for("sgd", net)
        with torch.inference_mode():
            sync = ranvier.attach(net, optimizer, spec)
        train(net, optimizer, rank, rank + 1, range(4))
        sync.finish()
    return True


def test_attach_may_be_called_in_inference_mode():
    assert all(on_ranks(2, attached_for_inference, backend="gloo"))


def gossiping(rank, world):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0)
    sync = ranvier.attach(net, optimizer, "gossip")
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += rank * rank * torch.arange(parameter.numel()).view_as(parameter) / 10
    return torch.stack([flat(net).clone(), *train(net, optimizer, 0, BATCH)]), sync.rounds


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_gossip_keeps_the_sum_and_brings_replicas_together(backend):
    traces, rounds = zip(*on_ranks(3, gossiping, backend=backend), strict=True)
    assert rounds == (STEPS, STEPS, STEPS)
    sums = sum(traces)
    torch.testing.assert_close(sums[1:], sums[:1].expand_as(sums[1:]), rtol=0, atol=1e-4)
    apart = [(trace - sums / 3).abs().amax(dim=1) for trace in traces]
    assert all(each[-1] < 0.01 * each[0] for each in apart if each[0] > 0), apart


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, dtype=torch.complex64))


class Odd(nn.Module):
    """With frozen parameters, buffers of several types, one that is put in another's place, and a layout of its own."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(rank)
        self.fixed = nn.Conv2d(2, 4, 3).requires_grad_(False)
        self.free = nn.Conv2d(4, 4, 3)
        self.register_buffer("absent", torch.zeros(3, device="cpu" if rank == 0 else "meta"))
        self.register_buffer("order", torch.arange(3) + 10 * rank)
        self.register_buffer("mask", torch.tensor([rank == 0]))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("phase", torch.zeros(4, dtype=torch.complex64))
        self.register_buffer("cache", torch.zeros(5))
        self.register_buffer("short", torch.tensor([rank, 2, 3], dtype=torch.int16))
        self.register_buffer("wide", torch.tensor([True]).expand(3))
        self.register_buffer("sparse", torch.eye(2, dtype=torch.int32).to_sparse())
        self.rank = rank

    def forward(self, images):
        if self.cache.numel() < 5 + self.rank:  # of the longest that this rank has seen
            self.cache = torch.zeros(5 + self.rank)
        found = self.free(self.fixed(images))
        self.mean = 0.9 * self.mean + 0.1 * found.detach().mean((0, 2, 3))
        self.phase = self.phase + torch.complex(self.mean, -self.mean)
        return found


def of_an_odd_model(rank, world, spec):
    net = Odd(rank).to(memory_format=torch.channels_last)
    net.unused = nn.LazyLinear(2)
    net.unused_part = nn.Linear(1 + rank, 2).requires_grad_(False)
    optimizer = torch.optim.SGD([*net.fixed.parameters(), *net.free.parameters()], lr=0.05)
    sync = ranvier.attach(net, optimizer, spec)

    def state():
        left_out = ("cache", "sparse", "unused", "absent")
        return {name: value.clone() for name, value in net.state_dict().items() if not name.startswith(left_out)}

    begun = state()
    generator = torch.Generator().manual_seed(rank)

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            net(torch.randn(2, 2, 8, 8, generator=generator)).square().mean().backward()
            optimizer.step()

    steps(4)
    net.fixed.requires_grad_(True)
    with pytest.raises(ValueError, match="added or unfrozen since"):
        steps(1)
    sync.finish()
    sync.finish()  # once more
    ended = state()
    again = ranvier.attach(net, optimizer, spec)
    steps(2)
    again.finish()
    return begun, ended, state()


@pytest.mark.parametrize("spec", ["bsp", "local:2", "gossip", "slowmo:3", "diloco:2,fragments=2", "async"])
@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_all_of_a_model_is_everybodys_from_the_beginning_to_the_end(backend, spec):
    (first, *_), *_ = results = on_ranks(2, of_an_odd_model, spec, backend=backend)
    assert first["order"].tolist() == [0, 1, 2] and first["mask"].item()
    for stages in results:
        for mine, theirs in zip(stages, results[0], strict=True):
            assert mine.keys() == theirs.keys()
            for name, value in mine.items():
                assert torch.equal(value, theirs[name]), name
    _, ended, last = results[0]
    assert torch.equal(ended["fixed.weight"], first["fixed.weight"])
    assert not torch.equal(last["fixed.weight"], first["fixed.weight"])
    assert not torch.equal(ended["mean"], first["mean"])


def turned_around(rank, world):
    members = dist.new_group([2, 1])
    if rank == 0:
        return None
    net = network()
    optimizer = optimizer_for("sgd", net)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(rank)
    sync = ranvier.attach(net, optimizer, "gossip", group=members)
    begun = flat(net)[0].item()
    for _ in range(3):
        optimizer.zero_grad()
        net(samples(rank)[0]).square().mean().backward()
        optimizer.step()
    sync.finish()
    return begun, flat(net)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_messages_of_a_group_go_by_its_own_numbers(backend):
    _, (first, mine), (second, theirs) = on_ranks(3, turned_around, backend=backend)
    assert first == second and torch.equal(mine, theirs)


def grows_alone(rank, world):
    """One rank trains whatever it likes, fused and scaled."""
    net = network()
    net[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
    sync = ranvier.attach(net, optimizer, "bsp")
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(net(samples(0)[0]).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        net[0].requires_grad_(True)
    sync.finish()


def test_one_rank_alone_is_not_told_what_others_would_miss():
    on_ranks(1, grows_alone, backend="gloo")


def of_named_nodes(rank, world):
    os.environ["RANVIER_NODE"] = "ab"[rank % 2]
    net = network()
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, "node:2")
    train(net, optimizer, rank, rank + 1, range(4))
    sync.finish()
    return sync.rounds


def test_nodes_have_the_names_that_ranks_give_them():
    """On one machine, which would be one node otherwise; ranks 0 and 1 lead theirs."""
    rounds = on_ranks(4, of_named_nodes, backend="gloo")
    assert rounds[0] == rounds[1] > rounds[2] == rounds[3]


def attached_in(group, rank):
    """What training in a group of two nodes ends with."""
    net = network()
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, "node:2", place="node=2", group=group)
    train(net, optimizer, rank, rank + 1, range(2))
    sync.finish()
    return flat(net)


def in_groups(rank, world):
    """Groups attach at once, then one of them alone; afterwards all ranks still make groups together."""
    groups = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    mine = groups[rank // 3]
    ends = [attached_in(mine, rank)]
    if rank < 3:
        ends.append(attached_in(mine, rank))
    whole = dist.new_group()
    total = torch.ones(3)
    dist.all_reduce(total, group=whole)
    assert total.tolist() == [6.0] * 3
    return ends


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_groups_attach_apart_from_one_another(backend):
    ends = on_ranks(6, in_groups, backend=backend)
    for first, *others in (ends[:3], ends[3:]):
        for other in others:
            assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert not torch.equal(ends[0][0], ends[3][0])


def on_a_grid(rank, world):
    grid = dist.new_group(pg_options=ranvier.Options(algorithm="torus:2x2", topology="torus:2x2", transport="tcp"))
    with mock.patch("ranvier._synchronization.leave"):  # so that its groups can be looked at
        whole = attached_in(grid, rank)
    ends = [torch.empty(STEPS) for _ in range(world)]
    dist.all_gather(ends, whole[:STEPS].clone())
    assert all(torch.equal(end, ends[0]) for end in ends)
    parts = [group for group in dist.distributed_c10d._world.pg_names if group.size() == 2]
    return [made_with[part.group_name].transport for part in parts]


def test_groups_within_a_grid_have_its_options_but_for_its_dimensions():
    for transports in on_ranks(4, on_a_grid):
        assert transports and set(transports) == {"tcp"}


def traced(rank, specs, steps, samples=1):
    """By each policy: what each step leaves, and the end; and what was exchanged before that."""
    traces, traffic = [], []
    for spec in specs:
        net = network()
        sync = ranvier.attach(net, optimizer := optimizer_for("momentum", net), spec, samples=samples)
        traces.append(train(net, optimizer, 4 * rank, 4 * rank + 4, range(steps)))
        traffic.append((sync.rounds, sync.bytes))
        sync.finish()
        traces[-1].append(flat(net))
    return traces, traffic


def streamed(rank, world):
    return traced(rank, ("local:100", "diloco:3", "diloco:6,fragments=2,delay=2,merge=0.25"), 6)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_a_fragment_is_applied_its_delay_later_and_merged_with_what_replicas_made_of_it(backend):
    """Until then it is local descent, and then what DiLoCo with the fragments' distance has made of it, mixed."""
    ranks = on_ranks(2, streamed, backend=backend)
    first = network()[0].weight.numel()  # of the two fragments: more than half
    for (local, diloco, streaming), traffic in ranks:
        for step in range(4):
            assert torch.equal(streaming[step], local[step])
        own = local[4]
        torch.testing.assert_close(streaming[4][:first], 0.25 * own[:first] + 0.75 * diloco[2][:first], rtol=0, atol=1e-6)
        assert torch.equal(streaming[4][first:], own[first:])
        assert traffic[0] == (0, 0)
        assert traffic[1][0] == traffic[2][0] == 2
        assert traffic[1][1] == 2 * 4 * own.numel()
        assert traffic[2][1] == 4 * first, "one has arrived"
    assert torch.equal(ranks[0][0][2][-1], ranks[1][0][2][-1]), "at the end all replicas are one"


def delayed(rank, world):
    return traced(rank, ("local:100", "local:3,delay=2", "local:3,delay=2"), 5, samples=1 + 2 * rank)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_an_average_under_way_moves_replicas_and_keeps_the_steps_that_they_took_meanwhile(backend):
    ranks = on_ranks(2, delayed, backend=backend)
    mean = 0.25 * ranks[0][0][0][2] + 0.75 * ranks[1][0][0][2]
    for (local, under_way, again), traffic in ranks:
        for step in range(4):
            assert torch.equal(under_way[step], local[step])
        torch.testing.assert_close(under_way[4], local[4] + mean - local[2], rtol=0, atol=1e-6)
        assert all(torch.equal(one, other) for one, other in zip(under_way, again, strict=True))
        assert traffic[1] == (1, 4 * mean.numel())
    assert torch.equal(ranks[0][0][1][-1], ranks[1][0][1][-1]), "at the end all replicas are one"


def resumed(rank, world, spec, compress):
    def run(stop):
        net = network()
        optimizer = optimizer_for("adamw", net)
        sync = ranvier.attach(net, optimizer, spec, compress=compress)
        train(net, optimizer, 4 * rank, 4 * rank + 4, range(stop))
        kept = (sync.state_dict(), {k: v.clone() for k, v in net.state_dict().items()}, optimizer.state_dict())
        again = network()
        optimizer = optimizer_for("adamw", again)
        sync = ranvier.attach(again, optimizer, spec, compress=compress)
        again.load_state_dict(kept[1])
        optimizer.load_state_dict(kept[2])
        sync.load_state_dict(kept[0])
        return train(again, optimizer, 4 * rank, 4 * rank + 4, range(stop, STEPS))[-1]

    whole = network()
    optimizer = optimizer_for("adamw", whole)
    ranvier.attach(whole, optimizer, spec, compress=compress)
    expected = train(whole, optimizer, 4 * rank, 4 * rank + 4)[-1]
    return torch.equal(run(7), expected)


@pytest.mark.parametrize(
    ("spec", "compress"),
    [("diloco:5", "none"), ("diloco:6,fragments=2,delay=2,merge=0.5", "none"), ("diloco:6,fragments=3,delay=1", "topk:0.1+int8"), ("gossip", "int8"), ("local:5,delay=3", "none"), ("local:5,delay=3", "int8")],
)
def test_a_checkpoint_in_the_middle_of_a_period_changes_nothing(spec, compress):
    assert all(on_ranks(2, resumed, spec, compress, backend="gloo"))


def refused(rank, world):
    net = network()
    sgd = optimizer_for("sgd", net)
    for spec, words in (("nod:4", "did you mean 'node'"), ("local", "write local:STEPS"), ("local:0", "from 1"), ("diloco:40,fragments=20", "too few for fragments=20"), ("auto:3", "takes no value"), ("aut", "did you mean 'auto'")):
        with pytest.raises(ValueError, match=words):
            ranvier.attach(net, sgd, spec)
    for name, wrong, such in (("sync", 5, "local:4"), ("sync", None, "local:4"), ("place", 2, "node=2"), ("compress", None, "int8")):
        with pytest.raises(TypeError, match=f"takes a str as {name}, and this is {wrong}: write one, such as '{such}'"):
            ranvier.attach(net, sgd, **{name: wrong})
    with pytest.raises(ValueError, match="1 to 2"):
        ranvier.attach(net, sgd, "node:4", place="node=3")
    with pytest.raises(ValueError, match="the same on every rank"):
        ranvier.attach(net, sgd, f"local:{rank + 1}")
    for spec, words in (("post-local:4", "steps"), ("local", "steps_per_epoch"), ("auto", "steps_per_epoch")):
        with pytest.raises(ValueError, match=rf"{words}=1\d.* would meet at different steps"):
            ranvier.attach(net, sgd, spec, **{words: 10 + 8 * rank})
    for spec in ("local:4", "bsp", "gossip"):  # to which they are nothing
        ranvier.attach(net, sgd, spec, steps=10 + rank, steps_per_epoch=10 + rank).finish()
    own = sgd if rank == 0 else optimizer_for("adamw", net)
    for spec in ("bsp", "node:4", "async"):
        with pytest.raises(ValueError, match=r"trains by (SGD and rank 1 by AdamW|AdamW and rank 0 by SGD): make the same"):
            ranvier.attach(net, own, spec)
    waves = Waves()
    of_waves = optimizer_for("sgd", waves)
    for spec, codec in (("slowmo:3", "none"), ("diloco:4", "none"), ("diloco:4,fragments=1", "none"), ("local:2,adapt=0.1,most=8", "none"), ("local:4,delay=1", "none"), ("bsp", "int8"), ("async", "none"), ("ad-psgd", "none")):
        with pytest.raises(ValueError, match="parameters are complex"):
            ranvier.attach(waves, of_waves, spec, compress=codec)
    with pytest.raises(ValueError, match="LBFGS"):
        ranvier.attach(net, torch.optim.LBFGS(net.parameters()), "bsp")
    with pytest.raises(ValueError, match="without it"):
        ranvier.attach(nn.parallel.DistributedDataParallel(net), sgd, "bsp")
    for samples in (0, -3, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="rank 1 has"):
            ranvier.attach(net, sgd, samples=samples if rank == 1 else 2)
    with pytest.raises(ValueError, match="give all as many"):
        ranvier.attach(net, sgd, "gossip", samples=rank + 1)
    with pytest.raises(ValueError, match="leave out compress='int8'"):
        ranvier.attach(net, sgd, "auto", compress="int8")
    with pytest.raises(ValueError, match="compress= in Python"):
        ranvier.attach(net, sgd, "local:4+int8")
    for codec, spec, optimizer, words in (
        ("int7x", "bsp", sgd, "int8"),
        ("topk:0.01", "gossip", sgd, "take int4, int8"),
        ("powersgd:2", "gossip", sgd, "with gossip and ad-psgd each sends its own; take int4, int8, eden:2"),
        ("powersgd:2", "ad-psgd", sgd, "with gossip and ad-psgd each sends its own; take int4, int8, eden:2"),
        ("dgc:0.01", "local:4", sgd, "also averages parameters"),
        ("dgc:0.01", "bsp", optimizer_for("momentum", net), "momentum=0"),
    ):
        with pytest.raises(ValueError, match=words):
            ranvier.attach(net, optimizer, spec, compress=codec)
    with pytest.raises(ValueError, match="the same on every rank"):
        ranvier.attach(net, sgd, compress=("int8", "bf16")[rank])
    for name in ("steps_per_epoch", "steps"):
        with pytest.raises(ValueError, match=f"-5 as {name};"):
            ranvier.attach(net, sgd, "post-local:4", **{"steps": 8, "steps_per_epoch": 4, name: -5})
    with pytest.raises(ValueError, match="belong together"):
        ranvier.attach(network(), sgd)
    sync = ranvier.attach(net, sgd)
    with pytest.raises(ValueError, match="attached already"):
        ranvier.attach(net, sgd)
    sync.finish()
    ranvier.attach(net, sgd).finish()
    return dist.get_world_size()


def by_closure(rank, world, as_keyword):
    """The trace of a run whose steps compute their gradients themselves, and what two evaluations in a step end with."""
    net = network()
    optimizer = optimizer_for("adamw", net)
    sync = ranvier.attach(net, optimizer, samples=(3, 5)[rank])
    trace = []
    for step in range(STEPS):
        inputs, targets = (part[3 * rank : 3 + 5 * rank] for part in samples(step))

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(inputs), targets)
            loss.backward()
            return loss

        loss = optimizer.step(closure=closure) if as_keyword else optimizer.step(closure)
        assert loss.item() > 0
        trace.append(flat(net).clone())
    assert sync.rounds == STEPS

    class Twice(torch.optim.Optimizer):
        def step(self, closure=None):
            return [closure(), closure()]

    sync.finish()
    twice = Twice(net.parameters(), {})
    ranvier.attach(net, twice)
    with pytest.raises(ValueError, match="several times"):
        twice.step(closure)
    return trace


@pytest.mark.parametrize("as_keyword", [False, True])
def test_gradients_that_a_closure_computes_are_averaged(as_keyword):
    expected = alone("adamw")
    for trace in on_ranks(2, by_closure, as_keyword, backend="gloo"):
        for step in range(STEPS):
            torch.testing.assert_close(trace[step], expected[step], rtol=0, atol=2e-5)


def with_changing_samples(rank, world):
    net = network()
    optimizer = optimizer_for("momentum", net)
    sync = ranvier.attach(net, optimizer, samples=4)
    train(net, optimizer, 4 * rank, 4 * rank + 4, range(6))
    sync.set_samples((7, 1)[rank])
    return train(net, optimizer, 7 * rank, 7 + rank, range(6, STEPS))[-1]


def test_samples_may_change_while_training_goes_on():
    for end in on_ranks(2, with_changing_samples, backend="gloo"):
        torch.testing.assert_close(end, alone("momentum")[-1], rtol=0, atol=2e-5)


def with_samples_that_change_within_a_period(rank, world):
    net = network()
    optimizer = optimizer_for("momentum", net)
    sync = ranvier.attach(net, optimizer, "local:6", samples=4)
    train(net, optimizer, 4 * rank, 4 * rank + 4, range(3))
    sync.set_samples((7, 1)[rank])
    return train(net, optimizer, 7 * rank, 7 + rank, range(3, 6))[-1]


def test_an_average_of_parameters_is_weighted_by_all_samples_since_the_last_one():
    expected = torch.zeros(())
    for rank, used in enumerate((3 * 4 + 3 * 7, 3 * 4 + 3 * 1)):
        net = network()
        optimizer = optimizer_for("momentum", net)
        train(net, optimizer, 4 * rank, 4 * rank + 4, range(3))
        expected = expected + used / 48 * train(net, optimizer, 7 * rank, 7 + rank, range(3, 6))[-1]
    for end in on_ranks(2, with_samples_that_change_within_a_period, backend="gloo"):
        torch.testing.assert_close(end, expected, rtol=0, atol=1e-5)


def test_what_cannot_be_is_refused_at_the_start():
    assert on_ranks(2, refused, backend="gloo") == [2, 2]


def of_short_floats(rank, world, samples):
    net = network().to(torch.bfloat16)
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, "local:1", samples=samples[rank])
    before = [p.detach().clone() for p in net.parameters()]
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(20):
        optimizer.step()
    sync.finish()
    return [(p.detach() - b).abs().max().item() / b.abs().max().item() for p, b in zip(net.parameters(), before, strict=True)]


def test_averages_of_short_floats_are_rounded_behind_the_sum():
    for moved in on_ranks(3, of_short_floats, (1, 1, 1), backend="ranvier"):
        assert moved == [0] * len(moved)  # a third of each of three would be another value for one in seven
    for moved in on_ranks(3, of_short_floats, (1, 2, 3), backend="ranvier"):
        assert max(moved) < 0.1


def of_large_halves(rank, world, samples):
    net = nn.Linear(4, 1, bias=False).half()
    nn.init.zeros_(net.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    sync = ranvier.attach(net, optimizer, "bsp", samples=samples[rank])
    net.weight.grad = torch.full_like(net.weight, 25000)
    optimizer.step()
    sync.finish()
    return net.weight.detach().float()


@pytest.mark.parametrize("samples", [(1, 1, 1, 1), (97, 1, 1, 1)])
def test_an_average_is_finite_where_the_sum_is_beyond_float16(samples):
    for weight in on_ranks(4, of_large_halves, samples, backend="ranvier"):
        torch.testing.assert_close(weight, torch.full((1, 4), -25000.0), rtol=0.002, atol=0)


def of_expanded_gradients(rank, world):
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    sync = ranvier.attach(net, optimizer, "bsp")
    before = net.weight.detach().clone()
    net.weight.grad = torch.ones(1).expand(4, 4) if rank == 0 else torch.full((4, 4), 3.0)
    optimizer.step()
    sync.finish()
    return torch.allclose(before - net.weight, torch.full((4, 4), 2.0))


def test_a_gradient_that_is_one_value_in_memory_is_averaged():
    assert all(on_ranks(2, of_expanded_gradients, backend="gloo"))


def given_what_counts_nothing(rank, world):
    net = network()
    sgd = optimizer_for("sgd", net)
    for words in ({"steps_per_epoch": 2.5}, {"steps": None}, {"samples": "32"}, {"samples": None}):
        for spec in ("local:2", "async"):
            with pytest.raises(TypeError, match=f"{[*words][0]}.*, and this is .*: give"):
                ranvier.attach(net, sgd, spec, **words)
    # Those of one rank alone are told to the others, who would wait for it.
    with pytest.raises(TypeError if rank == 0 else ValueError, match="an int as steps"):
        ranvier.attach(net, sgd, "local:2", steps=2.5 if rank == 0 else 2)
    ranvier.attach(net, sgd, "local:2", samples=torch.tensor(4), steps=2, steps_per_epoch=2).finish()
    return True


def test_numbers_have_to_be_numbers():
    assert all(on_ranks(2, given_what_counts_nothing, backend="gloo"))


def warned_at_the_start(rank, world, cases):
    said = []
    for name, spec, words in cases:
        net = network()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            sync = ranvier.attach(net, optimizer_for(name, net), spec, **words)
        said.append([str(each.message) for each in warned])
        assert all(each.filename == __file__ for each in warned), "the script's own line"
        sync.finish()
    return said


def test_who_gives_diloco_over_momentum_or_nodes_on_one_host_is_warned():
    two_nodes = {"place": "node=2"}
    cases = (
        ("momentum", "diloco:4", {}, "go too far over the momentum of SGD"),
        ("momentum", "diloco:4,fragments=2", {}, "go too far over the momentum of SGD"),
        ("sgd", "diloco:4", {}, None),
        ("adamw", "diloco:4", {}, None),
        ("momentum", "slowmo:4", {}, None),
        ("momentum", "diloco:4,rate=1,momentum=0.5", {}, None),
        ("adamw", "node:4", {}, "all ranks share one node"),
        ("adamw", "node:4", {"compress": "int8"}, "compress='int8' has nothing to code: this is bsp"),
        ("adamw", "node:4", two_nodes, None),
        ("adamw", "local:4", {}, None),
        ("adamw", "bsp", {"compress": "int8"}, None),
    )
    first, second = on_ranks(2, warned_at_the_start, [each[:3] for each in cases], backend="gloo")
    for said, (*case, expected) in zip(first, cases, strict=True):
        assert len(said) == (expected is not None) and all(expected in each for each in said), (case, said)
    assert second == [[] for _ in cases], "rank 0 speaks for all"


def of_another_rank(rank, world):
    """Whether each state of the next rank was taken up; the rank's own always is."""
    taken = {}
    for spec, compress, steps in (("local:3", "none", 2), ("local:3", "none", 3), ("bsp", "none", 2), ("bsp", "int8", 2), ("gossip", "none", 1)):
        net = network()
        optimizer = optimizer_for("sgd", net)
        sync = ranvier.attach(net, optimizer, spec, compress=compress)
        train(net, optimizer, 4 * rank, 4 * rank + 4, range(steps))
        states = [None] * world
        dist.all_gather_object(states, sync.state_dict())
        sync.load_state_dict(states[rank])
        theirs = states[(rank + 1) % world]
        sync.load_state_dict({key: value for key, value in theirs.items() if key != "rank"})  # of before it was kept
        try:
            sync.load_state_dict(theirs)
            taken[spec, compress, steps] = True
        except ValueError as error:
            assert str(error) == f"the state is of rank {1 - rank}, and this is rank {rank}: load each rank's own"
            taken[spec, compress, steps] = False
        other = theirs | {"rank": (2, 3)}
        sync.load_state_dict(other)
    return taken


def test_the_state_of_another_rank_is_refused_where_ranks_differ():
    for taken in on_ranks(2, of_another_rank, backend="gloo"):
        assert list(taken.values()) == [False, True, True, False, False], taken
