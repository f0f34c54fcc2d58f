"""all_reduce through torch.distributed's gloo, on every host of the laboratory at once: a part of shaped.py.

`gloo_peer.py BYTES SAMPLES ITERATIONS`; rank 0 prints the seconds of one operation on the slowest rank, by sample.
Counts as `ranvier bench` does: a sample is some operations between two barriers, after one that is not timed.
"""

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def sample(data: torch.Tensor, iterations: int) -> float:
    dist.barrier()
    dist.all_reduce(data)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(data)
    seconds = torch.tensor((time.perf_counter() - start) / iterations, dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()


def main() -> None:
    rank, world = int(os.environ["RANVIER_RANK"]), int(os.environ["RANVIER_WORLD"])
    torch.set_num_threads(1)  # the other hosts want the other cores
    store = dist.FileStore(os.path.join(os.environ["RANVIER_STORE"], "torch"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    size, samples, iterations = map(int, sys.argv[1:])
    data = torch.zeros(size // 4)
    times = [sample(data, iterations) for _ in range(samples)]
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(times))


if __name__ == "__main__":
    main()
