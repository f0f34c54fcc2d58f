"""ranvier.attach beside what scripts do with an optimizer: groups of parameters, tied, frozen and unused ones, closures,
schedulers that begin at 0, clipping, and checkpoints that go through a file."""

import io
import os

import pytest
import ranvier
import torch
from ranks import on_ranks
from torch import nn, optim
from torch.distributed.optim import ZeroRedundancyOptimizer

STEPS = 12
WEIGHTS = (5, 1, 3)


class Network(nn.Module):
    """Of tied weights, a frozen layer, one that some steps use on some ranks, one that none does, and a scalar."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.up = nn.Linear(6, 10, bias=False)
        self.down = nn.Linear(10, 6, bias=False)
        self.tied = nn.Linear(10, 6, bias=False)
        self.tied.weight = self.down.weight
        self.fixed = nn.Linear(10, 10).requires_grad_(False)
        self.branch = nn.Linear(6, 6)
        self.never = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.tensor(1.3))

    def forward(self, inputs, use):
        hidden = torch.tanh(self.up(inputs))
        found = self.scale * self.down(hidden) + self.tied(torch.tanh(self.fixed(hidden)))
        return found if use is None else found + use * self.branch(inputs)


def use_of_branch(rank, step):
    """On some rank in some steps, and in others by a factor of 0, of which the gradient is zero and not none."""
    if step % 5 >= 3:
        return 0.0 if (rank, step % 5) == (1, 3) else None
    return 1.0 if (rank + step) % 3 == 0 else None


def loss_of(net, rank, step, count):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs, targets = torch.randn(count, 6, generator=generator), torch.randn(count, 6, generator=generator)
    return (net(inputs, use_of_branch(rank, step)) - targets).square().mean()


def halves(net, **of_second):
    first = [p for name, p in net.named_parameters() if name.startswith(("up", "scale"))]
    second = [p for name, p in net.named_parameters() if not name.startswith(("up", "scale"))]
    return [{"params": first}, {"params": second, **of_second}]


OPTIMIZERS = {
    "sgd": lambda net: optim.SGD(halves(net, lr=0.02), lr=0.05),
    "nesterov": lambda net: optim.SGD(halves(net, lr=0.02, weight_decay=0.1), lr=0.05, momentum=0.9, nesterov=True),
    "dampening": lambda net: optim.SGD(net.parameters(), lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01),
    "resting": lambda net: optim.SGD([*halves(net, lr=0.05)[1:], {**halves(net)[0], "lr": 0.0}], lr=0.0, momentum=0.9),
    "adagrad": lambda net: optim.Adagrad(halves(net, lr=0.02, lr_decay=0.1), lr=0.05, weight_decay=0.01),
    "adam": lambda net: optim.Adam(net.parameters(), lr=0.01, amsgrad=True, weight_decay=0.05),
    "adamw": lambda net: optim.AdamW(halves(net, lr=0.002, betas=(0.8, 0.9), weight_decay=0.3), lr=0.01),
    "fused": lambda net: optim.AdamW(net.parameters(), lr=0.01, fused=True),
    "rmsprop": lambda net: optim.RMSprop(halves(net, momentum=0.5), lr=0.003, centered=True),
    "asgd": lambda net: optim.ASGD(net.parameters(), lr=0.02),
}
PLACES = {"node:4": "node=2", "hierarchy:node=1,rack=2,world=6": "node=4,rack=2"}
EQUAL_STEPS = (
    "bsp", "local:4", "local:2,adapt=0.5,most=8", "post-local:4", "node:4", "hierarchy:node=1,rack=2,world=6", "slowmo:5",
    "diloco:4", "diloco:4,fragments=2,delay=1,merge=0.5", "gossip",
)  # fmt: skip
OWN_PACE = ("async", "ssp:3", "group", "ad-psgd")


def flat(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


class Run:
    def __init__(self, optimizer):
        self.net = Network()
        self.optimizer = OPTIMIZERS[optimizer](self.net)
        self.scheduler = optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1, step / 3))  # from 0 on

    def step(self, losses, by_closure=False):
        def closure():
            self.optimizer.zero_grad()
            loss = losses()
            loss.backward()
            return loss

        if by_closure:
            self.optimizer.step(closure)
        else:
            closure()
            self.optimizer.step()
        self.scheduler.step()
        return flat(self.net).clone()

    def parts(self):
        return {"net": self.net, "optimizer": self.optimizer, "scheduler": self.scheduler}


def alone(optimizer, weights):
    """One process, on the samples of all."""
    run = Run(optimizer)
    return [
        run.step(
            lambda: sum(n / sum(weights) * loss_of(run.net, rank, step, n) for rank, n in enumerate(weights))  # noqa: B023
        )
        for step in range(STEPS)
    ]


def attached(rank, world, cases, weights):
    traces = []
    for optimizer, spec, by_closure in cases:
        run = Run(optimizer)
        place = PLACES.get(spec, "") if world > 1 else ""
        if world == 1 and spec.startswith("hierarchy"):
            place = "rack=1"
        sync = ranvier.attach(
            run.net, run.optimizer, spec, place=place, samples=weights[rank], steps=STEPS, steps_per_epoch=5
        )
        count = weights[rank]
        trace = [run.step(lambda: loss_of(run.net, rank, step, count), by_closure) for step in range(STEPS)]  # noqa: B023
        sync.finish()
        traces.append([*trace, flat(run.net)])
    return traces


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_bsp_is_one_process_with_the_big_batch_by_any_optimizer(backend):
    cases = [(name, "bsp", name in ("adamw", "nesterov")) for name in OPTIMIZERS] + [("sgd", "local:1", False)]
    ranks = on_ranks(3, attached, cases, WEIGHTS, backend=backend)
    for number, (name, spec, _) in enumerate(cases):
        expected = alone(name, WEIGHTS)
        for traces in ranks:
            assert torch.equal(traces[number][-1], ranks[0][number][-1]), f"{name} {spec}: all end with the same bits"
            for step, values in enumerate(expected):
                torch.testing.assert_close(traces[number][step], values, rtol=0, atol=2e-5, msg=f"{name} {spec} {step}")


def test_one_rank_takes_plain_steps_bit_by_bit_by_any_optimizer_and_policy():
    cases = [(name, spec, False) for name in OPTIMIZERS for spec in (*EQUAL_STEPS, *OWN_PACE, "auto")]
    expected = {name: alone(name, (4,)) for name in OPTIMIZERS}
    (traces,) = on_ranks(1, attached, cases, (4,), backend="gloo")
    for (name, spec, _), trace in zip(cases, traces, strict=True):
        for mine, plain in zip(trace, [*expected[name], expected[name][-1]], strict=True):
            assert torch.equal(mine, plain), f"{name} {spec}"


def through_a_file(rank, world, cases):
    """Whether a run that is saved and begun anew ends as the one that is not, and what it ends with."""
    results = []
    for optimizer, spec, compress in cases:
        ends = []
        for stop in (None, 7):
            run = Run(optimizer)
            words = dict(
                place=PLACES.get(spec, ""), samples=1 if spec in ("gossip", "ad-psgd") else 1 + rank, steps=STEPS, compress=compress
            )  # fmt: skip
            sync = ranvier.attach(run.net, run.optimizer, spec, **words)
            for step in range(STEPS):
                if step == stop:
                    if spec in OWN_PACE:
                        sync.meet()
                    file = io.BytesIO()
                    torch.save({name: part.state_dict() for name, part in (*run.parts().items(), ("sync", sync))}, file)
                    file.seek(0)
                    sync.finish()
                    run = Run(optimizer)
                    sync = ranvier.attach(run.net, run.optimizer, spec, **words)
                    for name, kept in torch.load(file, weights_only=True).items():
                        {**run.parts(), "sync": sync}[name].load_state_dict(kept)
                run.step(lambda: loss_of(run.net, rank, step, 2))  # noqa: B023
            sync.finish()
            ends.append(flat(run.net))
        results.append((torch.equal(*ends), ends[1]))
    return results


def test_checkpoints_go_through_a_file():
    names = list(OPTIMIZERS)
    cases = [(names[i % len(names)], spec, "none") for i, spec in enumerate((*EQUAL_STEPS, *OWN_PACE))]
    cases += [(names[(i + 3) % len(names)], spec, "int8") for i, spec in enumerate((*EQUAL_STEPS, *OWN_PACE))]
    ranks = on_ranks(4, through_a_file, cases, backend="gloo", limit=180)
    for number, (_, spec, compress) in enumerate(cases):
        for results in ranks:
            is_same, end = results[number]
            assert is_same or spec in OWN_PACE, f"{spec} {compress}"
            assert torch.equal(end, ranks[0][number][1]) and end.isfinite().all(), f"{spec} {compress}"


def clipped(rank, world):
    """The average, not each rank's gradient; or by one rank the whole."""
    torch.manual_seed(0)
    net = nn.Linear(6, 4)
    optimizer = optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    sync = ranvier.attach(net, optimizer, samples=(1, 3)[rank] if world > 1 else 4)

    def clip(*_):
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)

    optimizer.register_step_pre_hook(clip)
    for step in range(6):
        inputs = 3 * torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        net(inputs[:1] if world > 1 and rank == 0 else inputs[1:] if world > 1 else inputs).square().mean().backward()
        optimizer.step()
    sync.finish()
    return flat(net)


def test_a_hook_behind_attach_clips_the_average():
    (expected,) = on_ranks(1, clipped, backend="gloo")
    for end in on_ranks(2, clipped, backend="gloo"):
        torch.testing.assert_close(end, expected, rtol=0, atol=1e-6)


class Sign(optim.Optimizer):
    """Knows no learning rate."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            parameter -= 0.01 * parameter.grad.sign()


def without_a_rate(rank, world):
    ends = []
    for spec in ("bsp", "local:2", "slowmo:3", "async", "ad-psgd"):
        torch.manual_seed(3)
        net = nn.Linear(4, 3)
        sync = ranvier.attach(net, optimizer := Sign(net.parameters()), spec)
        for step in range(6):
            optimizer.zero_grad()
            net(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
        sync.finish()
        ends.append(flat(net))
    return ends


def test_an_optimizer_needs_no_learning_rate():
    mine, theirs = on_ranks(2, without_a_rate, backend="gloo")
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def with_sparse_gradients(rank, world):
    """Of one rank, and between averages of parameters."""
    ends = []
    for spec in ("bsp", "node:2", "async", "local:2") if world == 1 else ("local:2", "async"):
        torch.manual_seed(3)
        net = nn.Embedding(10, 4, sparse=True)
        sync = ranvier.attach(net, optimizer := optim.SparseAdam(net.parameters(), lr=0.1), spec)
        for step in range(5):
            optimizer.zero_grad()
            net(torch.tensor([step, 5 + rank])).square().sum().backward()
            optimizer.step()
        sync.finish()
        ends.append(flat(net))
    return ends


def test_sparse_gradients_stay_where_none_are_averaged():
    (alone,) = on_ranks(1, with_sparse_gradients, backend="gloo")
    assert all(torch.equal(end, alone[0]) for end in alone)
    mine, theirs = on_ranks(2, with_sparse_gradients, backend="gloo")
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


class Clamped(optim.SGD):
    """Its step is one of its base's and more, of which torch calls the hooks, too, once there is an optimizer of the base."""

    def step(self, closure=None):
        loss = super().step(closure)
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.clamp_(-0.4, 0.4)
        return loss


def with_a_step_inside_a_step(rank, world, spec):
    torch.manual_seed(3)
    net = nn.Linear(4, 3)
    base = optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)  # makes torch call the hooks of both
    assert type(base).step.hooked
    sync = ranvier.attach(net, optimizer := Clamped(net.parameters(), lr=0.5), spec)
    apart = []
    for step in range(4):
        optimizer.zero_grad()
        inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        (net(inputs) - rank).square().mean().backward()
        optimizer.step()
        apart.append(flat(net))
    steps = sync.step
    sync.finish()
    return steps, sync.rounds, apart


def test_a_step_inside_a_step_is_none():
    (steps, rounds, mine), (_, _, theirs) = on_ranks(2, with_a_step_inside_a_step, "local:2", backend="gloo")
    assert (steps, rounds) == (4, 2)
    assert [torch.equal(a, b) for a, b in zip(mine, theirs, strict=True)] == [False, True, False, True]
    for steps, *_ in on_ranks(2, with_a_step_inside_a_step, "async", backend="gloo"):
        assert steps == 4


class Wrapper(optim.Optimizer):
    """As accelerate's and torch's PostLocalSGDOptimizer, which are no optimizers but by name."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.param_groups, self.state = optimizer.param_groups, optimizer.state

    def step(self, closure=None):
        return self.optimizer.step(closure)


class FullyShardedDataParallel(nn.Linear):
    """As torch's is called, which wants an accelerator."""


def refused(rank, world):
    def sgd(net, backwards=False):
        return optim.SGD([*net.parameters()][:: -1 if backwards else 1], lr=0.1)

    pair = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    partly = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    partly[1].requires_grad_(rank == 0)
    lazy, sharded, single = nn.LazyLinear(3), nn.Sequential(FullyShardedDataParallel(4, 3)), nn.Linear(4, 3)
    inside = nn.Sequential(nn.parallel.DistributedDataParallel(nn.Linear(4, 3)))
    other = nn.Linear(4, 3 + rank)
    trained = [f"rank {each} trains 'weight' of {3 + each} x 4" for each in (rank, 1 - rank)]
    for net, optimizer, words in (
        (other, sgd(other), f"{trained[0]} .* where {trained[1]}"),
        (pair, sgd(pair, backwards=rank == 1), "with parameters in the same order"),
        (partly, sgd(partly), "no more parameters"),
        (lazy, sgd(lazy), "call the model once"),
        (sharded, sgd(sharded), "whole on every rank"),
        (inside, sgd(inside), "without it"),
    ):
        for spec in ("bsp", "local:2", "async"):
            with pytest.raises(ValueError, match=words):
                ranvier.attach(net, optimizer, spec)
    for net, optimizer in ((single, "sgd"), (sgd(single), single)):
        with pytest.raises(TypeError, match="in this order"):
            ranvier.attach(net, optimizer)
    for spec in ("bsp", "async"):
        with pytest.raises(ValueError, match="Wrapper calls no hooks around its step.*the optimizer inside of it"):
            ranvier.attach(single, Wrapper(sgd(single)), spec)
    divided = ZeroRedundancyOptimizer(single.parameters(), optim.Adam, lr=0.1)
    for spec in ("local:2", "node:2", "gossip", "diloco:4,fragments=2", "auto", "async", "ad-psgd"):
        with pytest.raises(ValueError, match="take 'bsp', or the optimizer that it divides"):
            ranvier.attach(single, divided, spec)
    ranvier.attach(single, divided, "bsp").finish()
    sparse = nn.Sequential(nn.EmbeddingBag(10, 4, sparse=True))
    for spec in ("bsp", "post-local:2", "node:2", "auto"):
        with pytest.raises(ValueError, match=r"the gradient of '0\.weight' is sparse.* sparse=False"):
            ranvier.attach(sparse, sgd(sparse), spec, steps=4)
    ranvier.attach(single, sgd(single)).finish()


def test_what_would_not_match_is_refused_at_the_start():
    on_ranks(2, refused, backend="gloo")


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)


def with_states_that_differ(rank, world):
    from ranvier._optimizer_state import share_state

    net = Two()
    optimizer = optim.AdamW(net.parameters(), lr=0.01)
    net.first(torch.ones(2, 4) + rank).square().mean().backward()
    if rank == 1:
        net.second(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    optimizer.state[net.first.bias]["note"] = rank
    share_state(optimizer, torch.distributed.group.WORLD)
    return [optimizer.state.get(parameter, {}) for parameter in net.parameters()]


def test_where_states_are_shared_nobody_keeps_more_than_rank_0_has():
    first, *others = on_ranks(3, with_states_that_differ, backend="gloo")
    assert [len(state) for state in first] == [3, 4, 0, 0]
    for states in others:
        for mine, theirs in zip(first, states, strict=True):
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(torch.as_tensor(mine[name]), torch.as_tensor(theirs[name])) for name in mine)


REMEMBERING = {
    "momentum": lambda net: optim.SGD(net.parameters(), lr=0.02, momentum=0.9),
    "adamw": lambda net: optim.AdamW(net.parameters(), lr=0.01, amsgrad=True),
}


def joined_by_one_that_is_new(rank, world, name, sync):
    """The last rank has trained nothing so far; the others have, each by itself."""
    net = nn.Linear(6, 2)
    optimizer = REMEMBERING[name](net)
    generator = torch.Generator().manual_seed(rank)

    def train():
        optimizer.zero_grad()
        net(torch.randn(8, 6, generator=generator)).square().mean().backward()
        optimizer.step()

    for _ in range(0 if rank == world - 1 else 3 + rank):
        train()
    before = states_of(net, optimizer)
    attached = ranvier.attach(net, optimizer, sync=sync, steps=8)
    at_first = states_of(net, optimizer)
    for _ in range(4):
        train()
    held = [p.detach().clone() for p in net.parameters()]
    attached.finish()
    return before, at_first, held


def states_of(net, optimizer):
    return [
        {key: torch.as_tensor(value).clone() for key, value in optimizer.state.get(p, {}).items()} for p in net.parameters()
    ]


def are_equal(some, others):
    return all(
        mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)
        for mine, theirs in zip(some, others, strict=True)
    )


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("sync", ["bsp", "post-local:4,after=1", "auto"])
def test_where_ranks_share_gradients_all_begin_with_what_rank_0s_optimizer_remembers(name, sync, backend):
    first, *others = on_ranks(3, joined_by_one_that_is_new, name, sync, backend=backend)
    assert first[0][0] and are_equal(first[0], first[1])
    for _, at_first, held in others:
        assert are_equal(at_first, first[1])
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(held, first[2], strict=True))


@pytest.mark.parametrize("sync", ["local:4", "async", "group"])
def test_else_only_a_rank_whose_optimizer_remembers_nothing_begins_with_rank_0s(sync):
    first, stayed, new = on_ranks(3, joined_by_one_that_is_new, "adamw", sync, backend="gloo")
    assert are_equal(stayed[0], stayed[1]) and not are_equal(stayed[1], first[1])
    assert not new[0][0] and are_equal(new[1], first[1])


def on_nodes_of_one(rank, world):
    os.environ["RANVIER_NODE"] = str(rank)
    return joined_by_one_that_is_new(rank, world, "momentum", "node:2")


def test_nodes_of_one_rank_share_no_gradients_and_keep_what_theirs_remembers():
    _, stayed, _ = on_ranks(3, on_nodes_of_one, backend="gloo")
    assert are_equal(stayed[0], stayed[1])


def who_remembers_what_cannot_be_sent(rank, world):
    net = nn.Linear(2, 1)
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    if rank == 0:
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.state[net.weight]["note"] = lambda: None
    with pytest.raises(ValueError, match="what cannot be sent to the other ranks .* attach it before its first step"):
        ranvier.attach(net, optimizer)
    return True


def test_an_optimizer_that_remembers_what_cannot_be_sent_is_refused_on_all_ranks():
    assert on_ranks(2, who_remembers_what_cannot_be_sent, backend="gloo") == [True, True]


def in_a_compiled_step(rank, world, cases):
    ends = []
    for spec, compiles in cases:
        torch._dynamo.reset()  # or a graph that knows no hooks is taken for this model's
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 6))
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        sync = ranvier.attach(net, optimizer, spec)
        forward, step = net, optimizer.step
        if compiles:
            forward = torch.compile(net, backend="eager", fullgraph=True)
            step = torch.compile(optimizer.step, backend="eager")
        for number in range(3):
            optimizer.zero_grad()
            forward(torch.randn(4, 6, generator=torch.Generator().manual_seed(9 * number + rank))).square().sum().backward()
            step()
        assert sync.step == 3
        sync.finish()
        ends.append(flat(net))
    return ends


def test_a_compiled_step_of_a_compiled_model_averages_too():
    cases = [("bsp", False), ("bsp", True), ("local:2", True), ("auto", True), ("async", True)]
    first, second = on_ranks(2, in_a_compiled_step, cases, backend="gloo")
    assert all(map(torch.equal, first, second))
    torch.testing.assert_close(first[1], first[0])
