"""Learning rates of ranks whose gradients are one average. Where they differ, as by a scheduler that goes by each rank's own
loss (ReduceLROnPlateau), one gradient would move each replica by another step, and nothing would bring them together again."""

from __future__ import annotations

import math
import operator
import struct
import warnings
import zlib

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier._teams import Team

BITS = 16  # of a checksum: of so many other rates one goes unnoticed until they change again


class Rates:
    """Of one optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._known: list[float] = []
        self._marks: list[bool] = []
        self._has_warned = False

    def marks(self) -> list[bool]:
        """Of this rank's rates. Of marks that any of several ranks has set, differ() tells whether their rates do."""
        rates = self._now()
        if rates != self._known or not self._marks:
            told = zlib.crc32(struct.pack(f"{len(rates)}d", *rates))
            bits = [bool(told >> number & 1) for number in range(BITS)]
            self._known, self._marks = rates, [*bits, *(not bit for bit in bits)]
        return self._marks

    @staticmethod
    def differ(marks: list[bool]) -> bool:
        return any(map(operator.and_, marks[:BITS], marks[BITS:]))

    def agree(self, team: Team, source: int) -> None:
        """Those of `source` become this rank's. Every rank of the team calls. Raises ValueError where they cannot."""
        everybodys: list[list[float]] = [[] for _ in team.ranks]
        dist.all_gather_object(everybodys, self._now(), group=team.group)
        own, theirs = self._now(), everybodys[team.ranks.index(source)]
        for rank, each in zip(team.ranks, everybodys, strict=True):
            if len(each) != len(theirs):
                raise ValueError(
                    f"the optimizer of rank {rank} has {len(each)} groups of parameters and that of rank {source} has "
                    f"{len(theirs)}, with other learning rates: make the same groups on every rank"
                )
        if not self._has_warned and not all(map(math.isclose, own, theirs)):
            self._has_warned = True
            warnings.warn(
                f"the learning rates of ranks that average gradients differ, which would part their models: this rank takes "
                f"{theirs}, those of rank {source}, and not {own}. Give a scheduler that goes by a loss (ReduceLROnPlateau) "
                "the mean over the ranks, and step schedulers on all of them",
                stacklevel=2,
            )
        for settings, rate in zip(self._optimizer.param_groups, theirs, strict=True):
            if isinstance(settings.get("lr"), Tensor):
                settings["lr"].fill_(rate)
            elif "lr" in settings:
                settings["lr"] = rate

    def _now(self) -> list[float]:
        return [float(each.get("lr", 1.0)) for each in self._optimizer.param_groups]
