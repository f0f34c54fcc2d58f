"""How a bucket becomes its average, by a spec: what src/exchange does over ranvier's own connections, over any process
group. The arithmetic is the same C++; docs/codecs.md explains it."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier import _library
from ranvier._coded_slice import CodedSlice, Coding
from ranvier._memory import Memory, zeros
from ranvier._wire import Wire


class Went(IntEnum):
    """How a bucket went."""

    NOT = 0  # a value had no code: values are as they were, and so is what is held back
    PLAIN = 1  # likewise, and what had no code was averaged as it is
    CODED = 2


class Exchange(Protocol):
    kinds: tuple[str, ...]  # what it wants kept, of _memory.FLAT
    momentum: float

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        """In place, of float32 values on the CPU; of wider ones where they go plain. `number` counts buckets."""


def make_exchange(spec: str, world: int) -> Exchange:
    """Raises ValueError for a spec that is wrong, or that serves no group of so many ranks; TypeError for what is none."""
    if not isinstance(spec, str):
        raise TypeError(f"a codec is named by a str, and this is {spec!r}: write 'int8' or, for values as they are, 'none'")
    _library.load()
    plan = torch.classes.ranvier.ExchangePlan(spec)
    if bits := plan.grid_bits():
        return SharedGrid(bits, world)
    if plan.shared_scale():
        return SharedScale(world)
    if plan.is_demo():
        return DecoupledMomentum(plan)
    if rank := plan.rank():
        return LowRank(rank, plan.alternating(), plan.codec())
    if not plan.codec():
        return Plain()
    return Normalized(Coded(plan.codec())) if plan.is_normalized() else Coded(plan.codec())


class Plain:
    kinds: tuple[str, ...] = ()
    momentum = 0.0

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        wire.all_reduce(values)
        values.mul_(1 / wire.world)
        return Went.CODED


class Coded:
    """Scatter, reduce, gather of codes; or, with by=all_gather, each rank's whole code to all."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._codec = torch.classes.ranvier.Codec(spec)
        self._sums = self._codec.for_sums()
        self._differs = bool(self._codec.of_differences())
        kept = ("residual", "velocity")[: self._codec.state_parts()]
        self.kinds: tuple[str, ...] = (*kept, "last", "average") if self._differs else kept
        self.momentum = float(self._codec.momentum())
        self._by_tensor = bool(self._codec.chooses_by_tensor())
        self._clipping_norm = float(self._codec.clipping_norm())
        self._averages = torch.classes.ranvier.CodedAverages(spec)

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        if self._clipping_norm > 0:
            for tensor in values.split(memory.sizes()):
                _clip(tensor, self._clipping_norm / math.sqrt(wire.world))
        if wire.world == 1:  # nothing to send; momentum is still this exchange's
            if self.kinds and not self._differs and _all_finite(values):
                if memory.velocity.numel() > 0:
                    values.copy_(memory.velocity.mul_(self.momentum).add_(values))
                _pay(values, memory.residual)
            if memory.owed.numel() > 0 and _all_finite(values):
                values += memory.owed
                memory.owed = zeros()
            return Went.CODED
        # Of changes, a slice that goes plain would be none: all of the bucket has to.
        if wire.has_engine() and not self._differs:
            plain, sent = self._averages.average(
                wire.boxed, values, memory.residual, memory.velocity, number, memory.step, self._sizes(memory)
            )
            wire.bytes_sent += sent
            return Went.PLAIN if plain else Went.CODED
        gradient = values.clone() if self._differs else values
        if self._differs:
            _estimate_anew(memory)
            values -= memory.last
            if memory.owed.numel() > 0:
                values += memory.owed
        way = self._by_all_gather if self._codec.by_all_gather() else self._by_reduce_scatter
        went = way(wire, values, memory, number)
        if went is Went.NOT:
            values.copy_(gradient)
            return went
        if self._differs:
            values += memory.average
            if memory.owed.numel() > 0:  # was applied with this gradient, and is no part of the next one
                gradient += memory.owed
                memory.owed = zeros()
            memory.last.copy_(gradient)
            memory.average.copy_(values)
        return went

    def _sizes(self, memory: Memory) -> list[int]:
        return memory.sizes() if self._by_tensor else []

    def _by_all_gather(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        seed = number * wire.world + wire.rank
        code = self._codec.encode(
            values, memory.residual, memory.velocity, seed, memory.step, self._sizes(memory), 0
        )
        codes = wire.gather(code, ("all", self._spec, values.numel()), self._codec.max_bytes(values.numel()))
        if any(each.numel() == 0 for each in codes):
            if code.numel() > 0 and memory.residual.numel() > 0:
                decoded = torch.empty_like(values)
                self._codec.decode(code, decoded, False)
                memory.residual += decoded - values
            return Went.NOT
        for rank, each in enumerate(codes):
            self._codec.decode(each, values, rank > 0)
        values.mul_(1 / wire.world)
        return Went.CODED

    def _by_reduce_scatter(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        # Where a slice may not go plain by itself, the bucket is one.
        size = values.numel() if self._differs or not wire.floats else self._averages.slice_size(values.numel())
        slices = []
        for index, begin in enumerate(range(0, values.numel(), max(size, 1))):
            seed = (2 * ((number << 20) + index) * wire.world + wire.rank) * wire.world % 2**62
            coding = Coding(
                self._codec, self._sums, self.momentum, seed, memory.step, self._sizes(memory)
            )
            place = slice(begin, begin + size)
            key = (self._spec, values.numel(), index)
            slices.append(
                CodedSlice(coding, wire, values[place], memory.residual[place], memory.velocity[place], begin, key)
            )
        for each in slices:
            each.scatter()
        for each in slices:
            each.reduce()
        went = Went.CODED
        for each in slices:
            if each.finish():
                continue
            if self._differs or not wire.floats:
                return Went.NOT
            Plain().average(wire, each.values, memory, number)
            went = Went.PLAIN
        return went


class Normalized:
    """Codes of values over the mean magnitude that averages have had in their place: src/exchange/normalized.cc."""

    kinds: tuple[str, ...] = ("usual",)
    momentum = 0.0

    def __init__(self, inner: Coded) -> None:
        self._inner = inner

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        if wire.world == 1:
            return Went.CODED
        gradient = values if wire.has_engine() else values.clone()  # an engine sends again itself what has no code
        factor = torch.ops.ranvier.normalize(values, memory.usual)
        went = self._inner.average(wire, values, memory, number)
        if went is Went.NOT:
            values.copy_(gradient)
            return went
        torch.ops.ranvier.denormalize(values, memory.usual, factor)
        if went is Went.CODED:
            torch.ops.ranvier.follow_magnitudes(values, memory.usual)
        return went


class LowRank:
    """PowerSGD, and `alternating` ACP-SGD: each matrix as P Q^T; P = M Q and Q = M^T P are averaged, all matrices' in
    one vector, with the tensors that are too small for factors behind it."""

    kinds: tuple[str, ...] = ("residual",)
    momentum = 0.0

    def __init__(self, rank: int, alternating: bool, factors: str) -> None:
        self._rank = rank
        self._alternating = alternating
        self._factors: Exchange = Plain() if factors == "fp32" else Coded(factors)

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        if wire.world == 1:
            if _all_finite(values):
                _pay(values, memory.residual)
            return Went.CODED
        owed = values + memory.residual  # M
        parts = memory.slices()
        matrices = [self._matrix(parameter) for parameter in memory.parameters]
        for index, matrix in enumerate(matrices):
            if matrix.rank() > 0 and not memory.factors[index]:
                memory.factors[index] = matrix.begin(((memory.step + 1) << 32) + index)
        small = [part for part, matrix in zip(parts, matrices, strict=True) if matrix.rank() == 0]
        large = [(m, part, f) for m, part, f in zip(matrices, parts, memory.factors, strict=True) if m.rank() > 0]

        sides = (memory.step % 2,) if self._alternating else (0, 1)  # 0: left is next
        for side in sides:
            for matrix, part, (left, right) in large:
                if side == 0:
                    matrix.orthonormalize(right)
                    matrix.left_of(owed[part], right, left)
                else:
                    matrix.orthonormalize(left)
                    matrix.right_of(owed[part], left, right)
            travelling = [factors[side] for _, _, factors in large]
            travelling += [owed[part].clone() for part in small] if side == sides[0] else []  # of another codec, too
            if not self._average(wire, travelling, (2 * number + side)):
                memory.factors = [[] for _ in matrices]  # what is not finite may have reached them
                return Went.NOT
            if side == sides[0]:
                averages = travelling[len(large) :]

        for part, average in zip(small, averages, strict=True):
            values[part] = average
            memory.residual[part] = 0
        for matrix, part, (left, right) in large:
            matrix.product(left, right, values[part])
            memory.residual[part] = owed[part] - values[part]
        return Went.CODED

    def _matrix(self, parameter: Tensor) -> Any:
        rows = parameter.shape[0] if parameter.dim() > 0 else 1
        return torch.classes.ranvier.LowRank(rows, parameter.numel() // max(rows, 1), self._rank)

    def _average(self, wire: Wire, tensors: list[Tensor], number: int) -> bool:
        """In place. False where the averages are not finite, which all ranks see alike."""
        if not tensors:
            return True
        vector = torch.cat([tensor.flatten() for tensor in tensors])
        coded = self._factors.average(wire, vector, Memory([]), number)
        for tensor, part in zip(tensors, vector.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))
        return bool(coded) and math.isfinite(float(vector.abs().sum(dtype=torch.float64)))


def _estimate_anew(memory: Memory) -> None:
    """Of changes: what float32 has rounded of much larger averages is still in this one, and all ranks take it for their
    estimate, whose mean it then is exactly. See src/exchange/difference.cc."""
    now = max(abs(float(end)) for end in torch.aminmax(memory.average)) if memory.average.numel() > 0 else 0.0
    memory.largest = max(memory.largest, now)
    if memory.largest > 2**12 * now:
        memory.last.copy_(memory.average)
        memory.residual.zero_()
        memory.largest = 0.0


def _all_finite(values: Tensor) -> bool:
    """In one pass: isfinite().all() makes several, and masks as long as values."""
    return values.numel() == 0 or all(math.isfinite(float(end)) for end in torch.aminmax(values))


def _clip(values: Tensor, most: float) -> None:
    """DGC's local clipping, of one tensor. What is not finite stays as it is, and goes plain."""
    norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
    if math.isfinite(norm) and norm > most:
        values.mul_(most / norm)


def _pay(values: Tensor, residual: Tensor) -> None:
    """To one rank alone, what codes for others have lost before."""
    if residual.numel() > 0:
        values += residual
        residual.zero_()


class SharedGrid:
    """THC: codes on a grid that all ranks share are added up by an all_reduce of bytes. The norms behind the grid are
    those of the step before, the largest of all ranks'; the first step goes as floats."""

    kinds: tuple[str, ...] = ("residual",)
    momentum = 0.0

    def __init__(self, bits: int, world: int) -> None:
        self._grid = torch.classes.ranvier.SharedGrid(bits, world)

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        if wire.world == 1:
            if _all_finite(values):
                _pay(values, memory.residual)
            return Went.CODED
        seed = number * 0x9E3779B1 % 2**32  # far apart: signs of neighbouring seeds are shifted ones
        owed = values + memory.residual
        spread = owed.clone()
        norms = self._grid.spread(spread, seed)
        wire.all_reduce(norms, dist.ReduceOp.MAX)
        if not _all_finite(norms):
            return Went.NOT
        if memory.norms_of == memory.sizes():  # else the norms are of another bucket, or there are none
            own = self._grid.encode(spread, memory.norms)
            total = own.clone()
            wire.all_reduce(total)
            memory.residual.copy_(owed - self._decoded(own, 1, memory, seed, values))
            values.copy_(self._decoded(total, wire.world, memory, seed, values)).mul_(1 / wire.world)
        else:
            Plain().average(wire, values, memory, number)
        memory.norms, memory.norms_of = norms, memory.sizes()
        return Went.CODED

    def _decoded(self, codes: Tensor, summed: int, memory: Memory, seed: int, like: Tensor) -> Tensor:
        values = torch.empty_like(like)
        self._grid.decode(codes, memory.norms, summed, values)
        self._grid.gather(values, seed)
        return values


class SharedScale:
    """SwitchML: integers of 8 bits on scales that all ranks agree on first, added up by an all_reduce."""

    kinds: tuple[str, ...] = ("residual",)
    momentum = 0.0

    def __init__(self, world: int) -> None:
        self._scale = torch.classes.ranvier.SharedScale(world)

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        if wire.world == 1:
            if _all_finite(values):
                _pay(values, memory.residual)
            return Went.CODED
        owed = values + memory.residual
        largest = self._scale.measure(owed)
        wire.all_reduce(largest, dist.ReduceOp.MAX)
        if not _all_finite(largest):
            return Went.NOT
        codes = self._scale.encode(owed, largest)
        self._scale.decode(codes, largest, 1.0, memory.residual)
        torch.sub(owed, memory.residual, out=memory.residual)
        wire.all_reduce(codes)
        self._scale.decode(codes, largest, 1 / wire.world, values)
        return Went.CODED


class DecoupledMomentum:
    """DeMo: the largest coefficients of each rank's momentum go to everybody, and are taken from it."""

    kinds: tuple[str, ...] = ("residual",)  # which is the momentum

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self.momentum = float(plan.decay())

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        rows = [parameter.shape[0] if parameter.dim() > 0 else 1 for parameter in memory.parameters]
        columns = [size // max(row, 1) for size, row in zip(memory.sizes(), rows, strict=True)]
        demo = self._plan.demo(rows, columns)
        code = demo.encode(values, memory.residual)
        codes = wire.gather(code, ("demo", values.numel(), code.numel()), code.numel())
        if demo.decode(torch.cat(codes), values):
            return Went.CODED
        demo.take_back(values, code, memory.residual)
        return Went.NOT
