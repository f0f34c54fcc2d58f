"""Ranks that are not equally fast, each at its own pace: nobody waits for the slowest in a step.

    torchrun --nproc-per-node=2 examples/own_pace.py [--sync async|ssp:3|group|ad-psgd]

Each rank takes the batches that it has between two looks at the result: rank 1 is four times as slow here, and has a
fourth as many. With any optimizer, and over any process group: `--backend ranvier` or gloo.
"""

import argparse
import time

import ranvier
import torch
import torch.distributed as dist
from torch import nn


def target(inputs: torch.Tensor) -> torch.Tensor:
    return inputs[:, :4].sum(1, keepdim=True).sin()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sync", default="async")
    parser.add_argument("--backend", default="gloo")
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    held_out = torch.randn(512, 16)
    sync = ranvier.attach(model, optimizer, sync=arguments.sync, samples=32)
    torch.manual_seed(1 + rank)
    began = time.perf_counter()
    for epoch in range(3):
        for _ in range(20 if rank == 1 else 80):
            inputs = torch.randn(32, 16)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), target(inputs))
            time.sleep(0.008 if rank == 1 else 0.002)  # what a larger model would take
            loss.backward()
            optimizer.step()
        sync.meet()
        with torch.no_grad():
            error = nn.functional.mse_loss(model(held_out), target(held_out))
        if rank == 0:
            print(f"epoch {epoch}: error {error.item():.4f} after {time.perf_counter() - began:.2f} s")
    sync.finish()
    print(f"rank {rank}: {sync.step} steps, groups {sync.groups}, shares {[round(share, 2) for share in sync.shares]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
