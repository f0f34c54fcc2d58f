"""A slice of a bucket by scatter, reduce, gather of codes over any process group: what src/exchange/coded_slice.cc does over
ranvier's own connections. In three steps, between which it travels, so that other slices are encoded meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ranvier._memory import zeros
from ranvier._wire import LENGTH_BYTES, Wire, length_in, put_length


@dataclass
class Coding:
    """Of a bucket."""

    codec: Any
    sums: Any  # codes sums
    momentum: float
    seed: int  # another one for each bucket, slice and rank, with world * world + world behind it
    step: int
    sizes: list[int]  # of its tensors, where the codec chooses by tensor


class CodedSlice:
    def __init__(self, coding: Coding, wire: Wire, values: Tensor, residual: Tensor, velocity: Tensor, begin: int, key: Any) -> None:
        """`begin`: where in its bucket it begins. `key`: the same for the same slice in each step."""
        self._coding, self._wire = coding, wire
        self.values, self._residual, self._velocity = values, residual, velocity
        self._begin, self._key = begin, key
        borders = [values.numel() * rank // wire.world for rank in range(wire.world + 1)]
        self._parts = [slice(begin, end) for begin, end in zip(borders, borders[1:], strict=False)]
        self._own = self._parts[wire.rank]
        self._total = torch.empty(self._own.stop - self._own.start, dtype=torch.float32, device="cpu")
        self._result = torch.empty(0, dtype=torch.uint8, device="cpu")  # the code of the sum; empty: it has none
        # With a residual, which takes what a code cuts off, sums are coded as they are.
        self._scale = coding.sums.sum_scale(wire.world) if residual.numel() == 0 else 1.0

    def scatter(self) -> None:
        coding = self._coding
        self._codes = [
            torch.empty(0, dtype=torch.uint8, device="cpu")
            if rank == self._wire.rank
            else coding.codec.encode(
                self.values[part], self._residual[part], self._velocity[part], coding.seed + rank, coding.step,
                coding.sizes, self._begin + part.start,
            )
            for rank, part in enumerate(self._parts)
        ]  # fmt: skip
        most = [coding.codec.max_bytes(part.stop - part.start) for part in self._parts]
        self._scattering = self._wire.start_exchange(self._codes, ("scatter", self._key), most)

    def reduce(self) -> None:
        arrived = self._scattering.wait()
        self._has_come = arrived is not None
        if arrived is not None:
            self._add_up(arrived)
        self._start_gather()

    def finish(self) -> bool:
        """False where a value had no code: values, and what is held back, are as they were."""
        answers = self._gathering.wait()
        if not self._scattering.all_have_come([length_in(answer) for answer in answers]):
            arrived = self._wire.exchange(self._codes)
            if not self._has_come:  # else momentum and what is held back have the sum already
                self._add_up(arrived)
            self._start_gather()
            answers = self._gathering.wait()
        results = [answer[LENGTH_BYTES:] for answer in answers]
        filled = [(code, part) for code, part in zip(results, self._parts, strict=True) if part.stop > part.start]
        if any(code.numel() == 0 for code, _ in filled):
            self._restore()
            return False
        for code, part in filled:
            self._coding.sums.decode(code, self.values[part], False)
        self.values.mul_(1 / (self._wire.world * self._scale))
        return True

    def _start_gather(self) -> None:
        """The sum's code, and in front of it the longest code that came for it."""
        longest = max(map(_size, self._parts))
        most = LENGTH_BYTES + self._coding.sums.max_bytes(longest)
        answer = torch.empty(LENGTH_BYTES + self._result.numel(), dtype=torch.uint8, device="cpu")
        put_length(answer, self._scattering.longest)
        answer[LENGTH_BYTES:] = self._result
        self._gathering = self._wire.start_gather(answer, ("gather", self._key), most)

    def _add_up(self, arrived: list[Tensor]) -> None:
        """In the order of ranks: the sum does not depend on who came first."""
        rank, own, velocity, total = self._wire.rank, self._own, self._velocity, self._total
        if total.numel() == 0 or any(code.numel() == 0 for each, code in enumerate(arrived) if each != rank):
            return
        if velocity.numel() > 0 and not has_code(self.values[own]):
            return  # momentum would keep it for long
        for each, code in enumerate(arrived):
            if each != rank:
                self._coding.codec.decode(code, total, each > 0)
                continue
            addend = self.values[own]
            if velocity.numel() > 0:
                addend = velocity[own].mul_(self._coding.momentum).add_(addend)
            if each > 0:
                total += addend
            else:
                total.copy_(addend)
        if self._scale != 1:
            total.mul_(self._scale)
        coding, world = self._coding, self._wire.world
        self._result = coding.sums.encode(
            total, self._residual[own], zeros(), coding.seed + world * world, coding.step, coding.sizes,
            self._begin + own.start,
        )  # fmt: skip

    def _restore(self) -> None:
        """The values go plain: residual + values - decoded becomes the residual of before."""
        if self._residual.numel() == 0:
            return
        for rank, (part, code) in enumerate(zip(self._parts, self._codes, strict=True)):
            is_own = rank == self._wire.rank
            coded, codec = (self._total, self._coding.sums) if is_own else (self.values[part], self._coding.codec)
            code = self._result if is_own else code
            if code.numel() > 0:
                decoded = torch.empty_like(coded)
                codec.decode(code, decoded, False)
                self._residual[part] += decoded - coded
        # Of this rank's own part the sum had velocity, of which only the gradient goes plain.
        if self._velocity.numel() > 0 and self._result.numel() > 0:
            self._residual[self._own] += self._velocity[self._own] - self.values[self._own]


def _size(part: slice) -> int:
    return int(part.stop - part.start)


def has_code(values: Tensor) -> bool:
    """What NaN, infinities and values beyond 2^50 have not."""
    return values.numel() == 0 or all(abs(float(end)) <= 2**50 for end in torch.aminmax(values))
