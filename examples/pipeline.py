"""Pipeline parallelism: each rank has some of the layers, and micro-batches travel through them like goods on a belt.

    torchrun --nproc-per-node=2 examples/pipeline.py

Activations go to the next rank and gradients back by send and recv, one forward and one backward in turn: Narayanan et
al., PipeDream, SOSP 2019. Prints what one rank alone prints, too.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

STEPS, MICROBATCHES, LAYERS = 20, 4, 4


def main() -> None:
    dist.init_process_group("ranvier")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(LAYERS - 1)] + [nn.Linear(16, 1)]
    mine = nn.Sequential(*layers[LAYERS * rank // world : LAYERS * (rank + 1) // world])
    stage = PipelineStage(mine, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.Adam(mine.parameters(), lr=1e-2)
    inputs = torch.randn(64, 16)
    targets = inputs.sum(1, keepdim=True).sin()
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        schedule.step(
            *([inputs] if rank == 0 else []),
            **({"target": targets, "losses": losses} if rank == world - 1 else {}),
        )
        optimizer.step()
    if rank == world - 1:
        print(f"loss {torch.stack(losses).mean().item():.5f}; the last rank has {len(mine)} of {LAYERS} layers")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
