"""DistributedDataParallel over ranvier trains as one process with the whole batch does."""

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 8, 12


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(1)
    return [
        (torch.randn(BATCH, 1, 10, 10, generator=random), torch.randint(10, (BATCH,), generator=random))
        for _ in range(STEPS)
    ]


def train(net: nn.Module, part: slice, momentum: float = 0.9) -> torch.Tensor:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=momentum)
    for images, labels in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images[part]), labels[part]).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def train_on_rank(rank, world, options):
    net = DistributedDataParallel(model(), **options)
    return train(net, slice(rank * BATCH // world, (rank + 1) * BATCH // world))


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("options", [{}, {"bucket_cap_mb": 0.01}, {"static_graph": True}], ids=str)
def test_ddp_trains_as_one_process_does(world, options):
    parameters = on_ranks(world, train_on_rank, options)
    alone = train(model(), slice(None))
    for other in parameters[1:]:
        assert torch.equal(parameters[0], other), "ranks must agree in every bit"
    torch.testing.assert_close(parameters[0], alone, rtol=1e-3, atol=1e-4)
    assert not torch.equal(alone, torch.cat([p.detach().flatten() for p in model().parameters()]))


# gloo's group ends its process (EDEADLK, "Resource deadlock avoided") where a callback on one of its own threads is the
# last to let go of it, and so joins itself: a race of powerSGD_hook's with destroy_process_group, once in some hundred.
_groups_that_stay = []


def train_with_hook(rank, world, name):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1)
    hook, state = {
        "fp16": (default_hooks.fp16_compress_hook, None),
        "powersgd": (powerSGD_hook.powerSGD_hook, state),
        "powersgd and fp16": (default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook), state),
    }[name]
    net = DistributedDataParallel(model())
    net.register_comm_hook(state, hook)
    if dist.get_backend() == "gloo":
        _groups_that_stay.append(dist.group.WORLD)
    return train(net, slice(rank * BATCH // world, (rank + 1) * BATCH // world))


@pytest.mark.parametrize("name", ["fp16", "powersgd", "powersgd and fp16"])
def test_torchs_own_communication_hooks_run_as_over_gloo(name):
    first, second = on_ranks(2, train_with_hook, name)
    assert torch.equal(first, second)
    over_gloo = on_ranks(2, train_with_hook, name, backend="gloo")[0]
    torch.testing.assert_close(first, over_gloo, rtol=1e-2, atol=1e-3)


def uneven(rank, world):
    net = DistributedDataParallel(nn.Linear(4, 1))
    with net.join():
        for _ in range(3 + 2 * rank):
            net(torch.ones(2, 4)).sum().backward()
    return True


def test_ranks_may_have_different_numbers_of_batches():
    assert all(on_ranks(2, uneven))


def shard(rank, world):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        net(torch.full((2, 16), float(rank + step))).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.full_tensor().detach().flatten() for parameter in net.parameters()])


def test_fully_sharded_training_runs():
    first, second = on_ranks(2, shard)
    assert torch.equal(first, second) and first.isfinite().all()
