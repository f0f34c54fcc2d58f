"""Gradients over "udp:loss=…", whose sums go without the last packets: what was lost of a rank's own goes with the next
step's, as what a codec holds back does. docs/decisions/0014 has the reasons, src/exchange/lossy.cc the same in C++."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier import _library
from ranvier._exchanges import Exchange, Plain, Went
from ranvier._memory import Memory
from ranvier._nodes import exchange_over
from ranvier._wire import Wire


class Bounds(NamedTuple):
    """By a group's transport; nothing is lost where `loss` is 0, and ranks never differ where `resync` is."""

    loss: float
    resync: int


def bounds_of(group: dist.ProcessGroup) -> Bounds:
    if not _library.is_ours(group):
        return Bounds(0.0, 0)
    return Bounds(*_library.load().bounded_loss(group.boxed()))


def lost_share_of(wire: Wire) -> float:
    return _library.lost_share(wire.group) if bounds_of(wire.group).loss > 0 else 0.0


class Lossy(Plain):
    """An average that tolerates loss, of float32 on the CPU; of all else the exact one. With `may_differ` ranks are to be
    realigned every so many steps, as the transport says."""

    kinds: tuple[str, ...] = ("residual",)

    def __init__(self, may_differ: bool = False) -> None:
        self._may_differ = may_differ

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        self.start(wire, values, memory, number)()
        return Went.CODED

    def start(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Callable[[], None]:
        """The values are the average when what this returns has been called, which may be on another thread."""
        residual = memory.residual
        if values.dtype != torch.float32 or values.numel() != residual.numel() or wire.device.type != "cpu":
            super().average(wire, values, memory, number)  # residuals are of real numbers
            return lambda: None
        values += residual
        lost = memory.spare if memory.spare.numel() == values.numel() else torch.empty_like(values)
        began = _library.load().average_gradients(wire.group.boxed(), values, lost, self._may_differ)
        wire.bytes_sent += 2 * (wire.world - 1) * values.numel() * values.element_size() // wire.world

        def finish() -> None:
            dist.Work.unbox(began).wait()
            # Of a step that overflowed, and that nobody takes, everything is still owed.
            paid = values.numel() == 0 or all(math.isfinite(float(end)) for end in torch.aminmax(values))
            memory.residual, memory.spare = (lost, residual) if paid else (residual, lost)

        return finish


def exchange_of_gradients(wire: Wire, spec: str, may_differ: bool = False) -> Exchange:
    """As exchange_over, but of gradients: whose floats tolerate loss where the transport does."""
    if spec == "none" and bounds_of(wire.group).loss > 0:
        return Lossy(may_differ)
    return exchange_over(wire, spec)


def may_be_lost(parameters: list[Tensor], group: dist.ProcessGroup) -> bool:
    """Whether averages of their gradients over `group` tolerate loss: of no more than 32 bits, over ranvier's transport."""
    if bounds_of(group).loss == 0:
        return False
    by_ranvier = all(group._get_backend(p.device).name() == "ranvier" for p in parameters)
    return by_ranvier and all(torch.promote_types(p.dtype, torch.float32) == torch.float32 for p in parameters)
