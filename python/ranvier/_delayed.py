"""An average of parameters that travels while steps go on, and that replicas take up later without losing those: begin() and
finish() of src/replica/parameter_average.cc, over any process group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ranvier._fragments import Fragments
from ranvier._teams import Team


class Delayed:
    """Of what `leaders`, of which this rank may be none, hold at begin(); each tells those `inside` its group what came of it.
    `anchor` is where all replicas last agreed, and then where their averages were."""

    def __init__(
        self,
        leaders: Team | None,
        inside: Team | None,
        name: str,
        compress: str,
        parameters: list[Tensor],
        anchor: list[Tensor],
    ) -> None:
        self._inside, self._parameters, self._anchor = inside, parameters, anchor
        self._changes = Fragments(leaders, name, compress, parameters, anchor, [], 1) if leaders is not None else None
        self._sent: list[Tensor] = []
        self._is_under_way = False

    def begin(self, weight: float) -> None:
        self._is_under_way = True
        if self._changes is not None:
            self._sent = [p.detach().clone() for p in self._parameters]
            self._changes.begin(0, weight, closes=False)

    def finish(self) -> int:
        """Waits for that average; parameters move by how far it is from what was sent. The bytes given."""
        if not self._is_under_way:
            return 0
        self._is_under_way = False
        given = 0
        moves = [torch.empty_like(p) for p in self._parameters]
        if self._changes is not None:
            given, change = self._changes.arrive(0)
            for move, anchor, sent, c in zip(moves, self._anchor, self._sent, change, strict=True):
                move.copy_(anchor.sub_(c) - sent)
            self._sent = []
        if self._inside is not None:
            self._inside.tell(moves)
        for parameter, move in zip(self._parameters, moves, strict=True):
            parameter.detach().add_(move)
        return given

    def follow(self, table: str) -> None:
        """Algorithms from now on, once one that is under way has come."""
        if self._changes is not None:
            self._changes.follow(table)

    def meet(self) -> None:
        """As that of fragments."""
        if self._changes is not None:
            self._changes.meet()

    def end(self) -> None:
        """One that is under way comes too late."""
        self._is_under_way = False
        if self._changes is not None:
            self._changes.end()

    def state_dict(self) -> dict[str, Any]:
        """Waits for what is under way, which is kept as it has arrived."""
        changes = self._changes.state_dict() if self._changes is not None else None
        return {"under_way": self._is_under_way, "sent": [t.clone() for t in self._sent], "changes": changes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._changes is not None:
            self._changes.load_state_dict(state["changes"])
        self._is_under_way = state["under_way"]
        self._sent = [t.to(p.device) for t, p in zip(state["sent"], self._parameters, strict=False)]
