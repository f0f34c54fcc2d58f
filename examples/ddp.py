"""Trains a small CNN on Fashion-MNIST with DistributedDataParallel, over whichever backend is named.

    torchrun --nproc-per-node=4 examples/ddp.py --backend=ranvier
    torchrun --nproc-per-node=4 examples/ddp.py --backend=gloo

Data: `apt install dataset-fashion-mnist`, or --data with a folder that holds the four IDX files, gzipped or not.
"""

import argparse
import gzip
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def read_idx(path: Path) -> torch.Tensor:
    """A tensor of bytes from a file in IDX format: http://yann.lecun.com/exdb/mnist, `path` or `path`.gz."""
    data = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(path.name + ".gz").read_bytes())
    sizes = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return torch.frombuffer(bytearray(data[4 + 4 * len(sizes) :]), dtype=torch.uint8).reshape(sizes)


def load(folder: Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    images = read_idx(folder / f"{part}-images-idx3-ubyte")
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte")
    return (images[:, None].float() / 255 - 0.2860) / 0.3530, labels.long()


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="ranvier", help="gloo, ranvier, …")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
    parser.add_argument("--lr", type=float, default=0.05)
    arguments = parser.parse_args()

    dist.init_process_group(arguments.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = load(arguments.data, "train")
    torch.manual_seed(0)
    model = DistributedDataParallel(cnn())
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)

    random = torch.Generator().manual_seed(0)  # the same on all ranks: each takes its own part of one shuffle
    start = time.perf_counter()
    for _ in range(arguments.steps):
        chosen = torch.randint(len(images), (world, arguments.batch), generator=random)[rank]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - start

    images, labels = load(arguments.data, "t10k")
    with torch.no_grad():
        mine = slice(rank, None, world)
        right = torch.tensor(float((model.module(images[mine]).argmax(1) == labels[mine]).sum()))
    dist.all_reduce(right)
    if rank == 0:
        rate = arguments.steps * arguments.batch * world / seconds
        print(f"test accuracy {100 * right / len(images):.1f} %, {rate:.0f} images/s, {world} ranks over {arguments.backend}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
