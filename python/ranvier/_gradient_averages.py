"""Averages of gradients before a step under ranvier.attach, over the levels that its policy names: whose count, which
parameters anybody has used, and by which codec, or over "udp:loss=…" without the last packets, everybody's travel."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier._attachment import repeats_values
from ranvier._bounded import bounds_of, exchange_of_gradients, may_be_lost
from ranvier._memory import require_records
from ranvier._rates import Rates
from ranvier._teams import CodedTeam, Teams, Traffic
from ranvier._uneven import Uneven


class GradientAverages:
    """Of one attached model."""

    def __init__(
        self,
        parameters: list[Tensor],
        optimizer: torch.optim.Optimizer,
        policy: Any,
        compress: str,
        group: dist.ProcessGroup,
        teams: Teams,
        uneven: Uneven,
        traffic: Traffic,
        is_auto: bool,
    ) -> None:
        self.level = 0  # over which this step's were averaged, the last of them; 0: none were
        self._parameters, self._compress, self._group = parameters, compress, group
        self._teams, self._uneven, self._traffic = teams, uneven, traffic
        self._rates = Rates(optimizer)
        self._resync = 0  # every how many steps ranks that may differ meanwhile are realigned; 0: they may not
        self._apart = False  # whether ranks may differ since they were realigned
        self._unpaid: dict[str, Any] | None = None  # of a checkpoint whose gradients could be lost, where these cannot
        self._coded: CodedTeam | None = None
        team = teams.whole[teams.last]
        if team is None:
            return
        if compress != "none":
            self._coded = CodedTeam(compress, team, parameters)
        elif policy.gradient_level() == teams.last and may_be_lost(parameters, group):
            # Averages of parameters would need equal ones.
            self._resync = 0 if is_auto or policy.averages_parameters() else bounds_of(group).resync
            choose = partial(exchange_of_gradients, may_differ=self._resync > 0)
            self._coded = CodedTeam(compress, team, parameters, choose)

    def average(self, levels: Iterable[int], is_scaled: bool) -> tuple[bool, bool]:
        """Over these levels in turn; `is_scaled` says whether this rank's come by a GradScaler. Returns whether anybody's do,
        and whether there was any to average."""
        self.level, averaged = 0, False
        for level in levels:
            self.level = level
            anybody_scaled, averaged = self._average_over(level, is_scaled)
            is_scaled = is_scaled or anybody_scaled
        return is_scaled, averaged

    def step_ends(self, step: int) -> None:
        if self._resync == 0 or step % self._resync == 0:
            self.realign()

    def realign(self) -> None:
        """Ranks whose gradients were averaged without waiting for all of them get the same parameters, if they may differ."""
        if not self._apart:
            return
        self._apart = False
        if self._coded is None:  # of a checkpoint, over another transport
            self._traffic.average(self._parameters, self._teams.whole[self._teams.last], 1)
        else:
            self._traffic.count(self._coded.realign(self._parameters))

    def follow(self, table: str) -> None:
        """Algorithms from now on."""
        if self._coded is not None:
            self._coded.follow(table)

    def lost_share(self) -> float:
        return self._coded.lost_share() if self._coded is not None else 0.0

    def state_dict(self) -> dict[str, Any]:
        kept = self._coded.state_dict() if self._coded is not None else None
        return {"apart": self._apart, "coded": self._unpaid or kept}

    def require_state(self, state: dict[str, Any]) -> None:
        """Raises ValueError for that of other parameters, or of a rank with another part in the codec."""
        record = state["coded"]
        if self._compress != "none":
            require_same_part(record, self._coded)
        if record is None:
            return
        require_records(record["kept"], self._parameters, self._compress)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what state_dict gave."""
        self._apart = state["apart"]
        if self._coded is None:
            self._unpaid = state["coded"]
        elif state["coded"] is not None:
            self._coded.load_state_dict(state["coded"])

    def _average_over(self, level: int, is_scaled: bool) -> tuple[bool, bool]:
        """Of this rank's group of `level`."""
        members = self._teams.whole[level]
        assert members is not None
        coded = self._coded if level == self._teams.last else None
        is_alone = coded is None and len(members.ranks) == 1
        if not self._uneven.trains:
            for parameter in self._parameters:
                parameter.grad = None
        for parameter in self._parameters:
            if parameter.grad is not None and repeats_values(parameter.grad):
                parameter.grad = parameter.grad.contiguous()  # of its own, where an average can be written
        own_use = [p.grad is not None for p in self._parameters]
        gradients = [p.grad if p.grad is not None else _zeros_for(p) for p in self._parameters]
        if not is_alone and any(gradient.is_sparse for gradient in gradients):
            raise ValueError("a gradient is sparse, which attach() does not average: make the layer with sparse=False")
        # Of a parameter that nobody has used the optimizer is to know nothing, as before; of one that somebody has, all are to
        # know as much, also where the average is zero.
        marks, weights = own_use + self._rates.marks(), self._uneven.samples
        told = self._uneven.is_joining
        if told:
            own, mine = (self._uneven.own, marks) if self._uneven.trains else (0, [False] * len(marks))
            weights, (is_scaled, *marks) = self._uneven.tell(level, own, [is_scaled, *mine])
            if not any(weights):
                return is_scaled, False
        weight = self._teams.weight(0, level, weights)
        if self._unpaid and level == self._teams.last and weight > 0:
            self._pay(self._unpaid, gradients, weight)
            self._unpaid = None
            marks[: len(own_use)] = [True] * len(own_use)
        if coded:
            marks = marks if told else self._uneven.anybody_set(level, marks)
            self._apart = self._apart or self._resync > 0
            self._traffic.average(gradients, coded, weight)
        elif told or is_alone:
            self._traffic.average(gradients, members, weight)
        else:  # they travel together
            travelling = gradients[0].new_tensor(marks)
            self._traffic.average([*gradients, travelling], members, weight)
            marks = [mark != 0 for mark in travelling.tolist()]
        used = marks[: len(own_use)]
        if coded:
            coded.take_back(gradients, used)
        for parameter, gradient, is_used in zip(self._parameters, gradients, used, strict=True):
            if parameter.grad is None and is_used:
                parameter.grad = gradient
        if self._rates.differ(marks[len(own_use) :]):
            first = next(rank for rank in self._teams.members(level) if weights[rank] > 0)
            self._rates.agree(members, dist.get_global_rank(self._group, first))
        return is_scaled, True

    @staticmethod
    def _pay(unpaid: dict[str, Any], gradients: list[Tensor], weight: float) -> None:
        """What was lost before a checkpoint."""
        with torch.no_grad():
            for gradient, record in zip(gradients, unpaid["kept"], strict=True):
                for kind in ("residual", "owed"):
                    if record is not None and kind in record:
                        gradient += (record[kind] / weight).view_as(gradient).to(gradient)


def _zeros_for(parameter: Tensor) -> Tensor:
    """Of the type that its gradients have where they may have another one, as torch 2.10 and later let them."""
    return torch.zeros_like(parameter, dtype=getattr(parameter, "grad_dtype", None) or parameter.dtype)


def require_same_part(record: Any, coded: CodedTeam | None) -> None:
    """Raises ValueError for the record of a rank that gave to averages by a codec where this one does not, or the other way."""
    if (record is None) != (coded is None):
        raise ValueError("the state is of a rank that speaks for others, or of one that does not: load each rank's own")
