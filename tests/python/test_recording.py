"""ranvier.record: what it writes is what the model is, and ranvier simulate reads it (tests/end_to_end does)."""

import errno
import os
import pathlib
import time
import tomllib
import types

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from ranvier import _streams
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

STEPS = 8


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def train(model, steps=STEPS):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(8, 16)).sum().backward()
        optimizer.step()


def test_every_tensor_stands_there_with_its_bytes_last_ready_first(tmp_path):
    model = network()
    with ranvier.record(model, tmp_path / "new" / "workload.toml"):
        train(model)
    workload = tomllib.loads((tmp_path / "new" / "workload.toml").read_text())
    assert workload["name"] == "Sequential"
    assert workload["other_ns"] > 0
    *tensors, rest = workload["layer"]
    assert rest["name"] == "rest of forward" and rest["forward_ns"] >= 0 and "communications" not in rest
    sizes = {name: 4 * parameter.numel() for name, parameter in model.named_parameters()}
    assert {each["name"]: each["communications"][0]["bytes"] for each in tensors} == sizes
    # Backward ends with the first layer.
    assert {each["name"].partition(".")[0] for each in tensors[:2]} == {"0"}
    # A module's forward pass stands with the first of its tensors.
    assert [each["forward_ns"] > 0 for each in tensors] == [True, False, True, False]
    assert sum(each["weight_gradient_ns"] for each in tensors) > 0


def record_on_ranks(rank, world, folder):
    model = DistributedDataParallel(network())
    with ranvier.record(model, f"{folder}/{rank}.toml"):
        train(model)
    return (rank == 0) == pathlib.Path(folder, f"{rank}.toml").exists()


def test_rank_0_writes_for_all(tmp_path):
    assert on_ranks(2, record_on_ranks, str(tmp_path), backend="gloo") == [True, True]
    assert "each of 2 ranks" in (tmp_path / "0.toml").read_text()
    assert "\nranks = 2\n" in (tmp_path / "0.toml").read_text()


def test_without_a_step_there_is_an_error_and_no_file(tmp_path):
    model = network()
    with pytest.raises(RuntimeError, match="no step was recorded"), ranvier.record(model, tmp_path / "w.toml"):
        model(torch.ones(1, 16))
    with pytest.raises(ValueError, match="no parameter"):
        ranvier.record(nn.ReLU(), tmp_path / "w.toml")
    with pytest.raises(KeyError), ranvier.record(model, tmp_path / "w.toml"):
        train(model, 1)
        raise KeyError
    assert not (tmp_path / "w.toml").exists()
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_a_file_that_cannot_be_written_is_refused_before_the_training(tmp_path):
    (tmp_path / "file").touch()
    for path, why in [(tmp_path / "file" / "w.toml", "File exists|Not a directory"), (tmp_path, "Is a directory")]:
        begun = False
        with pytest.raises(OSError, match=rf"cannot write the workload .* \(({why})\); .*name another file"):
            with ranvier.record(network(), path):
                begun = True
        assert not begun
    assert {path.name for path in tmp_path.iterdir()} == {"file"}


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "w.toml"
    path.write_text("of before")
    (tmp_path / "link.toml").symlink_to(path)

    def fill(part, text, **_):
        with open(part, "w") as file:
            file.write(text[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    model = network()
    with monkeypatch.context() as full:
        full.setattr(pathlib.Path, "write_text", fill)
        with pytest.raises(OSError, match=r"link.toml \(No space left on device\)"):
            with ranvier.record(model, tmp_path / "link.toml"):
                train(model)
    assert path.read_text() == "of before"
    with ranvier.record(model, tmp_path / "link.toml"):
        train(model)
    assert tomllib.loads(path.read_text())["name"] == "Sequential"
    assert {each.name for each in tmp_path.iterdir()} == {"w.toml", "link.toml"}
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def record_fully_sharded(rank, world, path):
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    model = network()
    for module in (*model, model):
        if not isinstance(module, nn.ReLU):
            fully_shard(module, mesh=mesh)
    with ranvier.record(model, path, groups={"data": mesh.get_group()}):
        train(model)


def test_sums_of_gradients_in_parts_go_on_beside_the_backward_pass(tmp_path):
    on_ranks(2, record_fully_sharded, str(tmp_path / "w.toml"), backend="gloo")
    layers = tomllib.loads((tmp_path / "w.toml").read_text())["layer"]
    sent = [each for layer in layers for each in layer.get("communications", ())]
    passes = {(each["collective"], each["pass"]) for each in sent}
    assert passes == {
        ("all_gather", "forward"), ("all_gather", "input_gradient"), ("reduce_scatter", "weight_gradient")
    }  # fmt: skip
    whole = sum(each["bytes"] for each in sent if each["collective"] == "reduce_scatter")
    assert whole == 4 * sum(each.numel() for each in network().parameters())
    assert sum(each["bytes"] for each in sent if each["pass"] == "forward") == whole / 2


def record_tensor_parallel(rank, world, path):
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with ranvier.record(model, path, groups={"tensor": mesh.get_group()}):
        train(model)


def test_groups_of_a_divided_model_are_written_with_their_collectives(tmp_path):
    on_ranks(2, record_tensor_parallel, str(tmp_path / "w.toml"), backend="gloo")
    workload = tomllib.loads((tmp_path / "w.toml").read_text())
    assert workload["degrees"] == {"tensor": 2}
    # The halves of the second product are added up: a batch of 8 with 4 features.
    *tensors, rest = workload["layer"]
    ((name, *first),) = [(each["name"], *lines) for each in tensors if (lines := passing(each, "forward"))]
    assert name.startswith("2.") and "communications" not in rest
    assert first == [{"pass": "forward", "collective": "all_reduce", "bytes": 8 * 4 * 4, "role": "tensor"}]
    sizes = {each["name"]: each["communications"][-1]["bytes"] for each in tensors}
    assert sizes["0.weight"] == 4 * 16 * 32 // 2
    assert all(each["communications"][-1]["role"] == "data" for each in tensors)


def passing(layer, where):
    return [each for each in layer["communications"] if each["pass"] == where]


class Slow(nn.Linear):
    """Takes a second of a clock that nothing else moves; every second call three."""

    calls = 0

    def forward(self, values):
        self.calls += 1
        self.clock[0] += 3 if self.calls % 2 == 0 else 1
        return super().forward(values)


class Checkpointed(nn.Module):
    """Calls `slow` once, and backward calls it again."""

    def __init__(self, clock):
        super().__init__()
        self.first, self.slow, self.unused = nn.Linear(16, 16), Slow(16, 16), nn.Linear(16, 16)
        self.slow.clock = clock

    def forward(self, values):
        return checkpoint(self.slow, self.first(values), use_reentrant=False).relu()


class Twice(Checkpointed):
    def forward(self, values):
        return self.slow(self.slow(self.first(values))).relu()


@pytest.mark.parametrize(("model", "seconds"), [(Checkpointed, 1), (Twice, 4)])
def test_a_modules_own_passes_count_and_those_of_backward_do_not(tmp_path, monkeypatch, model, seconds):
    clock = [0.0]
    monkeypatch.setattr(_streams, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    net = model(clock)
    with ranvier.record(net, tmp_path / "w.toml"):
        train(net)
    workload = tomllib.loads((tmp_path / "w.toml").read_text())
    forward = {each["name"]: each["forward_ns"] for each in workload["layer"]}
    assert forward.pop("slow.weight") + forward.pop("slow.bias") == seconds * 1e9
    assert set(forward.values()) == {0} and not any(name.startswith("unused") for name in forward)
    # The first layer's gradient comes when the checkpointed one has been computed again.
    backward = sum(each.get("weight_gradient_ns", 0) for each in workload["layer"])
    assert backward == (3e9 if model is Checkpointed else 0)


class Steady(nn.Linear):
    """Takes a second of a clock that nothing else moves."""

    def forward(self, values):
        self.clock[0] += 1
        return super().forward(values)


def train_in_passes(model, passes, steps=STEPS):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        for _ in range(passes):
            model(torch.ones(8, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model(torch.ones(8, 16))  # is no pass of a step


def test_passes_whose_gradients_are_accumulated_are_computing_of_the_step(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(_streams, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    net = Steady(16, 16)
    net.clock = clock
    with ranvier.record(net, tmp_path / "w.toml"):
        train_in_passes(net, 3)
    workload = tomllib.loads((tmp_path / "w.toml").read_text())
    assert workload["other_ns"] == 2e9
    assert sum(each.get("forward_ns", 0) for each in workload["layer"]) == 1e9


def record_a_divided_model_in_passes(rank, world, path):
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with pytest.raises(RuntimeError, match="several passes"), ranvier.record(model, path, {"tensor": mesh.get_group()}):
        train_in_passes(model, 2)


def test_of_a_divided_model_steps_of_several_passes_are_refused(tmp_path):
    on_ranks(2, record_a_divided_model_in_passes, str(tmp_path / "w.toml"), backend="gloo")
    assert not (tmp_path / "w.toml").exists()


class Routed(nn.Module):
    """Experts on several ranks: each gets its part of everybody's samples, and they go back."""

    def __init__(self, group):
        super().__init__()
        self.first, self.expert, self.group = nn.Linear(16, 16), nn.Linear(16, 4), group

    def forward(self, values):
        routed = all_to_all_single_autograd(self.first(values), None, None, self.group)
        return all_to_all_single_autograd(self.expert(routed), None, None, self.group)


def record_experts(rank, world, path):
    model = Routed(dist.group.WORLD)
    with ranvier.record(model, path, groups={"expert": dist.group.WORLD}):
        train(model)


def test_what_experts_are_sent_stands_with_the_layer_behind_it(tmp_path):
    on_ranks(2, record_experts, str(tmp_path / "w.toml"), backend="gloo")
    workload = tomllib.loads((tmp_path / "w.toml").read_text())
    assert workload["degrees"] == {"expert": 2}
    sent = [
        (layer["name"].partition(".")[0], each["pass"], each["bytes"])
        for layer in workload["layer"] for each in layer.get("communications", ()) if each["role"] == "expert"
    ]  # fmt: skip
    to_experts, back = 8 * 16 * 4, 8 * 4 * 4
    assert sorted(sent) == [
        ("expert", "forward", to_experts), ("expert", "input_gradient", back), ("first", "input_gradient", to_experts),
        ("rest of forward", "forward", back),
    ]  # fmt: skip


MICRO_BATCHES = 3


class Waiting(nn.Module):
    """Takes so long each way."""

    def __init__(self, layer, seconds):
        super().__init__()
        self.layer, self.seconds = layer, seconds

    def forward(self, values):
        time.sleep(self.seconds)
        result = self.layer(values)
        if result.requires_grad:
            result.register_hook(lambda gradient: time.sleep(self.seconds))
        return result * 1


def record_stages(rank, world, path, longest):
    layer = nn.Linear(16, 32) if rank == 0 else nn.Sequential(nn.Linear(32, 8), nn.Linear(8, 4))
    module = Waiting(layer, 0.02 if rank == longest else 0.002)
    device = torch.device("cpu")
    stage = PipelineStage(module, rank, world, device)
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    with ranvier.record(module, path, groups={"pipeline": dist.group.WORLD}):
        for _ in range(STEPS):
            optimizer.zero_grad()
            schedule.step(torch.ones(12, 16)) if rank == 0 else schedule.step(target=torch.ones(12, 4))
            optimizer.step()


@pytest.mark.parametrize("longest", [0, 1])
def test_of_a_pipeline_the_longest_stage_is_written_with_all_its_passes(tmp_path, longest):
    on_ranks(2, record_stages, str(tmp_path / "w.toml"), longest, backend="gloo")
    text = (tmp_path / "w.toml").read_text()
    assert f"steps of {MICRO_BATCHES} passes on 2 ranks; stage {longest} of 2, which" in text
    workload = tomllib.loads(text)
    assert workload["degrees"] == {"pipeline": 2}
    assert workload["fills"] == 1 / MICRO_BATCHES
    *tensors, _ = workload["layer"]
    calls = [each for layer in workload["layer"] for each in layer.get("communications", ())]
    sizes = {each["name"]: each["communications"][-1]["bytes"] for each in tensors}
    layers = {0: {"layer": (16, 32)}, 1: {"layer.0": (32, 8), "layer.1": (8, 4)}}[longest]
    assert sizes == {f"{name}.{part}": 4 * out * (into if part == "weight" else 1)
                     for name, (into, out) in layers.items() for part in ("weight", "bias")}  # fmt: skip
    # What is between the stages goes forth and its gradient back, of all samples.
    sent = [(each["pass"], each["collective"], each["bytes"]) for each in calls if each["role"] == "pipeline"]
    assert sorted(sent) == [("forward", "send", 12 * 32 * 4), ("input_gradient", "send", 12 * 32 * 4)]
    # Were waiting for the other stage computing, either would take as long.
    forward = sum(each.get("forward_ns", 0) for each in workload["layer"])
    backward = sum(each.get("weight_gradient_ns", 0) for each in tensors)
    assert forward >= MICRO_BATCHES * 20e6
    assert backward >= MICRO_BATCHES * 20e6


def test_an_unknown_role_is_named():
    with pytest.raises(ValueError, match="'tensr' is no role"):
        ranvier.record(network(), "w.toml", groups={"tensr": None})


def test_what_is_no_model_and_no_group_is_refused_at_the_call():
    with pytest.raises(TypeError, match="a torch.nn.Module, and this is None"):
        ranvier.record(None, "w.toml")
    with pytest.raises(TypeError, match="a group is a torch.distributed.ProcessGroup, and this is 3"):
        ranvier.record(network(), "w.toml", groups={"data": 3})
