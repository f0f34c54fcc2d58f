#!/usr/bin/env python3
"""torch.distributed beside ranvier: one rank of `ranvier bench --baseline gloo` (or torch, which is ranvier's own backend
called through torch.distributed).

Speaks the lines of cli/bench/job.cc and cli/bench/peer.cc, and fills and checks memory as cli/bench/pattern.cc does.
"""

import os
import socket
import sys
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "bool": torch.bool,
}
OPS = {
    "sum": dist.ReduceOp.SUM,
    "average": dist.ReduceOp.AVG,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "and": dist.ReduceOp.BAND,
    "or": dist.ReduceOp.BOR,
    "xor": dist.ReduceOp.BXOR,
}
REDUCING = {"all_reduce", "reduce", "reduce_scatter"}
PERIOD = 8191


@dataclass
class Job:
    collective: str
    dtype: str
    op: str
    count: int
    in_place: bool
    warmups: int
    iterations: int
    fill: str
    seed: int
    root: int

    @classmethod
    def from_line(cls, line: str) -> "Job":
        word, collective, dtype, op, count, place, warmups, iterations, fill, seed, root = line.split(" ")
        if word != "run":
            raise ValueError(f"'{line}' is not a job; do both sides come from one build?")
        return cls(
            collective,
            dtype,
            op,
            int(count),
            place == "in_place",
            int(warmups),
            int(iterations),
            fill,
            int(seed),
            int(root),
        )


class Pattern:
    """The values of pattern.cc, as tensors of whole numbers."""

    def __init__(self, job: Job, world: int):
        self.job, self.world = job, world

    def values(self, rank: int, first: int, count: int) -> torch.Tensor:
        """What `rank` gives, elements first … first + count; no more than one period of them."""
        index = (torch.arange(min(count, PERIOD), dtype=torch.int64) + first) % PERIOD
        if self.job.fill != "varied":
            return torch.full_like(index, int(self.job.fill == "ones"))
        random = ((index * 2654435761 + rank * 2246822519 + self.job.seed * 3266489917) & 0xFFFFFFFF) >> 16

        def gives(most: int) -> torch.Tensor:
            return (rank + index) % ((self.world + most - 1) // most) == 0

        if self.job.dtype == "bool":
            return random & 1
        if self.job.collective in REDUCING and self.job.op in ("sum", "average"):
            return torch.where(gives(32), random & 3, 0)
        if self.job.collective in REDUCING and self.job.op == "product":
            return torch.where(gives(6), 1 + (random & 1), 1)
        return random & 127

    def reduced(self, first: int, count: int) -> torch.Tensor:
        parts = torch.stack([self.values(rank, first, count) for rank in range(self.world)])
        op = self.job.op
        if op in ("sum", "average"):
            result = parts.sum(0)
        elif op == "product":
            result = parts.prod(0)
        elif op in ("min", "max"):
            result = parts.amin(0) if op == "min" else parts.amax(0)
        else:
            combine = {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}[op]
            result = parts[0]
            for part in parts[1:]:
                result = combine(result, part)
        if self.job.dtype == "bool":
            return (result != 0).long()
        if op != "average":
            return result
        if DTYPES[self.job.dtype].is_floating_point:
            return result.double() / self.world
        return torch.div(result, self.world, rounding_mode="trunc")


def tile(values: torch.Tensor, to: torch.Tensor) -> None:
    """Lays `values` end to end over `to`."""
    values = values.to(to.dtype)
    whole = to.numel() // max(values.numel(), 1) * values.numel()
    if whole:
        to[:whole].view(-1, values.numel()).copy_(values.expand(whole // values.numel(), -1))
    to[whole:].copy_(values[: to.numel() - whole])


def count_wrong(found: torch.Tensor, expected: torch.Tensor) -> int:
    """Elements of `found` that differ from `expected`, laid end to end; of fractions, by more than the last place."""
    exact = torch.empty(found.shape, dtype=torch.float64 if expected.is_floating_point() else found.dtype)
    tile(expected, exact)
    if expected.is_floating_point():
        off = (found.double() - exact).abs()
        return int((~(off <= exact * torch.finfo(found.dtype).eps)).sum())
    return int((found != exact).sum())


class Peer:
    def __init__(self, rank: int, world: int):
        self.rank, self.world = rank, world

    def refusal(self, job: Job) -> str:
        one_buffer = ("all_reduce", "reduce", "broadcast")
        if job.collective in one_buffer and not job.in_place:
            return f"torch.distributed.{job.collective} has one buffer: it works in place"
        if job.in_place and job.collective not in (*one_buffer, "barrier"):
            return f"in place, torch.distributed has no {job.collective}"
        return ""

    def prepare(self, job: Job) -> tuple[torch.Tensor, torch.Tensor]:
        """Input and output, filled: the same tensor in place, since only calls with one buffer run so."""
        is_root = self.rank == job.root
        all_, part = job.count, job.count // self.world
        sizes = {
            "reduce_scatter": (all_, part),
            "all_gather": (part, all_),
            "gather": (part, all_ if is_root else 0),
            "scatter": (all_ if is_root else 0, part),
            "barrier": (0, 0),
        }
        inputs, outputs = sizes.get(job.collective, (all_, all_))
        input_ = torch.empty(inputs, dtype=DTYPES[job.dtype])
        output = input_ if job.in_place else torch.ones(outputs, dtype=DTYPES[job.dtype])
        if job.collective == "broadcast" and not is_root:
            input_.fill_(1)
        else:
            tile(Pattern(job, self.world).values(self.rank, 0, inputs), input_)
        return input_, output

    def wrong(self, job: Job, output: torch.Tensor) -> int:
        pattern, count = Pattern(job, self.world), output.numel()
        part = job.count // self.world
        mine = self.rank * part
        if count == 0 or (job.collective == "reduce" and self.rank != job.root):
            return 0
        if job.collective in REDUCING:
            first = mine if job.collective == "reduce_scatter" else 0
            return count_wrong(output, pattern.reduced(first, count))
        if job.collective in ("broadcast", "scatter"):
            first = mine if job.collective == "scatter" else 0
            return count_wrong(output, pattern.values(job.root, first, count))
        if job.collective == "sendrecv":
            return count_wrong(output, pattern.values((self.rank - 1) % self.world, 0, count))
        first = mine if job.collective == "all_to_all" else 0
        parts = zip(range(self.world), output.view(self.world, part), strict=True)
        return sum(count_wrong(found, pattern.values(rank, first, part)) for rank, found in parts)

    def call(self, job: Job, input_: torch.Tensor, output: torch.Tensor):
        """A function of no arguments that runs the collective once."""
        op, rank, world = OPS[job.op], self.rank, self.world
        if job.collective == "all_reduce":
            return lambda: dist.all_reduce(output, op)
        if job.collective == "reduce":
            return lambda: dist.reduce(output, job.root, op)
        if job.collective == "broadcast":
            return lambda: dist.broadcast(output, job.root)
        if job.collective == "all_gather":
            return lambda: dist.all_gather_into_tensor(output, input_)
        if job.collective == "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(output, input_, op)
        if job.collective == "all_to_all":
            return lambda: dist.all_to_all_single(output, input_)
        if job.collective == "gather":
            parts = list(output.chunk(world)) if rank == job.root else None
            return lambda: dist.gather(input_, parts, job.root)
        if job.collective == "scatter":
            parts = list(input_.chunk(world)) if rank == job.root else None
            return lambda: dist.scatter(output, parts, job.root)
        if job.collective == "barrier":
            return dist.barrier

        def sendrecv() -> None:
            sent = dist.isend(input_, (rank + 1) % world)
            dist.recv(output, (rank - 1) % world)
            sent.wait()

        return sendrecv

    def measure(self, job: Job) -> str:
        if refusal := self.refusal(job):
            return f"refused {refusal}"
        input_, output = self.prepare(job)
        call = self.call(job, input_, output)
        try:
            dist.barrier()
            if job.warmups:
                for _ in range(job.warmups):
                    call()
                dist.barrier()
            start = time.perf_counter()
            for _ in range(job.iterations):
                call()
            seconds = time.perf_counter() - start
            dist.barrier()
        except (RuntimeError, ValueError, NotImplementedError) as problem:
            # What a backend cannot do, it says on all ranks before anything is sent.
            return "refused " + " ".join(str(problem).split())
        return f"done {seconds} {self.wrong(job, output)}"


def serve(peer: Peer, coordinator: socket.socket, description: str) -> None:
    with coordinator, coordinator.makefile("rw", encoding="utf-8", newline="\n") as lines:
        print(f"hello {peer.rank} {peer.world} {description}", file=lines, flush=True)
        for line in lines:
            print(peer.measure(Job.from_line(line.rstrip("\n"))), file=lines, flush=True)


def main() -> int:
    if len(sys.argv) != 2 or "RANVIER_BENCH_SOCKET" not in os.environ:
        print("torch_peer.py: this is a part of 'ranvier bench --baseline gloo'; start that", file=sys.stderr)
        return 2
    backend = sys.argv[1]
    rank, world = int(os.environ["RANVIER_RANK"]), int(os.environ["RANVIER_WORLD"])
    if "RANVIER_BENCH_PIN" in os.environ:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)  # the other ranks want the other cores
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # or gloo asks the name server for this host

    if backend == "ranvier":
        import ranvier  # noqa: F401  registers the backend
    store = dist.FileStore(os.path.join(os.environ["RANVIER_STORE"], "torch"), world)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    coordinator = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    coordinator.connect("\0" + os.environ["RANVIER_BENCH_SOCKET"])
    serve(Peer(rank, world), coordinator, f"torch {torch.__version__} {backend}")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
