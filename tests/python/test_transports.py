"""DDP over every transport that this build and this machine have: ranks train alike, and an average is one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRAINING = """
import os
import ranvier
import torch.distributed as dist
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
dist.init_process_group("ranvier", init_method="file://{store}", rank=rank, world_size=2)
from test_transports import train
train(rank, 2)
dist.destroy_process_group()
"""


def module(name: str) -> Path:
    return Path(ranvier.__file__).parent / "bin" / f"libranvier_{name}.so"


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not module(name).exists(), reason=f"this build has no transport {name}")


def train(rank, world):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        data = torch.randn(8, 64, generator=torch.Generator().manual_seed(world * step + rank))
        model(data).square().mean().backward()
        optimizer.step()
    parameters = nn.utils.parameters_to_vector(model.parameters()).detach()
    everybodys = [torch.empty_like(parameters) for _ in range(world)]
    dist.all_gather(everybodys, parameters)
    assert all(torch.equal(parameters, each) for each in everybodys)
    large = torch.full((1 << 18,), float(rank))
    dist.all_reduce(large)
    assert torch.equal(large, torch.full((1 << 18,), world * (world - 1) / 2))
    (dist.send if rank == 0 else dist.recv)(large, 1 - rank)


@pytest.mark.parametrize("transport", ["udp", "grpc", pytest.param("ucx", marks=needs("ucx"))])
def test_ranks_train_over(transport):
    on_ranks(2, train, environment={"RANVIER_TRANSPORT": transport})


@pytest.mark.skipif("RANVIER_TEST_LONG" not in os.environ, reason="imports torch twice; make test-fabrics runs it")
@needs("mpi")
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="this machine has no mpirun")
def test_ranks_that_mpirun_started_train_over_mpi(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TRAINING.format(store=tmp_path / "store"))
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable, "-B", str(script)]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(ranvier.__file__).parent.parent)])
    environment = os.environ | {"RANVIER_TRANSPORT": "mpi", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
    assert result.returncode == 0, result.stderr
