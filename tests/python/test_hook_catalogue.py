"""Every codec that there is under DistributedDataParallel: ranks agree, and a checkpoint in between changes nothing."""

import io
import json
import subprocess
import sys

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from ranvier import _exchanges
from test_ddp import BATCH, batches, model
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Each stage of `ranvier codec list` in a spec that it may stand in; and some that keep more than others.
SPECS = {
    "powersgd": "powersgd:2",
    "acpsgd": "acpsgd:2",
    "thc": "thc:8",
    "switchml": "switchml",
    "demo": "demo:8,chunk=16",
    "topk": "topk:0.1",
    "sidco": "sidco:0.1+int8",
    "dgc": "dgc:0.05,warmup=3",
    "randk": "randk:0.1+bf16",
    "threshold": "threshold:0.001",
    "delta": "delta+int8",
    "normalize": "normalize+qsgd:2,rounding=nearest+rans",
    "hadamard": "hadamard:32+int4+rans",
    "dct": "dct+topk:0.1",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8:e4m3",
    "mx": "mx:e4m3",
    "natural": "natural",
    "int8": "int8",
    "int4": "int4",
    "int2": "int2",
    "qsgd": "qsgd:7",
    "terngrad": "terngrad",
    "sign": "sign",
    "eden": "eden:2",
    "rans": "int8+rans",
    "huffman": "int8+huffman",
    "range": "int4+range",
    "zstd": "int4+zstd",
    "elias_gamma": "qsgd:7+elias_gamma",
    "elias_delta": "qsgd:7+elias_delta",
    "golomb_rice": "qsgd:7+golomb_rice",
    "lossless": "lossless",
}
PRESETS = ("safe", "strong", "extreme", "transformer")
OTHERS = (
    *("none", "powersgd:4+bf16", "thc:4", "delta+topk:0.1", "topk:0.1+int8:by=all_gather"),
    *("topk:0.1,layers=0.5", "dgc:0.05,layers=1,clip=0.5", "sign:momentum=0.9"),
)
STEPS = 4


def test_the_catalogue_is_whole():
    command = [sys.executable, "-m", "ranvier", "codec", "list", "--json", "-"]
    catalogue = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert {stage["name"] for stage in catalogue["stages"]} == set(SPECS)
    assert {preset["name"] for preset in catalogue["presets"]} == set(PRESETS)


class Training:
    """A model whose buckets stay what they are: find_unused_parameters keeps DDP from forming them anew."""

    def __init__(self, rank, world, state, hook):
        self.net = DistributedDataParallel(model(), bucket_cap_mb=0.03, find_unused_parameters=True)
        self.state = state
        self.net.register_comm_hook(state, hook)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)
        self.part = slice(rank * BATCH // world, (rank + 1) * BATCH // world)

    def steps(self, which, default=torch.float32):
        """`default` is the program's default type where gradients are averaged."""
        for images, labels in batches()[which]:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.net(images[self.part]), labels[self.part])
            torch.set_default_dtype(default)
            loss.backward()
            torch.set_default_dtype(torch.float32)
            self.optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in self.net.parameters()])


def saved_and_loaded(what, **options):
    file = io.BytesIO()
    torch.save(what, file)
    file.seek(0)
    return torch.load(file, **options)


def trained_with_all(rank, world, specs):
    return [trained(rank, world, spec) for spec in specs]


def trained(rank, world, spec):
    """The end without a stop; with one, other default types and state_dict; likewise with a pickled state; and how many buckets
    went plain."""
    whole = Training(rank, world, *ranvier.hook(spec))
    ends = [whole.steps(slice(STEPS))]

    first = Training(rank, world, *ranvier.hook(spec))
    first.steps(slice(STEPS // 2), torch.float64)
    by_name = saved_and_loaded({"hook": first.state.state_dict(first.net.module), "model": first.net.module.state_dict()})
    pickled = saved_and_loaded(ranvier.hook(spec)[1:] + (first.state,), weights_only=False)
    for state in (ranvier.hook(spec)[0], pickled[1]):
        again = Training(rank, world, state, pickled[0])
        again.net.module.load_state_dict(by_name["model"])
        if state is not pickled[1]:
            state.load_state_dict(again.net.module, by_name["hook"])
        ends.append(again.steps(slice(STEPS // 2, STEPS), torch.bfloat16))
    return ends, whole.state.plain_buckets


ALL = [*SPECS.values(), *PRESETS, *OTHERS]
TOGETHER = 5  # of them train in the same processes: to start some is what takes time


@pytest.mark.parametrize("at", range(0, len(ALL), TOGETHER), ids=lambda at: " ".join(ALL[at : at + TOGETHER]))
def test_ranks_agree_and_a_checkpoint_changes_nothing(at):
    specs, backend = ALL[at : at + TOGETHER], ("gloo", "ranvier")[at // TOGETHER % 2]  # hooks run over any
    start = torch.cat([parameter.detach().flatten() for parameter in model().parameters()])
    ranks = on_ranks(2, trained_with_all, specs, backend=backend)
    for spec, ((end, by_name, pickled), plain), (others, _) in zip(specs, *ranks, strict=True):
        assert torch.equal(end, others[0]), f"{spec}: ranks agree in every bit"
        assert end.isfinite().all() and not torch.equal(end, start) and plain == 0, spec
        assert torch.equal(by_name, end), f"{spec}: state_dict and load_state_dict"
        assert torch.equal(pickled, end), f"{spec}: torch.save of the state"


def compressed(rank, world, specs):
    sent, ends = [], []
    for spec in specs:
        training = Training(rank, world, *ranvier.hook(spec))
        ends.append(training.steps(slice(2)))
        sent.append(training.state.bytes_sent)
    return sent, ends


def test_what_is_added_up_in_transit_takes_as_few_bytes_as_it_says():
    ranks = on_ranks(3, compressed, ["none", "powersgd:2", "acpsgd:2", "thc:8", "switchml"])
    floats, powersgd, acpsgd, thc, switchml = ranks[0][0]
    for ends in zip(*(ends for _, ends in ranks), strict=True):
        assert all(torch.equal(ends[0], end) for end in ends), "ranks agree in every bit"
    assert powersgd < 0.4 * floats and acpsgd < 0.6 * powersgd
    assert switchml == pytest.approx(floats / 4 * (1 + 4 / 1024), rel=0.02)
    assert thc == pytest.approx(floats * (1 + 1 / 4) / 2, rel=0.02)  # the first of two steps goes as floats


def too_many(rank, world):
    with pytest.raises(ValueError, match="no sum of 16 ranks; write thc:8"):
        _exchanges.make_exchange("thc:4", 16)
    with pytest.raises(ValueError, match="write bf16 or fp16 behind 'powersgd'"):
        ranvier.hook("powersgd:4+int4")
    return True


def test_what_cannot_be_added_up_is_refused():
    assert all(on_ranks(1, too_many, backend="gloo"))


def spoiled(rank, world, spec, bad):
    """The last rank's gradients are NaN in one step: all see it in that step, and none afterwards."""
    layer = nn.Linear(64, 48, bias=False)
    inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(rank))
    net = DistributedDataParallel(layer)
    state, hook = ranvier.hook(spec)
    net.register_comm_hook(state, hook)
    own = torch.autograd.grad(layer(inputs).square().sum(), layer.weight)[0]  # with the weights of rank 0
    means = []
    for step in range(4):
        net.zero_grad()
        net(inputs * (float("nan") if (step, rank) == (bad, world - 1) else 1.0)).square().sum().backward()
        means.append(net.module.weight.grad.clone())
    residual = state.state_dict(layer)["parameters"]["weight"]["residual"].view_as(own)
    return means, state.plain_buckets, own, residual


# The first step of thc goes as floats anyway, and is counted then.
@pytest.mark.parametrize(
    ("spec", "world", "bad"),
    [*((spec, 2, 1) for spec in ("powersgd:4", "acpsgd:4", "thc:8", "switchml")), ("thc:8", 2, 0), ("powersgd:4", 1, 1), ("acpsgd:4+bf16", 1, 1)],
)
def test_what_is_not_finite_goes_plain_and_nothing_is_lost(spec, world, bad):
    ranks = on_ranks(world, spoiled, spec, bad, backend="gloo")
    for means, plain, _, _ in ranks:
        assert [bool(mean.isfinite().all()) for mean in means] == [step != bad for step in range(4)]
        assert plain == (world > 1)  # one alone codes nothing
    # What has been applied and what is held back are all gradients of the other three steps.
    applied = world * sum(mean for mean in ranks[0][0] if mean.isfinite().all())
    gradients = 3 * sum(own for _, _, own, _ in ranks)
    torch.testing.assert_close(applied + sum(residual for *_, residual in ranks), gradients, rtol=1e-4, atol=1e-2)


def after_zero(rank, world, spec):
    """What was applied of four steps' gradients, behind one step of zeros, as a share of all of it."""
    layer = nn.Linear(64, 48, bias=False)
    inputs = torch.randn(4, 64, generator=torch.Generator().manual_seed(rank))
    net = DistributedDataParallel(layer)
    net.register_comm_hook(*ranvier.hook(spec))
    own = torch.autograd.grad(layer(inputs).square().sum(), layer.weight)[0]  # of rank 4; the mean, of rank 8
    dist.all_reduce(own)
    applied = torch.zeros_like(own)
    for factor in (0.0, 1.0, 1.0, 1.0, 1.0):
        net.zero_grad()
        (net(inputs).square().sum() * factor).backward()
        applied += net.module.weight.grad
    return float((applied - 4 * own / world).norm() / (own / world).norm())


@pytest.mark.parametrize(("spec", "bound"), [("powersgd:8", 1e-3), ("acpsgd:8", 0.5)])
def test_a_layer_whose_first_gradient_is_zero_trains(spec, bound):
    for missing in on_ranks(2, after_zero, spec, backend="gloo"):
        assert missing < bound
