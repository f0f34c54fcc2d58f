"""Training steps by several ways in turn, on every host of the laboratory at once: a part of beside_ddp.py.

`ddp_rank.py ROUNDS STEPS WAY… [--insecure]`; rank 0 prints what was measured.
"""

import argparse
import json
import os
import random
import runpy
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import ranvier

EXAMPLE = Path(__file__).parents[3] / "examples" / "ddp.py"
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
BATCH = 32
# Before anything is timed: DDP forms its buckets anew after the first step, and momentum has to be there.
FIRST_STEPS = 3


def cnn() -> nn.Module:
    """The CNN of examples/ddp.py with a wider layer between: 1,074,346 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 672),
        nn.ReLU(),
        nn.Linear(672, 10),
    )


def exchange_nothing(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Training:
    """One way, with a model of its own."""

    def __init__(self, way: str, groups: dict[str, dist.ProcessGroup]):
        torch.manual_seed(0)
        self.way, self.model, momentum = way, cnn(), 0.9
        self.parameters = list(self.model.parameters())
        backend, _, hook = way.partition("/")
        if way != "alone":
            self.model = DistributedDataParallel(self.model, process_group=groups.get(backend, groups["gloo"]))
        if way == "alone/ddp":
            self.model.register_comm_hook(None, exchange_nothing)
        elif hook and hasattr(default_hooks, hook):
            self.model.register_comm_hook(groups[backend], getattr(default_hooks, hook))
        elif hook:
            state, compress = ranvier.hook(hook, groups[backend])
            self.model.register_comm_hook(state, compress)
            momentum = 0 if state.momentum else momentum
        self.optimizer = torch.optim.SGD(self.parameters, lr=0.02, momentum=momentum)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()

    def demand_same_parameters(self) -> None:
        """Hosts have seen other images: only what was exchanged makes their models the same, bit for bit."""
        own = nn.utils.parameters_to_vector(self.parameters).detach()
        least, most = own.clone(), own.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        if not own.isfinite().all() or torch.equal(least, most) == self.way.startswith("alone"):
            raise SystemExit(f"after training by '{self.way}' the hosts' models are not what they should be")


class Batches:
    def __init__(self, rank: int):
        images, labels = runpy.run_path(str(EXAMPLE))["load"](FASHION_MNIST, "train")
        self.images, self.labels = (whole[rank :: dist.get_world_size()] for whole in (images, labels))
        self.next = 0

    def take(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.next + BATCH > len(self.images):
            self.next = 0
        part = slice(self.next, self.next + BATCH)
        self.next = part.stop
        return self.images[part], self.labels[part]


def timed(training: Training, batches: Batches, steps: int) -> tuple[float, float, float]:
    """Of a step, after one that is not timed: the seconds of the slowest host, the mean of the bytes that hosts sent,
    and of the seconds that they computed."""
    training.step(*batches.take())
    dist.barrier()
    begin = time.perf_counter(), int(SENT.read_text()), time.process_time()
    for _ in range(steps):
        training.step(*batches.take())
    end = time.perf_counter(), int(SENT.read_text()), time.process_time()
    used = torch.tensor([(b - a) / steps for a, b in zip(begin, end, strict=True)], dtype=torch.float64)
    slowest = used[0].clone()
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    dist.all_reduce(used)
    _, sent, processor = (used / dist.get_world_size()).tolist()
    return slowest.item(), sent, processor


def measure(arguments: argparse.Namespace, groups: dict[str, dist.ProcessGroup]) -> dict:
    rank, world = dist.get_rank(), dist.get_world_size()
    trainings, batches = [Training(way, groups) for way in arguments.ways], Batches(rank)
    for training in trainings:
        for _ in range(FIRST_STEPS):
            training.step(*batches.take())
    seconds: dict[str, list[float]] = {way: [] for way in arguments.ways}
    sent: dict[str, list[float]] = {way: [] for way in arguments.ways}
    processor: dict[str, list[float]] = {way: [] for way in arguments.ways}
    order = random.Random(0)  # the same on all hosts
    for _ in range(arguments.rounds):
        for training in order.sample(trainings, len(trainings)):
            measured = timed(training, batches, arguments.steps)
            for values, value in zip((seconds, sent, processor), measured, strict=True):
                values[training.way].append(value)
    for training in trainings:
        training.demand_same_parameters()
    count = sum(parameter.numel() for parameter in trainings[0].parameters)
    passes = 2 * (world - 1) / world  # how often an all_reduce sends a value
    bits = {way: 8 * sum(each) / len(each) / passes / count for way, each in sent.items()}
    return {
        "parameters": count, "rounds": arguments.rounds, "steps": arguments.steps, "seconds": seconds,
        "processor_seconds": processor, "bits_per_parameter": bits,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("ways", nargs="+")
    parser.add_argument("--insecure", action="store_true")
    arguments = parser.parse_args()
    rank, world = int(os.environ["RANVIER_RANK"]), int(os.environ["RANVIER_WORLD"])
    torch.set_num_threads(1)  # the other hosts want the other cores
    os.environ["RANVIER_NODE"] = f"host{rank}"  # in truth they share this machine's memory
    os.environ["RANVIER_INTERFACE"] = os.environ["LAB_ADDRESS"]
    os.environ["RANVIER_INSECURE"] = str(int(arguments.insecure))
    store = dist.FileStore(os.path.join(os.environ["RANVIER_STORE"], "torch"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    groups = {"gloo": dist.group.WORLD, "ranvier": dist.new_group(backend="ranvier")}
    result = measure(arguments, groups)
    dist.destroy_process_group()
    if rank == 0:
        json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
