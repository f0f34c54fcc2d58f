"""An average of parameters by what replicas have changed since the last one, and the outer step on that average (SlowMo, Wang
et al., ICLR 2020; DiLoCo, Douillard et al., 2023): OuterStep in include/ranvier/sync.h, over any process group."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier._asked import Asked
from ranvier._teams import CodedTeam, Team


def _squares(tensors: list[Tensor]) -> Tensor:
    """Their sum, in 32 bits at least: those of short types are below or beyond what these hold."""
    return torch.stack([t.to(torch.promote_types(t.dtype, torch.float32)).square().sum() for t in tensors]).sum()


class OuterStep:
    """`anchor` is where all replicas last agreed; `momentum` that of outer steps, none where these have none. Changes
    travel by `coded`, if there is one. `follows_rate`: ranks may differ in the rate of the inner steps, by which changes are
    counted."""

    def __init__(self, parameters: list[Tensor], has_momentum: bool, coded: CodedTeam | None, follows_rate: bool) -> None:
        self.anchor = [p.detach().clone() for p in parameters]
        self.momentum = [torch.zeros_like(p) for p in self.anchor] if has_momentum else []
        self._parameters, self._coded, self._follows_rate = parameters, coded, follows_rate

    def agree(self) -> None:
        """All replicas hold the same now."""
        for anchor, parameter in zip(self.anchor, self._parameters, strict=True):
            anchor.copy_(parameter.detach())

    def take(
        self, asked: Asked, team: Team, weight: float, average: Callable[[list[Tensor], Team | CodedTeam, float], None]
    ) -> float:
        """From the anchor by the mean change, as `average` makes it of all in `team`. Returns how far replicas had parted:
        the mean square of their distances from it, as a share of its own square."""
        if len(team.ranks) == 1 and asked.is_plain:
            return 0.0
        own = [anchor - p.detach() for anchor, p in zip(self.anchor, self._parameters, strict=True)]
        change = [c.clone() for c in own]
        average(change, self._coded or team, weight)
        if self._follows_rate and len(team.ranks) > 1:
            asked = self._agree_on_rate(asked, team, own[0].device)
        apart = _squares([a - b for a, b in zip(own, change, strict=True)])
        come = _squares(change)
        if len(team.ranks) > 1:
            dist.all_reduce(apart.mul_(weight), group=team.group)
        spread = float(apart) / len(team.ranks) / float(come) if float(come) > 0 else 0.0
        for parameter, anchor, c, momentum in zip(
            self._parameters, self.anchor, change, self.momentum or change, strict=True
        ):
            parameter.detach().copy_(anchor - asked.outer_step(c, momentum))
        return spread

    def _agree_on_rate(self, asked: Asked, team: Team, device: torch.device) -> Asked:
        told = torch.tensor([asked.unit / len(team.ranks), asked.is_plain], dtype=torch.float64, device=device)
        dist.all_reduce(told, group=team.group)
        unit, plain = told.tolist()
        return asked._replace(unit=unit) if plain == 0 else asked._replace(unit=1, rate=1, momentum=0)
