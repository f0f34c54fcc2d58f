"""A GPU's tensors over ranvier beside gloo: all_reduce by size, and a step of DistributedDataParallel.

    python benchmarks/torch/gpu_step.py [--world 2] [--samples 31] [--sizes 4K 64K 1M 16M 64M] [--compress int8]

Both copy to the host and back. Ranks share the GPUs there are, and samples of the two take turns: medians of the time of
the slowest rank, and the median, with quartiles, of gloo's time over ranvier's in neighbouring samples. The model is six
layers of 2048 x 2048: 25 M parameters, as many as ResNet-50 has.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import ranvier
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

UNITS = {"K": 1 << 10, "M": 1 << 20}


def bytes_of(size: str) -> int:
    return int(size[:-1]) * UNITS[size[-1]] if size[-1] in UNITS else int(size)


def rank_main(rank: int, arguments: argparse.Namespace, store: str) -> None:
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("ranvier", init_method=store, rank=rank, world_size=arguments.world)
    groups = {"ranvier": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if rank == 0:
        print(f"{torch.cuda.get_device_name()}, {arguments.world} ranks on {torch.cuda.device_count()} of it")
    for size in arguments.sizes:
        values = torch.ones(bytes_of(size) // 4, device="cuda")
        report(
            f"all_reduce {size:>5}",
            in_turn(arguments.samples, {name: lambda group=group: dist.all_reduce(values, group=group) for name, group in groups.items()}),
        )
    report("DDP step", in_turn(arguments.samples, {name: trained(group, arguments) for name, group in groups.items()}))
    alone = trained(None, arguments)
    report("compute alone", in_turn(arguments.samples, {"ranvier": alone, "gloo": alone}))
    dist.destroy_process_group()


def trained(group: dist.ProcessGroup | None, arguments: argparse.Namespace) -> Callable[[], object]:
    """One step; none: of this process alone."""
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
    net: nn.Module = nn.Sequential(*layers).cuda()
    if group is not None:
        net = DistributedDataParallel(net, process_group=group)
        if arguments.compress != "none":
            net.register_comm_hook(*ranvier.hook(arguments.compress, group))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    inputs = torch.randn(arguments.batch, 2048, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()

    return step


def in_turn(samples: int, bodies: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in bodies}
    for sample in range(samples + 3):
        for name in list(bodies) if sample % 2 else reversed(bodies):
            torch.cuda.synchronize()
            dist.barrier()
            start = time.perf_counter()
            bodies[name]()
            torch.cuda.synchronize()
            slowest = torch.tensor(time.perf_counter() - start)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if sample >= 3:
                times[name].append(slowest.item())
    return times


def report(what: str, times: dict[str, list[float]]) -> None:
    if dist.get_rank() != 0:
        return
    ratios = [gloo / ours for gloo, ours in zip(times["gloo"], times["ranvier"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    medians = ", ".join(f"{name} {1000 * statistics.median(each):8.3f} ms" for name, each in times.items())
    print(f"{what:18} {medians}; gloo / ranvier {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--samples", type=int, default=31)
    parser.add_argument("--batch", type=int, default=1024, help="rows a rank and step")
    parser.add_argument("--sizes", nargs="*", default=["4K", "64K", "1M", "16M", "64M"], help="bytes of float32")
    parser.add_argument("--compress", default="none", help="a codec for DDP's gradients, by ranvier.hook")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("gpu_step.py: needs a GPU that this torch can use; ddp_step.py needs none")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (arguments, f"file://{folder}/store"), nprocs=arguments.world)


if __name__ == "__main__":
    main()
