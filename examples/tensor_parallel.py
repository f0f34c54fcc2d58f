"""Tensor parallelism: one layer's matrix lies spread over the ranks, and each computes its part of every product.

    torchrun --nproc-per-node=2 examples/tensor_parallel.py

The first layer is split by columns, so that its outputs need no exchange, the second by rows, whose partial sums one
all_reduce adds up: Shoeybi et al., Megatron-LM, arXiv:1909.08053, 2019. Prints what one rank alone prints, too.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS = 20


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(inputs)))


def main() -> None:
    dist.init_process_group("ranvier")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)  # every rank starts with the same model, and sees the same data
    model = parallelize_module(Block(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    inputs = torch.randn(64, 16)
    targets = inputs.sum(1, keepdim=True).sin()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.5f}; rank 0 holds {model.up.weight.to_local().shape[0]} of 64 hidden units")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
