"""What a policy asks for, as integrations/torch/policies.cc brings it: SyncAction in include/ranvier/sync.h."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

PARAMETERS, BEGIN_AVERAGE, FINISH_AVERAGE, PUSH, BEGIN_FRAGMENT, FINISH_FRAGMENT = range(1, 7)


class Asked(NamedTuple):
    what: int  # 0 gradients, or one of those above
    hops: int
    inside: int
    level: int
    rate: float
    momentum: float
    nesterov: bool
    unit: float
    fragment: int
    merge: float

    @property
    def is_plain(self) -> bool:
        return self.rate == 1 and self.momentum == 0

    def outer_step(self, change: Tensor, momentum: Tensor) -> Tensor:
        """What of `change`, how far replicas have come, they go on by; `momentum` is kept: OuterStep in
        include/ranvier/sync.h."""
        if self.is_plain:
            return change
        gradient = change / self.unit
        momentum.mul_(self.momentum).add_(gradient)
        direction = gradient + self.momentum * momentum if self.nesterov else momentum
        return self.rate * self.unit * direction
