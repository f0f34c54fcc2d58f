"""One step of DistributedDataParallel over ranvier beside one over gloo, step by step in the same processes.

    python benchmarks/torch/ddp_step.py [--world 2] [--samples 101] [--batch 64]

Prints the median times and the median, with quartiles, of gloo's time over ranvier's in neighbouring steps: the machine's
speed changes by the second, and neighbours share it. The model is the CNN of examples/ddp.py, on random images.
"""

import argparse
import os
import runpy
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"


def rank_main(rank: int, arguments: argparse.Namespace, store: str) -> None:
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
    dist.init_process_group("ranvier", init_method=store, rank=rank, world_size=arguments.world)
    groups = {"ranvier": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    cnn = runpy.run_path(str(EXAMPLE))["cnn"]
    trained = {}
    for name, group in groups.items():
        torch.manual_seed(0)
        model = DistributedDataParallel(cnn(), process_group=group)
        trained[name] = (model, torch.optim.SGD(model.parameters(), lr=0.01))
    images = torch.randn(arguments.batch, 1, 28, 28)
    labels = torch.randint(10, (arguments.batch,))
    times: dict[str, list[float]] = {name: [] for name in groups}
    for sample in range(arguments.samples + 5):
        for name in list(groups) if sample % 2 else reversed(groups):
            dist.barrier()
            start = time.perf_counter()
            model, optimizer = trained[name]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            # What counts is the slowest rank.
            slowest = torch.tensor(time.perf_counter() - start)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if sample >= 5:
                times[name].append(slowest.item())
    if rank == 0:
        report(times)
    dist.destroy_process_group()


def report(times: dict[str, list[float]]) -> None:
    for name, each in times.items():
        print(f"{name:8} {1000 * statistics.median(each):8.2f} ms a step")
    ratios = [gloo / ranvier for gloo, ranvier in zip(times["gloo"], times["ranvier"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    print(f"gloo / ranvier: {middle:.2f} ({low:.2f} to {high:.2f}), {len(ratios)} steps each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--samples", type=int, default=101)
    parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (arguments, f"file://{folder}/store"), nprocs=arguments.world)


if __name__ == "__main__":
    main()
