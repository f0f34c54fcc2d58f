"""Ranks with different numbers of batches, each keeping only its share of the optimizer's state.

    torchrun --nproc-per-node=2 examples/uneven_inputs.py

Join lets ranks that have run out answer the collectives of those that have not. ZeroRedundancyOptimizer updates a part of
the parameters on each rank and broadcasts them: Rajbhandari et al., ZeRO, SC 2020.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("ranvier")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)
    torch.manual_seed(rank)
    steps = 0
    with Join([model, optimizer]):
        for _ in range(5 + 3 * rank):
            inputs = torch.randn(8, 16)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True).sin()).backward()
            optimizer.step()
            steps += 1
    norm = sum(parameter.detach().double().square().sum() for parameter in model.parameters()).sqrt()
    print(f"rank {rank}: {steps} steps, parameters of norm {norm.item():.6f}, state of {len(optimizer.optim.state)} tensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
