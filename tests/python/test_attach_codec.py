"""ranvier.attach with a codec: what everybody's averages exchange is compressed, as by ranvier.hook."""

import copy

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from ranvier._rates import BITS
from test_synchronize import BATCH, STEPS, flat, network, optimizer_for, train
from test_uneven import EPOCHS, train_unevenly
from torch import nn

WORLD = 4
EACH = BATCH // WORLD
POLICIES = [
    ("adamw", "bsp", ""),
    ("momentum", "local:3", ""),
    ("adamw", "node:4", "node=2"),
    ("momentum", "hierarchy:node=1,rack=2,world=6", "node=4,rack=2"),
    ("adamw", "diloco:4", ""),
    ("momentum", "post-local:4", ""),
    ("momentum", "local:2,adapt=0.5,most=8", ""),
    ("adamw", "diloco:4,fragments=2,delay=1", ""),
]


def attached(rank, world, codecs):
    """Of each policy and codec the parameters at the end, and the bytes that this rank gave."""
    ends = []
    for name, spec, place in POLICIES:
        for codec in codecs:
            net = network()
            optimizer = optimizer_for(name, net)
            sync = ranvier.attach(net, optimizer, spec, place=place, steps=STEPS, compress=codec)
            train(net, optimizer, EACH * rank, EACH * (rank + 1))
            sync.finish()
            ends.append((flat(net), sync.bytes))
    return ends


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_all_end_with_the_same_bits_near_those_without_a_codec(backend):
    codecs = ["none", "int8"] if backend == "gloo" else ["none", "int8", "topk:0.25", "powersgd:2"]
    ranks = on_ranks(WORLD, attached, codecs, backend=backend)
    start = flat(network())
    for number, (name, spec, _) in enumerate(POLICIES):
        plain, int8, *others = ([rank[number * len(codecs) + at] for rank in ranks] for at in range(len(codecs)))
        for results in (plain, int8, *others):
            assert all(torch.equal(end, results[0][0]) for end, _ in results), f"{name} by {spec}"
        come = (plain[0][0] - start).norm()
        assert 0 < (int8[0][0] - plain[0][0]).norm() < 0.1 * come, f"{name} by {spec}"
        for results in others:
            assert (results[0][0] - plain[0][0]).norm() < come, f"{name} by {spec}"
        assert int8[0][1] < plain[0][1]


def gossiping(rank, world):
    """With and without a codec: the parameters behind each step, and the bytes."""
    runs = []
    for codec in ("none", "int8"):
        net = network()
        optimizer = optimizer_for("momentum", net)
        sync = ranvier.attach(net, optimizer, "gossip", compress=codec)
        trace = train(net, optimizer, EACH * rank, EACH * (rank + 1))
        sent = sync.bytes
        sync.finish()
        runs.append((torch.stack(trace), sent, flat(net)))
    return runs


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_gossip_by_codes_follows_gossip_by_values(backend):
    ranks = on_ranks(WORLD, gossiping, backend=backend)
    start = flat(network())
    for (plain, plain_bytes, _), (coded, coded_bytes, end) in ranks:
        come = (plain[-1] - start).norm()
        assert 0 < (coded - plain).norm(dim=1).max() < 0.1 * come
        assert coded_bytes < 0.5 * plain_bytes
        assert torch.equal(end, ranks[0][1][2])


def ended(rank, world, spec, codec):
    net = network()
    optimizer = optimizer_for("momentum", net)
    sync = ranvier.attach(net, optimizer, spec, steps=STEPS, compress=codec)
    train(net, optimizer, EACH * rank, EACH * (rank + 1))
    before = flat(net)
    sync.finish()
    return before, flat(net)


@pytest.mark.parametrize("spec", ["local:5", "diloco:5", "local:5,adapt=0.5,most=20"])
def test_a_period_that_is_cut_short_ends_with_the_plain_mean(spec):
    ranks = on_ranks(WORLD, ended, spec, "topk:0.1", backend="gloo")
    mean = torch.stack([before for before, _ in ranks]).mean(0)
    for _, end in ranks:
        torch.testing.assert_close(end, mean)


def inside_and_between(rank, world):
    net = network()
    optimizer = optimizer_for("sgd", net)
    sync = ranvier.attach(net, optimizer, "node:6", place="node=2", compress="int8")
    train(net, optimizer, EACH * rank, EACH * (rank + 1))
    values = sum(p.numel() for p in net.parameters())
    marks = len([*net.parameters()]) + 2 * BITS  # which of them anybody has used, and whether learning rates differ
    return sync.bytes - STEPS * 4 * (values + marks), values


def test_only_what_goes_between_nodes_is_compressed():
    for rank, (between, values) in enumerate(on_ranks(WORLD, inside_and_between, backend="gloo")):
        # Of two leaders each gives half of the codes and the sum of the other half: a byte a value, and scales.
        assert (2 * values < between < 4 * values) if rank % 2 == 0 else between == 0


def resumed(rank, world, spec, codec, stop):
    def begin():
        net = network()
        optimizer = optimizer_for("adamw", net)
        return net, optimizer, ranvier.attach(net, optimizer, spec, steps=STEPS, compress=codec)

    begin_at, end_at = EACH * rank, EACH * (rank + 1)
    net, optimizer, sync = begin()
    train(net, optimizer, begin_at, end_at, range(stop))
    kept = copy.deepcopy((net.state_dict(), optimizer.state_dict(), sync.state_dict()))
    again = begin()
    with pytest.raises(ValueError, match="attach the same"):
        again[2].load_state_dict(kept[2] | {"compress": "none"})
    for each, state in zip(again, kept, strict=True):
        each.load_state_dict(state)
    ends = [train(net, optimizer, begin_at, end_at, range(stop, STEPS))[-1] for net, optimizer, _ in ((net, optimizer, sync), again)]
    return torch.equal(*ends)


@pytest.mark.parametrize(
    ("spec", "codec", "stop"),
    [
        ("bsp", "topk:0.1+int8", 7),
        ("diloco:5", "topk:0.1", 7),
        ("local:2", "powersgd:2", 7),
        ("post-local:2", "topk:0.1", 3),  # while gradients are averaged, …
        ("post-local:2", "topk:0.1", 9),  # … and when parameters are
    ],
)
def test_what_is_held_back_is_in_the_state(spec, codec, stop):
    # Each attach() makes a group, and what that measures decides in which order floats of four ranks are added.
    assert all(on_ranks(WORLD, resumed, spec, codec, stop, backend="ranvier", environment={"RANVIER_MEASURE": "0"}))


def after_a_synchronous_beginning(rank, world):
    """The second half of post-local, and the same steps by `local`, begun anew from where the first half ended."""
    begin_at, end_at, half = EACH * rank, EACH * (rank + 1), STEPS // 2
    net = network()
    optimizer = optimizer_for("adamw", net)
    sync = ranvier.attach(net, optimizer, "post-local:2", steps=STEPS, compress="topk:0.1")
    train(net, optimizer, begin_at, end_at, range(half))
    kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    owed = sync.state_dict()["coded"]
    trace = train(net, optimizer, begin_at, end_at, range(half, STEPS))
    again = network()
    optimizer = optimizer_for("adamw", again)
    local = ranvier.attach(again, optimizer, "local:2", compress="topk:0.1")
    again.load_state_dict(kept[0])
    optimizer.load_state_dict(kept[1])
    local.step = half
    local._policy = local._make_policy("local:2")  # whose periods begin there
    local._between.agree()
    return trace, train(again, optimizer, begin_at, end_at, range(half, STEPS)), owed


def test_what_gradients_were_held_back_is_no_change_of_parameters():
    for trace, local, (of_gradients, of_changes) in on_ranks(WORLD, after_a_synchronous_beginning, backend="ranvier"):
        assert of_gradients["number"] == STEPS // 2 and of_changes["number"] == 0
        assert any(record is not None for record in of_gradients["kept"]), "gradients are owed something"
        for step, (one, other) in enumerate(zip(trace, local, strict=True)):
            assert torch.equal(one, other), f"step {step} behind the synchronous ones"


class Branches(nn.Module):
    """Of which steps use one or both."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(16, 4)), nn.Parameter(torch.zeros(8, 8))

    def forward(self, of_a, of_b):
        return (self.a * of_a).sum() + ((self.b * of_b).sum() if of_b is not None else 0)


def with_an_unused_branch(rank, world, codec):
    """Of the branch what has been applied and is owed, and its gradients, all of them by all ranks."""
    net = Branches()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    sync = ranvier.attach(net, optimizer, compress=codec)
    generator = torch.Generator().manual_seed(rank)
    given = torch.zeros_like(net.b)
    for step in range(12):
        of_a = torch.randn(net.a.shape, generator=generator) if step % 4 == 0 else torch.zeros_like(net.a)
        of_b = torch.randn(net.b.shape, generator=generator) if step in (0, 7) and (step == 0 or rank == 0) else None
        optimizer.zero_grad()
        before = net.b.detach().clone()
        net(of_a, of_b).backward()
        optimizer.step()
        if step not in (0, 7):
            assert torch.equal(before, net.b), "nobody has used it"
        given += of_b if of_b is not None else 0
    owed = sync.state_dict()["coded"][0]["kept"][1]["residual"].view_as(given).clone()
    for each in (owed, given):
        torch.distributed.all_reduce(each)
    return -world * net.b.detach() + owed, given


@pytest.mark.parametrize("codec", ["topk:0.1+int8", "int4:ef=1", "sign", "powersgd:1", "thc:8", "switchml"])
@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_what_is_owed_to_a_parameter_waits_until_somebody_uses_it(backend, codec):
    for come, given in on_ranks(3, with_an_unused_branch, codec, backend=backend):
        assert torch.allclose(come, given, atol=1e-4)


def in_a_join(rank, world):
    ends = []
    for spec in ("bsp", "local:4"):
        for codec in ("none", "int8"):
            net = network()
            optimizer = optimizer_for("momentum", net)
            sync = ranvier.attach(net, optimizer, spec, compress=codec)
            train_unevenly(net, optimizer, sync, rank, range(len(EPOCHS)))
            sync.finish()
            ends.append(flat(net))
    return ends


def test_uneven_ranks_compress_too():
    ranks = on_ranks(WORLD, in_a_join, backend="ranvier")
    start = flat(network())
    for plain, coded in ((0, 1), (2, 3)):
        assert all(torch.equal(rank[coded], ranks[0][coded]) for rank in ranks)
        assert (ranks[0][coded] - ranks[0][plain]).norm() < 0.1 * (ranks[0][plain] - start).norm()


def with_two_momenta(rank, world):
    net = network()
    adam = torch.optim.Adam
    for spec in ("strong", "demo:8", "topk:0.1,momentum=0.9"):
        for make in (adam, torch.optim.AdamW, torch.optim.NAdam):
            with pytest.raises(ValueError, match=f"in the optimizer's place, and {make.__name__} has one of its own"):
                ranvier.attach(net, make(net.parameters(), 0.01), compress=spec)
        for optimizer in (torch.optim.SGD(net.parameters(), 0.01), adam(net.parameters(), 0.01, betas=(0.0, 0.999))):
            ranvier.attach(net, optimizer, compress=spec).finish()
    ranvier.attach(net, adam(net.parameters(), 0.01), compress="transformer").finish()
    return True


def test_a_codec_that_has_momentum_is_none_for_adam():
    assert on_ranks(2, with_two_momenta, backend="gloo") == [True] * 2


def constant_gradient(rank: int) -> torch.Tensor:
    return torch.randn(300, generator=torch.Generator().manual_seed(rank))


def one_parameter() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = nn.Module()
    net.weight = nn.Parameter(torch.zeros(300))
    return net, torch.optim.SGD(net.parameters(), lr=1)


def steps_of(net, optimizer, rank, count) -> torch.Tensor:
    """How far the last step went."""
    before = net.weight.detach().clone()
    for _ in range(count):
        before = net.weight.detach().clone()
        net.weight.grad = constant_gradient(rank)
        optimizer.step()
    return before - net.weight.detach()


def states_of_a_run(rank, world, spec):
    net, optimizer = one_parameter()
    sync = ranvier.attach(net, optimizer, compress=spec)
    steps_of(net, optimizer, rank, 5)
    return sync.state_dict()


def gone_on_with(rank, world, spec, states):
    net, optimizer = one_parameter()
    sync = ranvier.attach(net, optimizer, compress=spec)
    if rank < len(states):
        sync.load_state_dict(states[rank])
    else:
        sync.step = 5  # as a script does for whoever was not there
    moved = [steps_of(net, optimizer, rank, 1) for _ in range(60)]
    return net.weight.detach().clone(), torch.stack(moved[-10:]).mean(0), constant_gradient(rank)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize("spec", ["delta+topk:0.2+int8", "topk:0.2+int8", "thc:8", "powersgd:2"])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_a_run_of_more_or_fewer_ranks_begins_alike(before, after, spec, backend):
    states = on_ranks(before, states_of_a_run, spec, backend=backend)
    ends = on_ranks(after, gone_on_with, spec, states, backend=backend, limit=60)
    mean = sum(given for *_, given in ends) / after
    for weight, moved, _ in ends:
        assert torch.equal(weight, ends[0][0])
        if spec.startswith("delta"):
            assert (moved - mean).norm() < 0.05 * mean.norm(), "estimates follow the gradients of these ranks"


def begun_by_some(rank, world, spec, sync_spec, states):
    net, optimizer = one_parameter()
    sync = ranvier.attach(net, optimizer, sync_spec, compress=spec)
    if rank > 0:
        sync.load_state_dict(states[rank])
    with pytest.raises(ValueError, match="rank . goes on behind step . and rank . behind step .: load the states of one"):
        steps_of(net, optimizer, rank, 1)
    return True


def state_alone(rank, world, spec, sync_spec):
    net, optimizer = one_parameter()
    sync = ranvier.attach(net, optimizer, sync_spec, compress=spec)
    steps_of(net, optimizer, rank, 4)
    return sync.state_dict()


@pytest.mark.parametrize(("spec", "sync"), [("int8", "bsp"), ("none", "slowmo:5"), ("topk:0.1+int8", "local:2")])
def test_a_state_that_only_some_ranks_have_is_told_to_all(spec, sync):
    states = on_ranks(3, state_alone, spec, sync, backend="gloo")
    assert on_ranks(3, begun_by_some, spec, sync, states, backend="gloo", limit=30) == [True] * 3


def rolled_back(rank, world, spec, sync_spec):
    net, optimizer = one_parameter()
    sync = ranvier.attach(net, optimizer, sync_spec, compress=spec)
    begin, ends = copy.deepcopy(sync.state_dict()), []
    for _ in range(2):
        steps_of(net, optimizer, rank, 6)
        ends.append(net.weight.detach().clone())
        with torch.no_grad():
            net.weight.zero_()
        sync.load_state_dict(copy.deepcopy(begin))
    return torch.equal(*ends)


@pytest.mark.parametrize("sync", ["bsp", "local:2", "slowmo:2", "diloco:2", "local:2,delay=1"])
def test_a_state_of_the_beginning_takes_all_back(sync):
    assert all(on_ranks(2, rolled_back, "topk:0.1+int8", sync, backend="ranvier"))


def of_short_floats(rank, world, dtype):
    net = nn.Module()
    net.weight = nn.Parameter(torch.zeros(50, dtype=dtype))
    sync = ranvier.attach(net, optimizer := torch.optim.SGD(net.parameters(), lr=1), "local:2,adapt=0.01,most=16")
    for _ in range(64):
        net.weight.grad = torch.full((50,), 1e-4 * (1 if rank == 0 else -0.8), dtype=dtype)
        optimizer.step()
    return sync.rounds


def test_replicas_of_short_floats_have_parted_as_far():
    half, whole = (on_ranks(2, of_short_floats, dtype, backend="gloo") for dtype in (torch.float16, torch.float32))
    assert half == whole


def taken_behind_the_end(rank, world):
    net, optimizer = one_parameter()
    sync = ranvier.attach(net, optimizer, "gossip", compress="int8")
    steps_of(net, optimizer, rank, 3)
    sync.finish()
    state = sync.state_dict()
    sync = ranvier.attach(net, optimizer, "gossip", compress="int8")
    sync.load_state_dict(state)
    steps_of(net, optimizer, rank, 3)
    other = nn.Linear(3, 3)
    for spec, compress, words in (("bsp", "int8", "other"), ("gossip", "int8", "another model"), ("local:2", "int8", "other sizes")):
        kept = ranvier.attach(other, torch.optim.SGD(other.parameters(), 0.1), spec, compress=compress)
        with pytest.raises(ValueError, match=f"{words}|has 2: attach the same|had 300"):
            kept.load_state_dict(state | {"sync": spec} if spec == "gossip" else state_of(rank, spec))
        assert kept.step == 0
        kept.finish()
    return True


def state_of(rank, spec):
    net, optimizer = one_parameter()
    sync = ranvier.attach(net, optimizer, spec, compress="int8")
    steps_of(net, optimizer, rank, 2)
    sync.finish()
    return sync.state_dict()


def test_states_of_gossip_outlive_its_end_and_other_models_are_named():
    assert on_ranks(2, taken_behind_the_end, backend="ranvier") == [True] * 2


def with_other_defaults(rank, world):
    for spec, codec in (("bsp", "int8"), ("local:2", "powersgd:2"), ("async", "none"), ("group", "int8"), ("ad-psgd", "none")):
        ends = []
        for default, device in ((torch.float32, None), (torch.float64, "meta"), (torch.bfloat16, "meta")):
            net = network()
            optimizer = optimizer_for("momentum", net)
            torch.set_default_dtype(default)
            torch.set_default_device(device)
            sync = ranvier.attach(net, optimizer, spec, compress=codec)
            for _ in range(3):
                for parameter in net.parameters():
                    parameter.grad = torch.full_like(parameter, 1.0 + rank)
                optimizer.step()
            sync.finish()
            ends.append(flat(net))
            torch.set_default_device(None)
            torch.set_default_dtype(torch.float32)
        if spec in ("bsp", "local:2"):  # else it differs from run to run
            assert all(torch.equal(end, ends[0]) for end in ends), spec
    return True


def test_what_a_program_makes_its_default_type_and_device_is_its_own():
    assert all(on_ranks(2, with_other_defaults, backend="gloo"))


def of_who_speaks_for_nobody(rank, world):
    net, optimizer = one_parameter()
    sync = ranvier.attach(net, optimizer, "node:3", place="node=2", compress="int8")
    states = [None] * world
    dist.all_gather_object(states, sync.state_dict())
    with pytest.raises(ValueError, match="the state is of a rank that speaks for others, or of one that does not"):
        sync.load_state_dict(states[rank ^ 1])
    sync.finish()
    return True


def test_a_state_of_another_part_in_the_codec_is_called_so():
    assert all(on_ranks(4, of_who_speaks_for_nobody, backend="gloo"))
