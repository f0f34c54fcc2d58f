"""Fully sharded training (FSDP2): each rank keeps its share of every parameter, gradient and optimizer state.

    torchrun --nproc-per-node=2 examples/fsdp2.py

A layer's parameters are gathered before it runs and dropped after it (all_gather), and each rank receives the average of
its share of the gradients (reduce_scatter). Prints what one rank alone prints, too.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

SAMPLES, STEPS = 64, 20


def main() -> None:
    dist.init_process_group("ranvier")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    inputs = torch.randn(SAMPLES, 16)
    targets = inputs.sum(1, keepdim=True).sin()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs[mine]), targets[mine])
        loss.backward()
        optimizer.step()
    total = loss.detach() / dist.get_world_size()
    dist.all_reduce(total)
    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    if dist.get_rank() == 0:
        whole = sum(parameter.numel() for parameter in model.parameters())
        print(f"loss {total.item():.5f}; rank 0 holds {held} of {whole} parameters")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
