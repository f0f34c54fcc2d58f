"""torch.compile with collectives inside: functional ones, which the compiler sees as operators and can move.

    torchrun --nproc-per-node=2 examples/compiled.py

Each rank computes the loss of its part of a batch; the mean over all ranks is part of the compiled graph, forward and
backward. Prints what one rank alone prints, too. `--compiler aot_eager` needs no C++ compiler on the machine.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional

STEPS, BATCH = 20, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="inductor", help="a backend of torch.compile")
    arguments = parser.parse_args()
    dist.init_process_group("ranvier")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # every rank starts with the same model
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    inputs = torch.randn(BATCH, 16)
    targets = inputs.sum(1, keepdim=True).sin()
    mine = slice(rank * BATCH // world, (rank + 1) * BATCH // world)

    def averages_of(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Of the loss and of all gradients, one behind the other."""

        def loss_of(weights: dict[str, torch.Tensor]) -> torch.Tensor:
            return nn.functional.mse_loss(torch.func.functional_call(model, weights, x), y)

        gradients, loss = torch.func.grad_and_value(loss_of)(weights)
        flat = torch.cat([loss.reshape(1), *(each.flatten() for each in gradients.values())])
        return functional.all_reduce(flat, "sum", dist.group.WORLD) / world

    step = torch.compile(averages_of, backend=arguments.compiler, fullgraph=True)
    for _ in range(STEPS):
        averages = step(weights, inputs[mine], targets[mine])
        loss, *gradients = averages.split([1, *(each.numel() for each in weights.values())])
        for weight, gradient in zip(weights.values(), gradients, strict=True):
            weight.sub_(gradient.view_as(weight), alpha=0.1)
    if rank == 0:
        print(f"loss {loss.item():.5f} after {STEPS} steps of {world} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
