"""A codec that has momentum takes the place of the optimizer's: by both, training diverges."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def require_no_other(spec: str, momentum: float, optimizer: Optimizer, groups: list[dict[str, Any]]) -> None:
    """Raises ValueError where the codec has this momentum, and the optimizer one of its own for these groups of parameters."""
    if any(each.get("momentum", 0) for each in groups):
        raise ValueError(
            f"'{spec}' has a momentum of {momentum:g} in the optimizer's place: make the optimizer with momentum=0, and schedules "
            "such as OneCycleLR with cycle_momentum=False"
        )
    if any(float(each.get("betas", (0,))[0]) > 0 for each in groups):  # Adam's
        raise ValueError(
            f"'{spec}' has a momentum of {momentum:g} in the optimizer's place, and {type(optimizer).__name__} has one of its "
            "own (betas): take SGD with momentum=0, or a codec without, such as 'safe' or 'transformer'"
        )


class OnlyMomentum:
    """A codec's, in averages of gradients for optimizers that it is not told of: each is looked at before it changes a parameter
    by such an average. Neither parameters nor optimizers are kept alive."""

    def __init__(self, spec: str, momentum: float) -> None:
        self._spec, self._momentum = spec, momentum
        self._averaged: set[int] = set()  # ids of parameters, which live as long as this, since they were stepped last
        self._stepping: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        _looking.add(self)
        _watch()

    def meet(self, parameters: list[Tensor]) -> None:
        """Of a bucket, before its average is given to any optimizer. Raises ValueError where one that has momentum computes it
        within its step, in a closure."""
        self._averaged.update(map(id, parameters))
        for optimizer in list(self._stepping):
            self._look(optimizer)

    def begin(self, optimizer: Optimizer) -> None:
        """Its step. Raises ValueError where it has momentum for parameters whose gradients were averaged."""
        self._look(optimizer)
        self._stepping.add(optimizer)

    def finish(self, optimizer: Optimizer) -> None:
        self._stepping.discard(optimizer)
        if self._averaged:
            self._averaged.difference_update(id(p) for group in optimizer.param_groups for p in group["params"])

    def end(self) -> None:
        _looking.discard(self)
        _watch()

    def _look(self, optimizer: Optimizer) -> None:
        mine = [each for each in optimizer.param_groups if any(id(p) in self._averaged for p in each["params"])]
        require_no_other(self._spec, self._momentum, optimizer, mine)


_looking: weakref.WeakSet[OnlyMomentum] = weakref.WeakSet()
_hooks: list[Any] = []  # torch's, of all optimizers: two, while anybody looks


def _watch() -> None:
    """Called where no step of an optimizer begins or ends: torch goes through such hooks then, and none may come or go."""
    if _looking and not _hooks:
        begin: Any = torch.compiler.disable(_begin)  # where a program compiles its step
        finish: Any = torch.compiler.disable(_finish)
        _hooks.extend((register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(finish)))
    while _hooks and not _looking:
        _hooks.pop().remove()


def _begin(optimizer: Optimizer, *_: Any) -> None:
    for each in list(_looking):
        each.begin(optimizer)


def _finish(optimizer: Optimizer, *_: Any) -> None:
    for each in list(_looking):
        each.finish(optimizer)
