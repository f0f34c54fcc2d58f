"""Compressed gradients for DistributedDataParallel over the process group that it already has.

    ddp.register_comm_hook(*ranvier.hook("hadamard:32+int4"))

Codes travel as byte tensors through that group's all_to_all and all_gather: gloo, ranvier, or NCCL (untested: codes are
made on the CPU, and copied). Each rank owns a part of a bucket, adds what the others send it in float32, and encodes the
sum once for everybody; with by=all_gather in the spec, each rank sends its whole code to all, who add up. All ranks end
with the same bits. docs/codecs.md explains codecs, presets ("safe", "strong", "extreme") and error feedback.
"""

# No `from __future__ import annotations`: DDP looks at the annotations of a hook and wants types, not their names.

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ranvier import _library

# torch 2.13 has given it another name.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
Hook = Callable[["CompressionState", dist.GradBucket], torch.futures.Future[Tensor]]


def hook(spec: str, group: dist.ProcessGroup | None = None) -> "tuple[CompressionState, Hook]":
    """What DDP.register_comm_hook takes. `spec` is a codec's or a preset's name, `group` the one that DDP was given;
    none: the default group.

    Raises ValueError for a spec that is wrong, or that another rank does not have. A codec that corrects momentum (dgc,
    and with it "strong" and "extreme") takes the place of the optimizer's, which then has to be 0.
    """
    return CompressionState(spec, group), compress


def compress(state: "CompressionState", bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The hook: returns at once, and averages while backward goes on."""
    return state.start(bucket)


_KINDS = ("residual", "velocity", "last", "average")


@dataclass
class _Memory:
    """What is kept of a bucket's parameters, flat; empty tensors where the codec keeps nothing."""

    parameters: list[Tensor]
    residual: Tensor
    velocity: Tensor
    last: Tensor  # this rank's gradient of the step before, where changes are coded
    average: Tensor  # and all ranks'
    step: int = 0

    def sizes(self) -> tuple[int, int, int, int]:
        return self.residual.numel(), self.velocity.numel(), self.last.numel(), self.average.numel()

    def of(self, parameter: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        begin = 0
        for candidate in self.parameters:
            if candidate is parameter:
                place = slice(begin, begin + parameter.numel())
                return self.residual[place], self.velocity[place], self.last[place], self.average[place]
            begin += candidate.numel()
        raise KeyError("the parameter is not in this bucket")


class CompressionState:
    """A codec, and what it holds back of each parameter's gradients."""

    def __init__(self, spec: str, group: dist.ProcessGroup | None = None) -> None:
        _library.load()
        self.spec = spec
        self.plain_buckets = 0  # that went uncompressed, since a value was NaN, infinite or beyond 2^50
        self.bytes_sent = 0
        self._codec = torch.classes.ranvier.Codec(spec)
        self._sums = self._codec.for_sums()
        self._group = group if group is not None else dist.group.WORLD
        self._rank, self._world = dist.get_rank(self._group), dist.get_world_size(self._group)
        self._device = torch.device("cuda") if "nccl" in dist.get_backend(self._group) else torch.device("cpu")
        self._memories: dict[int, _Memory] = {}  # by the id of a parameter, which the memory keeps alive
        self._number = 0
        # One thread: buckets go in the order in which backward finishes them, which is the same on all ranks.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ranvier-hook")
        self._demand_same_spec()

    @property
    def momentum(self) -> float:
        """Not 0: averages contain this momentum, and the optimizer must add none."""
        return float(self._codec.momentum())

    def state_dict(self, module: nn.Module) -> dict[str, dict[str, Tensor]]:
        """What this rank holds back, by the names of parameters; every rank saves its own."""
        return {
            name: {kind: tensor.clone() for kind, tensor in zip(_KINDS, kept, strict=True)}
            for name, parameter in module.named_parameters()
            if id(parameter) in self._memories
            for kept in [self._memories[id(parameter)].of(parameter)]
        }

    def load_state_dict(self, module: nn.Module, state: dict[str, dict[str, Tensor]]) -> None:
        """Takes up what state_dict gave. Raises ValueError for a parameter that has changed its size."""
        for name, parameter in module.named_parameters():
            if name not in state:
                continue
            kept = state[name]
            if kept["residual"].numel() not in (0, parameter.numel()):
                raise ValueError(
                    f"{name} has {parameter.numel()} values and its residual {kept['residual'].numel()}: it was saved "
                    "with another model; start without it"
                )
            # Of a codec that keeps less, or of an older version: what is missing begins at zero.
            residual, velocity, last, average = (kept.get(kind, torch.zeros(0)).clone() for kind in _KINDS)
            self._memories[id(parameter)] = _Memory([parameter], residual, velocity, last, average)

    def start(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        buffer, parameters = bucket.buffer(), bucket.parameters()
        number, self._number = self._number, self._number + 1
        done: torch.futures.Future[Tensor] = torch.futures.Future()

        def run() -> None:
            try:
                done.set_result(self._average(buffer, parameters, number))
            except BaseException as error:  # noqa: BLE001: DDP raises it where it waits
                done.set_exception(error)

        self._thread.submit(run)
        return done

    def _average(self, buffer: Tensor, parameters: list[Tensor], number: int) -> Tensor:
        if self._world == 1:
            return buffer
        # float16 and bfloat16 are encoded as they are: float32 holds each of their values.
        values = buffer.detach().to(device="cpu", dtype=torch.float32, copy=True)
        memory = self._memory(parameters, values.numel())
        differs = bool(self._codec.of_differences())
        gradient = values.clone() if differs else values
        if differs:
            values -= memory.last
        gather = self._gather_codes if self._codec.by_all_gather() else self._average_codes
        if not gather(values, memory, number):
            self.plain_buckets += 1
            plain = values.to(device=self._device)
            dist.all_reduce(plain, group=self._group)
            values.copy_(plain).mul_(1 / self._world)
        if differs:
            values += memory.average
            if bool(values.isfinite().all()):  # the same bits on all ranks: all remember this step or none
                memory.last.copy_(gradient)
                memory.average.copy_(values)
        memory.step += 1
        buffer.copy_(values)
        return buffer

    def _gather_codes(self, values: Tensor, memory: _Memory, number: int) -> bool:
        """As _average_codes, by one all_gather of whole codes."""
        code = self._codec.encode(
            values, memory.residual, memory.velocity, number * self._world + self._rank, memory.step
        )
        codes = self._gather(code)
        if any(each.numel() == 0 for each in codes):
            if code.numel() > 0 and memory.residual.numel() > 0:
                decoded = torch.empty_like(values)
                self._codec.decode(code, decoded, False)
                memory.residual += decoded - values
            return False
        for rank, each in enumerate(codes):
            self._codec.decode(each, values, rank > 0)
        values.mul_(1 / self._world)
        return True

    def _average_codes(self, values: Tensor, memory: _Memory, number: int) -> bool:
        """In place. False where a value had no code: values and memory are as they were."""
        borders = [values.numel() * rank // self._world for rank in range(self._world + 1)]
        parts = [slice(begin, end) for begin, end in zip(borders, borders[1:], strict=False)]
        own = parts[self._rank]
        seed = (2 * number * self._world + self._rank) * self._world

        codes = [
            torch.empty(0, dtype=torch.uint8)
            if rank == self._rank
            else self._codec.encode(values[part], memory.residual[part], memory.velocity[part], seed + rank, memory.step)
            for rank, part in enumerate(parts)
        ]
        arrived = self._exchange(codes)

        expected = own.stop > own.start
        complete = all(code.numel() > 0 for rank, code in enumerate(arrived) if rank != self._rank) or not expected
        result = torch.empty(0, dtype=torch.uint8)
        total = torch.zeros(own.stop - own.start)
        if complete and expected:
            for rank, code in enumerate(arrived):
                if rank != self._rank:
                    self._codec.decode(code, total, True)
                elif memory.velocity.numel() > 0:
                    total += memory.velocity[own].mul_(self.momentum).add_(values[own])
                else:
                    total += values[own]
            result = self._sums.encode(
                total, memory.residual[own], torch.empty(0), seed + self._world * self._world, memory.step
            )
        results = self._gather(result)

        if any(code.numel() == 0 and part.stop > part.start for code, part in zip(results, parts, strict=True)):
            self._restore(values, memory, parts, codes, total, result)
            return False
        for code, part in zip(results, parts, strict=True):
            if part.stop > part.start:
                self._sums.decode(code, values[part], False)
        values.mul_(1 / self._world)
        return True

    def _restore(
        self, values: Tensor, memory: _Memory, parts: list[slice], codes: list[Tensor], total: Tensor, result: Tensor
    ) -> None:
        """The values go plain: residual + values - decoded becomes the residual of before."""
        if memory.residual.numel() == 0:
            return
        for rank, (part, code) in enumerate(zip(parts, codes, strict=True)):
            coded, codec = (values[part], self._codec) if rank != self._rank else (total, self._sums)
            code = code if rank != self._rank else result
            if code.numel() > 0:
                decoded = torch.empty(part.stop - part.start)
                codec.decode(code, decoded, False)
                memory.residual[part] += decoded - coded

    def _exchange(self, codes: list[Tensor]) -> list[Tensor]:
        """Code i goes to rank i; what each rank sent to this one."""
        lengths = torch.tensor([code.numel() for code in codes], device=self._device)
        incoming = torch.empty_like(lengths)
        dist.all_to_all_single(incoming, lengths, group=self._group)
        outgoing = torch.cat(codes).to(self._device)
        sizes = incoming.tolist()
        received = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device)
        dist.all_to_all_single(received, outgoing, sizes, lengths.tolist(), group=self._group)
        self.bytes_sent += outgoing.numel()
        return list(received.cpu().split(sizes))

    def _gather(self, code: Tensor) -> list[Tensor]:
        """Every rank's code. all_gather wants one length: the longest."""
        length = torch.tensor([code.numel()], device=self._device)
        lengths = torch.empty(self._world, dtype=length.dtype, device=self._device)
        _all_gather(lengths, length, group=self._group)
        sizes = lengths.tolist()
        longest = max(1, *sizes)
        padded = torch.zeros(longest, dtype=torch.uint8, device=self._device)
        padded[: code.numel()] = code.to(self._device)
        everything = torch.empty(self._world * longest, dtype=torch.uint8, device=self._device)
        _all_gather(everything, padded, group=self._group)
        self.bytes_sent += (self._world - 1) * longest
        rows = everything.cpu().view(self._world, longest)
        return [rows[rank, :size].contiguous() for rank, size in enumerate(sizes)]

    def _memory(self, parameters: list[Tensor], count: int) -> _Memory:
        """Of this bucket. DDP forms buckets anew after the first step: what is held back follows the parameters."""
        wanted = self._codec.state_parts()
        differences = count if self._codec.of_differences() else 0
        sizes = (count if wanted > 0 else 0, count if wanted > 1 else 0, differences, differences)
        known = self._memories.get(id(parameters[0]))
        if (
            known is not None
            and [id(p) for p in known.parameters] == [id(p) for p in parameters]
            and known.sizes() == sizes
        ):
            return known
        residual, velocity, last, average = (torch.zeros(size) for size in sizes)
        memory = _Memory(parameters, residual, velocity, last, average)
        for parameter in parameters:
            old = self._memories.get(id(parameter))
            if old is not None:
                for new, before in zip(memory.of(parameter), old.of(parameter), strict=True):
                    if new.numel() == before.numel():  # else another codec kept it, or did not
                        new.copy_(before)
                memory.step = max(memory.step, old.step)
        for parameter in parameters:
            self._memories[id(parameter)] = memory
        return memory

    def _demand_same_spec(self) -> None:
        specs: list[Any] = [None] * self._world
        dist.all_gather_object(specs, self.spec, group=self._group)
        for rank, spec in enumerate(specs):
            if spec != self.spec:
                raise ValueError(
                    f"rank {self._rank} compresses with '{self.spec}' and rank {rank} with '{spec}': give hook() the "
                    "same spec on every rank"
                )
