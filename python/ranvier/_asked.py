"""What a policy asks for, as integrations/torch/policies.cc brings it: SyncAction in include/ranvier/sync.h."""

from __future__ import annotations

from typing import NamedTuple

PUSH = 2


class Asked(NamedTuple):
    what: int  # 0 gradients, 1 parameters, 2 push
    hops: int
    inside: int
    level: int
    rate: float
    momentum: float
    nesterov: bool
    by_learning_rate: bool

    @property
    def is_plain(self) -> bool:
        return self.rate == 1 and self.momentum == 0
