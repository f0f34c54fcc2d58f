"""ranvier.attach(sync="auto"): by what was measured, whether all average gradients in every step, or those of a node,
and nodes their parameters every 16 steps. Decided in C++ (include/ranvier/choose_policy.h), alike on all ranks."""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier import _library
from ranvier._computing import Computing
from ranvier._teams import Teams

FIRST = 10  # steps before it decides
AGAIN = 100  # steps from one decision to the next, where nobody knows how many an epoch has
RARELY = 100  # times as long as exchanges take to measure it goes on without measuring them again
TIMES = 3  # at most, of which the shortest counts, since a core that others use makes any of them longer; …
ENOUGH = 0.005  # … what takes so many seconds is not done again

# Both of the same levels, so that the groups of one serve the other.
SPECS = {"bsp": "hierarchy:node=1,world=1", "node:16": "hierarchy:node=1,world=16"}


class Auto:
    """What one rank has measured, and what all have decided by it."""

    def __init__(self, group: dist.ProcessGroup, teams: Teams, parameters: list[Tensor], period: int) -> None:
        self.name = "bsp"
        self._group, self._teams, self._parameters = group, teams, parameters
        self._period = period or AGAIN
        self._world = dist.get_world_size(group)
        self.computing = Computing(parameters[0].device)
        self._last = [1.0, 0.0, 1.0, 0.0]  # the median step's, how many are late, how late, and of how many
        self._exchanges = [0.0, 0.0]  # seconds of an average inside nodes, and of one of everybody's
        self._timed, self._timing = float("-inf"), 0.0

    @property
    def spec(self) -> str:
        return SPECS[self.name]

    def is_due(self, step: int) -> bool:
        return self._world > 1 and (step == FIRST or (step > FIRST and step % self._period == 0))

    def choose(self) -> tuple[str, str]:
        """The policy from now on, and why. Every rank calls."""
        reports = self._collect(self._report())
        steps, shares, factors, counts = ([report[i] for report in reports] for i in range(4))
        late = sum(shares)
        factor = sum(share * factor for share, factor in zip(shares, factors, strict=True)) / late if late > 0 else 1.0
        if self._is_timing_due():
            began = time.perf_counter()
            self._exchanges = [self.seconds_of(level) for level in (1, 2)]
            self._timed = time.perf_counter()
            self._timing = self._timed - began
        chosen: tuple[str, str] = _library.load().choose_in_step(
            steps, late / self._world, factor, sum(counts), self._teams.groups(1), *self._exchanges, self.name
        )
        self.name = chosen[0]
        return chosen

    def seconds_of(self, level: int) -> float:
        """What averaging all parameters takes in every group of `level` at once."""
        team = self._teams.whole[level]
        assert team is not None
        copies = [p.detach().clone() for p in self._parameters]
        shortest, spent = float("inf"), 0.0
        for _ in range(TIMES):
            self._together(0.0)
            began = time.perf_counter()
            if len(team.ranks) > 1:
                team.average(copies, 1)
                float(copies[0].sum())  # a device may have it still to do
            took = self._together(time.perf_counter() - began)
            shortest, spent = min(shortest, took), spent + took
            if spent >= ENOUGH:
                break
        return shortest

    def _report(self) -> list[float]:
        """Of the steps since the last one; of a rank that has taken none, what it said before."""
        if took := self.computing.took():
            median = max(statistics.median(took), 1e-9)
            late = [each / median for each in took if each > 2 * median]
            self._last = [median, len(late) / len(took), statistics.fmean(late) if late else 1.0, len(took)]
        return self._last

    def _is_timing_due(self) -> bool:
        """As rank 0 sees it: links change more rarely than the pace of workers."""
        due = time.perf_counter() - self._timed > RARELY * self._timing
        return self._collect([float(due)])[0][0] > 0

    def _together(self, seconds: float) -> float:
        """The most of all ranks, which have then all come here."""
        return max(each[0] for each in self._collect([seconds]))

    def _collect(self, own: list[float]) -> list[list[float]]:
        mine = torch.tensor(own, dtype=torch.float64, device=self._parameters[0].device)
        everybodys = [torch.empty_like(mine) for _ in range(self._world)]
        dist.all_gather(everybodys, mine, group=self._group)
        return [each.tolist() for each in everybodys]
