"""Parts of the parameters whose averages travel while training goes on, as streaming policies ask for: what
src/replica/fragments.cc does, over any process group. A thread makes the averages one behind the other, in the same order on
all ranks, over a group of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ranvier import _library
from ranvier._asked import Asked
from ranvier._groups import follow_in, group_like
from ranvier._streams import Behind
from ranvier._teams import CodedTeam, Team
from ranvier._worker import Worker

if TYPE_CHECKING:
    from concurrent.futures import Future


class Fragments:
    """Of these parameters, cut at their borders into `count` parts; `anchor` is where replicas last agreed. The ranks of
    `team` make it with the same `name`. Raises ValueError for more parts than parameters."""

    def __init__(
        self,
        team: Team,
        name: str,
        compress: str,
        parameters: list[Tensor],
        anchor: list[Tensor],
        momentum: list[Tensor],
        count: int,
    ) -> None:
        self._parts: list[list[int]] = []  # numbers of parameters
        for size in _library.load().cut_into_fragments([p.numel() for p in parameters], count):
            first = self._parts[-1][-1] + 1 if self._parts else 0
            self._parts.append(list(range(first, first + size)))
        self._parameters, self._anchor, self._momentum = parameters, anchor, momentum
        apart = group_like(team.group, f"{name}/fragments", "ranvier attach", team.ranks)
        self._team = Team(apart, team.ranks)
        self._coded: list[CodedTeam] = []
        if compress != "none":
            self._coded.append(CodedTeam(compress, self._team, self._of(parameters, 0)))
            self._coded += [self._coded[0].of(self._of(parameters, part)) for part in range(1, count)]
        self._changes: list[list[Tensor]] = [[] for _ in self._parts]  # of those under way
        self._averaging: list[Future[int] | None] = [None] * count
        self._given = [0] * count  # bytes, of those that state_dict() has waited for
        self._thread = Worker("ranvier-fragments", lasting=True)

    def begin(self, part: int, weight: float, closes: bool) -> None:
        """How far this rank has come in it starts on its way; what closes training leaves the codec out."""
        pairs = zip(self._of(self._anchor, part), self._of(self._parameters, part), strict=True)
        change = [anchor - parameter.detach() for anchor, parameter in pairs]
        self._changes[part] = change
        team = self._coded[part] if self._coded and not closes else self._team
        behind = Behind(change[0].device)

        def average() -> int:
            with behind.a_stream(), torch.no_grad():
                given = team.average(change, weight)
                float(change[0].sum())  # a device may have it still to do
            return given

        self._averaging[part] = self._thread.submit(average)

    def finish(self, asked: Asked) -> int:
        """Waits for that average, takes the outer step on it, and keeps a share `merge` of what this rank has made of the
        part meanwhile. The bytes given."""
        part = asked.fragment
        given, change = self.arrive(part)
        mine = (self._of(each, part) for each in (self._parameters, self._anchor, self._momentum))
        for parameter, anchor, momentum, c in zip(*mine, change, strict=True):
            anchor.sub_(asked.outer_step(c, momentum))
            kept = asked.merge * parameter.detach() if asked.merge > 0 else 0
            parameter.detach().copy_(kept + (1 - asked.merge) * anchor)
        return given

    def arrive(self, part: int) -> tuple[int, list[Tensor]]:
        """Waits for that average: the bytes given, and the mean of how far all have come."""
        given = self._wait(part)
        change, self._changes[part] = self._changes[part], []
        return given, change

    def follow(self, table: str) -> None:
        """Algorithms from now on, once those under way have come."""
        for each in self._averaging:
            if each is not None:
                each.result()
        follow_in(self._team.group, table)
        if self._coded:
            self._coded[0].follow(table)

    def meet(self) -> None:
        """Where all end: who waits for an average that others never begin is told that these run something else, if the group is
        of ranvier's. (By other kinds, threads would wait here, too.)"""
        device = self._parameters[0].device
        if _library.is_ours(self._team.group, device.type):
            self._thread.submit(lambda: self._team.told_by_each([0], device))

    def end(self) -> None:
        self._thread.end()

    def state_dict(self) -> dict[str, Any]:
        """Waits for what is under way, which is kept as it has arrived."""
        for part in range(len(self._parts)):
            self._given[part] = self._wait(part)
        changes = [[c.clone() for c in change] for change in self._changes]
        return {"changes": changes, "coded": [each.state_dict() for each in self._coded]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._changes = [
            [c.to(p.device) for c, p in zip(change, self._of(self._parameters, part), strict=False)]
            for part, change in enumerate(state["changes"])
        ]
        for each, record in zip(self._coded, state["coded"], strict=True):
            each.load_state_dict(record)

    def _wait(self, part: int) -> int:
        averaging, self._averaging[part] = self._averaging[part], None
        given, self._given[part] = self._given[part], 0
        return averaging.result() if averaging else given

    def _of(self, tensors: list[Tensor], part: int) -> list[Tensor]:
        return [tensors[number] for number in self._parts[part]]
