"""Compressed gradients under DistributedDataParallel, over gloo and over ranvier."""

import pickle
from datetime import timedelta

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from ranvier._groups import timeout_of
from ranvier._memory import Memories
from ranvier._wire import Wire
from ranvier.hooks import compress
from test_ddp import BATCH, model, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train_with(rank, world, spec, options):
    net = DistributedDataParallel(model(), **options)
    state, hook = ranvier.hook(spec)
    net.register_comm_hook(state, hook)
    parameters = train(net, slice(rank * BATCH // world, (rank + 1) * BATCH // world))
    return parameters, state.bytes_sent, state.plain_buckets


# Small buckets are formed anew after the first step, and what is held back has to follow.
@pytest.mark.parametrize(
    ("backend", "spec", "near", "options"),
    [
        ("gloo", "bf16", 0.01, {}),
        ("gloo", "hadamard:32+int4+rans", 0.1, {"bucket_cap_mb": 0.01}),
        ("gloo", "topk:0.1+int8", 0.6, {"bucket_cap_mb": 0.01}),
        ("gloo", "powersgd:8", 0.6, {"bucket_cap_mb": 0.01}),
        ("ranvier", "acpsgd:8+bf16", 0.6, {}),
        ("ranvier", "thc:8", 0.2, {"bucket_cap_mb": 0.01}),
        # DDP then has a collective of its own at the end of each backward, in no common order with the codes.
        ("ranvier", "int8", 0.1, {"bucket_cap_mb": 0.01, "find_unused_parameters": True}),
        ("gloo", "delta+int8:by=all_gather", 0.1, {"bucket_cap_mb": 0.01}),
        ("ranvier", "hadamard:32+int4+rans", 0.1, {}),
    ],
)
def test_ranks_agree_in_every_bit_and_train_nearly_as_without(backend, spec, near, options):
    runs = on_ranks(2, train_with, spec, options, backend=backend)
    alone = train(model(), slice(None))
    start = torch.cat([p.detach().flatten() for p in model().parameters()])
    assert torch.equal(runs[0][0], runs[1][0])
    assert (runs[0][0] - alone).norm() < near * (alone - start).norm()
    assert runs[0][2] == 0


def test_codes_are_as_short_as_they_say():
    bf16, int4 = (on_ranks(2, train_with, spec, {}, backend="gloo")[0][1] for spec in ("bf16", "int4:ef=0"))
    assert bf16 / int4 == pytest.approx(16 / 4.25, rel=0.02)


def spoiled(rank, world, spec):
    net = DistributedDataParallel(nn.Linear(64, 8))
    state, hook = ranvier.hook(spec)
    net.register_comm_hook(state, hook)
    net(torch.full((2, 64), float("nan") if rank == 1 else 1.0)).sum().backward()
    assert net.module.weight.grad.isnan().all()
    assert net.module.bias.grad.isfinite().all()
    net.zero_grad()
    net(torch.ones(2, 64)).sum().backward()
    return net.module.weight.grad, state.plain_buckets


@pytest.mark.parametrize("spec", ["int4", "dgc:1+int8"])  # dgc sends everything, and so delivers no momentum
def test_what_is_not_finite_goes_plain_and_spoils_nothing(spec):
    for gradient, plain in on_ranks(2, spoiled, spec, backend="gloo"):
        assert plain == 1
        torch.testing.assert_close(gradient, torch.full((8, 64), 2.0), rtol=0.02, atol=0.02)


def halves(rank, world):
    net = DistributedDataParallel(nn.Linear(64, 8).bfloat16())
    state, hook = ranvier.hook("int8")
    net.register_comm_hook(state, hook)
    net(torch.ones(2, 64, dtype=torch.bfloat16)).sum().backward()
    return net.module.weight.grad


def test_gradients_of_16_bits_are_encoded_as_they_are():
    for gradient in on_ranks(2, halves, backend="gloo"):
        assert gradient.dtype == torch.bfloat16
        torch.testing.assert_close(gradient.float(), torch.full((8, 64), 2.0), rtol=0.02, atol=0.02)


def clipped(rank, world):
    net = DistributedDataParallel(nn.Linear(100, 1))  # the bias, of norm 1, is in the same bucket, and no part of it
    net.register_comm_hook(*ranvier.hook("dgc:1,momentum=0,clip=6"))
    net(torch.full((1, 100), (rank + 1) / 8)).sum().backward()
    return net.module.weight.grad


def test_dgc_clips_each_ranks_gradients_to_the_norm_over_the_root_of_the_ranks():
    for gradient in on_ranks(4, clipped, backend="gloo"):
        torch.testing.assert_close(gradient, torch.full((1, 100), (1 / 8 + 2 / 8 + 0.3 + 0.3) / 4))


def large(rank, world):
    net = DistributedDataParallel(nn.Linear(64, 8))
    net.register_comm_hook(*ranvier.hook("fp16"))
    net(torch.full((2, 64), 15000.0)).sum().backward()
    return net.module.weight.grad


@pytest.mark.parametrize("world", [3, 4])
def test_fp16_holds_averages_whose_sums_it_does_not(world):
    for gradient in on_ranks(world, large, backend="gloo"):
        torch.testing.assert_close(gradient, torch.full((8, 64), 30000.0), rtol=2**-10, atol=0)


def alone(rank, world, spec, saved):
    layer = nn.Linear(50, 4, bias=False)
    net = DistributedDataParallel(layer)
    state, hook = ranvier.hook(spec)
    state.load_state_dict(layer, saved)
    net.register_comm_hook(state, hook)
    gradients = []
    for factor in (float("nan"), 1.0, 1.0):
        net.zero_grad()
        (net(torch.ones(1, 50)).sum() * factor).backward()
        gradients.append(layer.weight.grad.clone())
    return gradients


@pytest.mark.parametrize("spec", ["topk:0.1", "dgc:0.1,momentum=0.5", "sign:momentum=0.5", "thc:8", "switchml", "powersgd:4", "acpsgd:4", "delta+topk:1", "none"])
def test_one_rank_alone_pays_what_it_owes(spec):
    residual = torch.linspace(-1, 1, 200)
    velocity = torch.full((200,), 2.0 if "momentum" in spec else 0.0)
    record = {"size": 200, "step": 3, "residual": residual, "velocity": velocity}
    saved = {"number": 3, "parameters": {"weight": record}}
    ((spoilt, first, second),) = on_ranks(1, alone, spec, saved, backend="gloo")
    momentum = 0.5 if "momentum" in spec else 0.0
    assert spoilt.isnan().all()
    torch.testing.assert_close(first.flatten(), 1 + momentum * velocity + residual)
    torch.testing.assert_close(second.flatten(), 1 + momentum * (1 + momentum * velocity))


def with_momentum(rank, world, spec):
    layer = nn.Linear(2000, 1, bias=False)
    net = DistributedDataParallel(layer)
    state, hook = ranvier.hook(spec)
    net.register_comm_hook(state, hook)
    total = torch.zeros(2000)
    for step in range(3):
        net.zero_grad()
        inputs = torch.ones(1, 2000)
        if step == 1 and rank == 1:
            inputs[0, 0] = 1e20
        net(inputs).sum().backward()
        total += layer.weight.grad[0]
    return total, state.plain_buckets


@pytest.mark.parametrize("spec", ["fp32:momentum=0.5", "topk:1,momentum=0.5,by=reduce_scatter+fp32"])
def test_momentum_of_a_step_that_goes_plain_is_paid_in_the_next_one(spec):
    for total, plain in on_ranks(2, with_momentum, spec, backend="gloo"):
        assert plain > 0
        torch.testing.assert_close(total[1500:], torch.full((500,), 1 + 1.5 + 1.75))


def kept(rank, world):
    net = DistributedDataParallel(nn.Linear(50, 4))
    state, hook = ranvier.hook("topk:0.1")
    net.register_comm_hook(state, hook)
    net(torch.randn(3, 50)).square().sum().backward()
    saved = state.state_dict(net.module)
    residual = saved["parameters"]["weight"]["residual"]
    assert residual.count_nonzero() > 0
    again, _ = ranvier.hook("int4")  # what is held back is owed, whatever the codec
    again.load_state_dict(net.module, saved)
    assert torch.equal(again.state_dict(net.module)["parameters"]["weight"]["residual"], residual)
    with pytest.raises(ValueError, match="what 'int4' holds back of it was saved, with another model"):
        again.load_state_dict(nn.Linear(5, 4), saved)
    return True


def test_what_is_held_back_can_be_saved():
    assert all(on_ranks(2, kept, backend="gloo"))


def with_other_ranks(rank, world, saved, steps, factor, is_pickled):
    """By spec the state in the end, the last average and the sum of all. A rank for which nothing was saved has nothing."""
    ends = {}
    for spec in ("topk:0.1", "thc:8", "acpsgd:1", "randk:0.1+bf16", "delta+topk:0.2", "int4:ef=21,by=all_gather"):
        layer = nn.Linear(50, 8)  # whose bias is too small for factors
        net = DistributedDataParallel(layer)
        if rank < len(saved) and is_pickled:
            state, hook = pickle.loads(saved[rank][spec][3]), compress
        else:
            state, hook = ranvier.hook(spec)
            if rank < len(saved):
                state.load_state_dict(layer, saved[rank][spec][0])
        net.register_comm_hook(state, hook)
        inputs = torch.randn(8, 50, generator=torch.Generator().manual_seed(rank))
        total = torch.zeros(8, 50)
        for _ in range(steps):
            net.zero_grad()
            (net(inputs).diagonal().sum() * factor).backward()  # whose gradient is the inputs
            total += layer.weight.grad
        ends[spec] = state.state_dict(layer), layer.weight.grad, total, pickle.dumps(state)
    return ends


@pytest.mark.parametrize(("before", "after", "is_pickled"), [(3, 2, False), (2, 3, False), (2, 3, True)])
def test_with_other_ranks_what_is_owed_is_paid_and_changes_are_of_those_who_are_there(before, after, is_pickled):
    saved = on_ranks(before, with_other_ranks, [], 7, 1.0, is_pickled, backend="gloo")  # odd: factors take turns
    idle = on_ranks(after, with_other_ranks, saved, 120, 0.0, is_pickled, backend="gloo")
    for spec, (_, last, total, _) in idle[0].items():
        assert all(torch.equal(end[spec][2], total) for end in idle), spec
        if spec.startswith("delta") or "ef=21" in spec:
            assert last.norm() < 0.01, spec  # the average of zeros
            continue
        there = range(min(before, after))
        owed = sum(saved[rank][spec][0]["parameters"]["weight"]["residual"] for rank in there).view(8, 50)
        assert owed.norm() > 0.1, spec
        assert (total * after - owed).norm() < 0.05 * owed.norm(), spec


def of_values_then_factors(rank, world):
    layer = nn.Linear(50, 4)
    state, hook = ranvier.hook("acpsgd:1")
    if rank < 2:
        record = {"size": 200, "step": 3, "residual": torch.zeros(200)}
        state.load_state_dict(layer, {"world": 2, "number": 3, "parameters": {"weight": record}})
    net = DistributedDataParallel(layer)
    net.register_comm_hook(state, hook)
    total = torch.zeros(200)
    for _ in range(4):
        net.zero_grad()
        net(torch.ones(1, 50)).sum().backward()
        total += layer.weight.grad.flatten()
    return total, state.state_dict(layer)["parameters"]["weight"]["residual"]


def test_with_more_ranks_factors_follow_another_codec():
    ranks = on_ranks(3, of_values_then_factors, backend="gloo")
    assert all(torch.equal(total, ranks[0][0]) for total, _ in ranks)
    owed = sum(residual for _, residual in ranks)
    torch.testing.assert_close(3 * ranks[0][0] + owed, torch.full((200,), 12.0), rtol=1e-4, atol=1e-4)


def of_values_then_another(rank, world, spec):
    layer = nn.Linear(50, 4, bias=False)
    first, _ = ranvier.hook("topk:0.1")
    residual = torch.linspace(-1, 1, 200) * (rank + 1)
    first.load_state_dict(layer, {"number": 3, "parameters": {"weight": {"size": 200, "step": 3, "residual": residual}}})
    state, hook = ranvier.hook(spec)
    state.load_state_dict(layer, first.state_dict(layer))
    net = DistributedDataParallel(layer)
    if spec != "none":  # a step that is not finite pays nothing, and a checkpoint behind it has what is owed
        net.register_comm_hook(state, hook)
        net(torch.full((1, 50), torch.inf)).sum().backward()
        kept = state.state_dict(layer)
        state, hook = ranvier.hook(spec)
        state.load_state_dict(layer, kept)
        net = DistributedDataParallel(layer)
    net.register_comm_hook(state, hook)
    gradients = []
    for _ in range(2):
        net.zero_grad()
        net(torch.ones(1, 50)).sum().backward()
        gradients.append(layer.weight.grad.flatten().clone())
    return gradients


@pytest.mark.parametrize("spec", ["delta+topk:1", "none", "bf16"])
def test_what_a_codec_of_values_owed_is_paid_once_by_who_holds_nothing_back(spec):
    for once, then in on_ranks(2, of_values_then_another, spec, backend="gloo"):
        torch.testing.assert_close(once, 1 + 1.5 * torch.linspace(-1, 1, 200), rtol=0.02, atol=0.02)
        torch.testing.assert_close(then, torch.ones(200))


def of_another_model(rank, world):
    net = DistributedDataParallel(nn.Linear(50, 4))
    state, hook = ranvier.hook("topk:0.1")
    net.register_comm_hook(state, hook)
    net(torch.randn(3, 50)).sum().backward()
    net = DistributedDataParallel(nn.Linear(40, 4))
    net.register_comm_hook(pickle.loads(pickle.dumps(state)), hook)
    with pytest.raises(RuntimeError, match="ValueError: parameter 0 .* has 160 values and had 200 .* 'topk:0.1' .* another model"):
        net(torch.randn(3, 40)).sum().backward()
    return True


def huge(rank, world, spec):
    """One huge gradient, then constant ones: their last average."""
    layer = nn.Linear(50, 4, bias=False)
    net = DistributedDataParallel(layer)
    net.register_comm_hook(*ranvier.hook(spec))
    for step in range(40):
        net.zero_grad()
        (net(torch.full((1, 50), rank + 1.0)).sum() * (1e9 if step == 2 else 1.0)).backward()
    return layer.weight.grad


@pytest.mark.parametrize("spec", ["delta+int8", "delta+topk:1,by=all_gather"])
def test_changes_are_exact_again_after_a_huge_gradient(spec):
    for average in on_ranks(2, huge, spec, backend="gloo"):
        torch.testing.assert_close(average, torch.full((4, 50), 1.5), rtol=0, atol=5e-3)


def test_a_pickled_state_of_another_model_says_so():
    assert all(on_ranks(2, of_another_model, backend="gloo"))


def of_two_of_three(rank, world):
    pair = dist.new_group([0, 2])
    if rank == 1:
        return None
    net = DistributedDataParallel(nn.Linear(64, 8), process_group=pair)
    net.register_comm_hook(*ranvier.hook("int8", pair))
    net(torch.full((2, 64), float(rank))).sum().backward()
    return net.module.weight.grad


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_a_hook_serves_a_group_of_some_ranks(backend):
    for gradient in on_ranks(3, of_two_of_three, backend=backend)[::2]:
        torch.testing.assert_close(gradient, torch.full((8, 64), 2.0), rtol=0.02, atol=0.02)


def among_groups_of_some_ranks(rank, world, case):
    """torch numbers groups by how many this rank is in, or was."""
    if case == "one rank has a group of its own":
        dist.new_group([0])
    whole = dist.new_group()
    for group in (whole, None):
        net = nn.Linear(64, 8)
        state, hook = ranvier.hook("int8", group)
        net = DistributedDataParallel(net, process_group=group)
        net.register_comm_hook(state, hook)
        net(torch.full((2, 64), float(rank))).sum().backward()
        torch.testing.assert_close(net.module.weight.grad, torch.full((8, 64), 1.0), rtol=0.02, atol=0.02)
        if group is not None:
            dist.destroy_process_group(group)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize("case", ["one rank has a group of its own", "a group was destroyed"])
def test_a_hook_does_not_mind_which_groups_a_rank_has(backend, case):
    on_ranks(2, among_groups_of_some_ranks, case, backend=backend)


def of_unknown_ranks(rank, world):
    """Nobody gets to the others: they would wait there."""
    gone = dist.new_group()
    dist.destroy_process_group(gone)
    refused = [(gone, "torch.distributed does not know the ranks")]
    elsewhere = dist.new_group([1])
    if rank == 0:
        refused.append((elsewhere, "this rank is not in the group"))
    if dist.get_backend() == "ranvier":  # gloo's ranks do not always meet there
        refused.append((dist.group.WORLD.split_group([0, 1], group_name="pair"), "does not know the ranks"))
    net = nn.Linear(4, 4)
    for group, word in refused:
        with pytest.raises(ValueError, match=word):
            ranvier.hook("int8", group)
        for policy in ("local:4", "async"):
            with pytest.raises(ValueError, match=word):
                ranvier.attach(net, torch.optim.SGD(net.parameters(), lr=0.1), sync=policy, group=group)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_a_group_of_ranks_that_torch_does_not_know_is_refused(backend):
    on_ranks(2, of_unknown_ranks, backend=backend)


def of_a_name_that_came_again(rank, world, folder):
    name = dist.group.WORLD.group_name
    dist.destroy_process_group()
    limit = timedelta(seconds=77)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=limit)
    assert dist.group.WORLD.group_name == name
    wire = Wire(dist.group.WORLD)
    assert timeout_of(wire.group) == limit
    dist.barrier(wire.group)  # gloo fails where a peer goes that has connected before this rank has


def of_a_timeout_that_was_changed(rank, world):
    group = dist.new_group([0, 1], timeout=timedelta(seconds=20))
    assert timeout_of(Wire(group).group) == timedelta(seconds=20)
    group.set_timeout(timedelta(seconds=7))
    wire = Wire(group)
    assert timeout_of(wire.group) == timedelta(seconds=7)
    dist.barrier(wire.group)


@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_a_hook_has_the_timeout_that_its_group_has_now(level):
    on_ranks(2, of_a_timeout_that_was_changed, environment={"TORCH_DISTRIBUTED_DEBUG": level})


def test_a_hook_takes_nothing_of_an_earlier_group_of_that_name(tmp_path):
    on_ranks(2, of_a_name_that_came_again, str(tmp_path))


def of_other_types(rank, world):
    net = nn.Linear(8, 4)
    with pytest.raises(TypeError, match="a group is a torch.distributed.ProcessGroup, and this is 3: .* new_group"):
        ranvier.hook("int8", 3)
    with pytest.raises(TypeError, match="a torch.amp.GradScaler as scaler, and this is 5: .* leave it out"):
        ranvier.hook("int8", scaler=5)
    with pytest.raises(TypeError, match="a group is a torch.distributed.ProcessGroup, and this is 'x'"):
        ranvier.attach(net, torch.optim.SGD(net.parameters(), 0.1), group="x")
    for none in (3, "x"):
        with pytest.raises(TypeError, match=f"a group is a torch.distributed.ProcessGroup, and this is {none!r}"):
            ranvier.lost_share(none)
    with pytest.raises(ValueError, match="this rank is not in the group"):
        ranvier.lost_share(dist.GroupMember.NON_GROUP_MEMBER)
    state, _ = ranvier.hook("int8")
    with pytest.raises(TypeError, match=r"^state_dict\(\) takes a torch.nn.Module, and this is None: .* ddp.module"):
        state.state_dict(None)
    with pytest.raises(TypeError, match=r"load_state_dict\(\) takes a torch.nn.Module, and this is \{\}"):
        state.load_state_dict({}, net)
    for spec in ("bsp", "async"):
        sync = ranvier.attach(net, torch.optim.SGD(net.parameters(), 0.1), spec)
        with pytest.raises(ValueError, match="this is no state of .* load what state_dict"):
            sync.load_state_dict(None)
        sync.finish()


def test_what_is_of_another_type_is_refused_at_the_call():
    on_ranks(2, of_other_types)


def refused(rank, world):
    with pytest.raises(ValueError, match="did you mean 'int8'"):
        ranvier.hook("int9")
    for none in (None, 5):
        with pytest.raises(TypeError, match=f"named by a str, and this is {none}: write 'int8'"):
            ranvier.hook(none)
    with pytest.raises(ValueError, match="the same spec on every rank"):
        ranvier.hook("int4" if rank == 0 else "int8")
    return True


def test_wrong_specs_are_refused_before_training():
    assert all(on_ranks(2, refused, backend="gloo"))


def mistaken(rank, world):
    net = DistributedDataParallel(nn.Linear(50, 4))
    state, hook = ranvier.hook("topk:0.1")
    net.register_comm_hook(state, hook)
    net(torch.randn(3, 50)).sum().backward()
    again, _ = ranvier.hook("topk:0.1")
    with pytest.raises(ValueError, match="'module.weight', of which .* is no parameter of this Linear.* which is ddp.module"):
        again.load_state_dict(net.module, state.state_dict(net))
    saved = state.state_dict(net.module)
    for wrong, lacking in (({"model": saved}, "parameters"), ({"parameters": {}}, "number"), (None, "parameters")):
        with pytest.raises(ValueError, match=f"has no '{lacking}': of a checkpoint"):
            again.load_state_dict(net.module, wrong)
    del saved["parameters"]["bias"]["size"]
    with pytest.raises(ValueError, match="what was saved of bias has no 'size'"):
        again.load_state_dict(net.module, saved)
    assert again.state_dict(net.module)["parameters"] == {}, "nothing was taken up"


def test_a_state_of_another_module_or_of_none_is_refused_whole():
    on_ranks(1, mistaken, backend="gloo")


def wide(rank, world, spec, factor):
    net = DistributedDataParallel(nn.Linear(64, 8).double())
    net.register_comm_hook(*ranvier.hook(spec))
    net(torch.full((1, 64), factor * (rank + 1) / 3, dtype=torch.float64)).sum().backward()
    return net.module.weight.grad


# What no code holds goes plain, and 1e300 is more than float32 holds.
@pytest.mark.parametrize(("spec", "factor"), [("none", 1.0), ("int8", 1e300)])
def test_float64_that_goes_plain_stays_float64(spec, factor):
    for gradient in on_ranks(2, wide, spec, factor, backend="gloo"):
        torch.testing.assert_close(gradient, torch.full((8, 64), factor / 2, dtype=torch.float64), rtol=1e-15, atol=0)


def test_codecs_take_float64_as_float32():
    for gradient in on_ranks(2, wide, "int8", 1.0, backend="gloo"):
        torch.testing.assert_close(gradient, torch.full((8, 64), 0.5, dtype=torch.float64), rtol=0.02, atol=0.02)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def forward(self, values):
        return (self.weight * values).sum()


def complex_numbers(rank, world):
    net = DistributedDataParallel(Scaled())
    net.register_comm_hook(*ranvier.hook("none"))
    net(torch.full((3,), complex(rank, 1))).imag.backward()
    torch.testing.assert_close(net.module.weight.grad, torch.full((3,), complex(1, 0.5)))
    net = DistributedDataParallel(Scaled())
    net.register_comm_hook(*ranvier.hook("int8"))
    with pytest.raises(TypeError, match="codecs are of real numbers, and gradients here are complex"):
        net(torch.ones(3)).real.backward()


def test_complex_gradients_go_plain_or_not_at_all():
    on_ranks(2, complex_numbers, backend="gloo")


def sparse(rank, world, spec):
    net = DistributedDataParallel(nn.Embedding(10, 4, sparse=True))
    net.register_comm_hook(*ranvier.hook(spec))
    with pytest.raises(ValueError, match="of 10 x 4 values is sparse, .* with sparse=False"):
        net(torch.tensor([1, 2])).sum().backward()


@pytest.mark.parametrize("spec", ["none", "int8"])
def test_sparse_gradients_are_refused_in_a_sentence(spec):
    on_ranks(2, sparse, spec, backend="gloo")


class Vector(nn.Module):
    """Whose gradients are what it is given."""

    def __init__(self, size):
        super().__init__()
        self.values = nn.Parameter(torch.zeros(size))

    def forward(self, gradient):
        return (self.values * gradient).sum()


def averaged(rank, world, spec, size, kinds):
    net = DistributedDataParallel(Vector(size))
    state, hook = ranvier.hook(spec)
    net.register_comm_hook(state, hook)
    averages, sent = [], []
    for step, kind in enumerate(kinds):
        net.zero_grad()
        before = state.bytes_sent
        net(gradient_of(rank, size, kind, step)).backward()
        averages.append(net.module.values.grad.clone())
        sent.append(state.bytes_sent - before)
    return averages, sent, state.plain_buckets


def gradient_of(rank, size, kind, step):
    random = torch.randn(size, generator=torch.Generator().manual_seed(10 * step + rank))
    if kind == "zeros":
        return torch.zeros(size)
    if kind == "NaN":
        random[size // 2 + rank] = float("nan")
    return random if rank == 0 or kind != "long on one rank" else torch.zeros(size)


# "lossless" gives the sum in the order of ranks, whatever the way of its codes.
@pytest.mark.parametrize("way", ["reduce_scatter", "all_gather"])
@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize("size", [3, 20_000, 300_000])
def test_codes_of_other_lengths_than_the_step_before_arrive_whole(backend, size, way):
    kinds = ["random", "zeros", "zeros", "long on one rank", "random", "zeros", "random"]
    for averages, _, plain in on_ranks(3, averaged, f"bf16+lossless:by={way}", size, kinds, backend=backend):
        assert plain == 0
        for step, (kind, average) in enumerate(zip(kinds, averages, strict=True)):
            exact = sum(gradient_of(rank, size, kind, step) for rank in range(3)) / 3
            torch.testing.assert_close(average, exact, rtol=0.01, atol=0.02)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_slices_of_a_bucket_are_one_average_and_one_goes_plain_alone(backend):
    spec, size, kinds = "qsgd:127,block=256+rans", 3_000_000, ["random", "NaN", "random", "random"]
    ranks = on_ranks(2, averaged, spec, size, kinds, backend=backend)
    for averages, others in zip(ranks[0][0], ranks[1][0], strict=True):
        torch.testing.assert_close(averages, others, rtol=0, atol=0, equal_nan=True)
    for step, kind in enumerate(kinds):
        average, exact = ranks[0][0][step], (gradient_of(0, size, kind, step) + gradient_of(1, size, kind, step)) / 2
        assert bool(average.isfinite().all()) == (kind != "NaN")
        torch.testing.assert_close(average, exact, rtol=0, atol=0.1, equal_nan=True)
    assert ranks[0][2] == ranks[1][2] == 1
    # What goes plain is a slice, and of codes as many bytes go as they have, and a sixteenth of room.
    _, plain, *coded = ranks[0][1]
    assert plain < 2 * coded[0] and coded[0] == pytest.approx(coded[1], rel=0.02)
    assert coded[0] < size


def under_fsdp(rank, world, strategy):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy  # takes a second to import

    net = FullyShardedDataParallel(nn.Linear(8, 4), sharding_strategy=ShardingStrategy[strategy], device_id=torch.device("cpu"))
    state, hook = ranvier.hook("bf16")
    net.register_comm_hook(state, hook)
    with pytest.raises(TypeError, match="ranvier.hook is for DistributedDataParallel.* leave the hook out"):
        net(torch.ones(2, 8)).sum().backward()
    return True


def test_what_calls_it_with_a_tuple_in_a_buckets_place_is_told_so():
    """As torch.compile's python_reducer does."""
    with pytest.raises(TypeError, match="python_reducer"):
        ranvier.hooks.compress(None, (torch.ones(2),))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strategy", ["NO_SHARD", "FULL_SHARD"])
def test_fsdp_is_told_that_it_has_no_buckets(strategy):
    assert on_ranks(2, under_fsdp, strategy, backend="gloo") == [True] * 2


def with_states_of_some(rank, world, spec):
    net = model()
    ddp = DistributedDataParallel(net)
    state, hook = ranvier.hook(spec)
    ddp.register_comm_hook(state, hook)
    batch = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    train(ddp, batch)
    kept = state.state_dict(net)
    state, hook = ranvier.hook(spec)
    if rank != 1:  # whose disk was lost
        state.load_state_dict(net, kept)
    ddp = DistributedDataParallel(net)
    ddp.register_comm_hook(state, hook)
    return train(ddp, batch)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize("spec", ["topk:0.1+int8", "thc:8", "acpsgd:2", "delta+int8"])
def test_a_rank_that_comes_without_its_state_is_no_other_world(spec, backend):
    ends = on_ranks(2, with_states_of_some, spec, backend=backend, limit=60)
    assert torch.equal(*ends) and ends[0].isfinite().all()


def rolled_back(rank, world, spec):
    net = model()
    ddp = DistributedDataParallel(net, find_unused_parameters=True)  # which forms buckets once
    state, hook = ranvier.hook(spec)
    ddp.register_comm_hook(state, hook)
    begin, first = state.state_dict(net), {name: each.clone() for name, each in net.state_dict().items()}
    ends = []
    for _ in range(2):
        part = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
        ends.append(train(ddp, part, momentum=0 if state.momentum else 0.9))
        net.load_state_dict(first)
        state.load_state_dict(net, begin)
    with pytest.raises(ValueError, match="no dict of names"):
        state.load_state_dict(net, {"parameters": None, "number": 1})
    records = {name: {"size": p.numel(), "step": 1, "residual": torch.zeros(3)} for name, p in net.named_parameters()}
    with pytest.raises(ValueError, match="has no 'residual' of its"):
        state.load_state_dict(net, {"parameters": records, "number": 1})
    return torch.equal(*ends)


@pytest.mark.parametrize("spec", ["topk:0.1+int8", "dgc:0.1", "delta+int8", "powersgd:2"])
def test_a_state_of_the_beginning_takes_all_back(spec):
    assert all(on_ranks(2, rolled_back, spec, backend="ranvier"))


def test_what_is_held_back_follows_a_parameter_back_into_a_bucket_of_before():
    first, second, third = (torch.zeros(2) for _ in range(3))
    memories, kinds = Memories("int8"), ("residual",)
    memories.of([first, second], kinds).residual.fill_(1)
    memories.of([second, third], kinds).residual.fill_(5)  # the first one was frozen
    back = memories.of([first, second], kinds)
    assert back.residual.tolist() == [1, 1, 5, 5]
    assert memories.of([first, second], kinds) is back
