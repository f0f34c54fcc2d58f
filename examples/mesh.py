"""Data and tensor parallelism on one mesh: its rows share the batch, its columns the matrices of every layer.

    torchrun --nproc-per-node=4 examples/mesh.py --tensor-parallel 2

Within a row each rank holds its columns or rows of a matrix (examples/tensor_parallel.py), and of those, within a column,
its share (examples/fsdp2.py). Each dimension of the mesh has process groups of its own. Prints what one rank alone
prints, too.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

SAMPLES, STEPS = 64, 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel", type=int, default=1, help="ranks that share each matrix")
    shards = parser.parse_args().tensor_parallel
    dist.init_process_group("ranvier")
    replicas = dist.get_world_size() // shards
    mesh = dist.init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    inputs = torch.randn(SAMPLES, 16)
    targets = inputs.sum(1, keepdim=True).sin()
    mine = slice(mesh["data"].get_local_rank(), None, replicas)  # ranks of a row see the same samples
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs[mine]), targets[mine])
        loss.backward()
        optimizer.step()
    total = loss.detach() / replicas
    dist.all_reduce(total, group=mesh["data"].get_group())
    if dist.get_rank() == 0:
        matrix = model[0].weight
        print(f"loss {total.item():.5f}; rank 0 holds {matrix.to_local().numel()} of {matrix.numel()} weights of layer 0")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
