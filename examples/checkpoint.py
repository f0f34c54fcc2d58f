"""A sharded checkpoint: every rank writes and reads its own part, and another number of ranks may read it.

    torchrun --nproc-per-node=2 examples/checkpoint.py --save /tmp/checkpoint
    torchrun --nproc-per-node=4 examples/checkpoint.py --load /tmp/checkpoint

torch.distributed.checkpoint agrees on who writes what through the process group (object collectives).
"""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", metavar="FOLDER")
    parser.add_argument("--load", metavar="FOLDER")
    arguments = parser.parse_args()

    dist.init_process_group("ranvier")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    inputs = torch.randn(64, 16)
    if arguments.load:
        torch.manual_seed(1)  # other parameters than the saved ones
    model = fully_shard(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)), mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    if arguments.save:
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True).sin()).backward()
            optimizer.step()
        parameters, state = get_state_dict(model, optimizer)
        checkpoint.save({"model": parameters, "optimizer": state}, checkpoint_id=arguments.save)
    if arguments.load:
        parameters, state = get_state_dict(model, optimizer)
        everything = {"model": parameters, "optimizer": state}
        checkpoint.load(everything, checkpoint_id=arguments.load)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=everything["model"],
            optim_state_dict=everything["optimizer"],
        )
    outputs = model(inputs)
    if dist.get_rank() == 0:
        print(f"mean output {outputs.mean().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
