"""A codec that has momentum takes the place of the optimizer's: by both, training diverges."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook


def require_no_other(spec: str, momentum: float, optimizer: Optimizer, groups: list[dict[str, Any]]) -> None:
    """Raises ValueError where the codec has this momentum, and the optimizer one of its own for these groups of parameters."""
    if any(each.get("momentum", 0) for each in groups):
        raise ValueError(f"'{spec}' has a momentum of {momentum:g} in the optimizer's place: make the optimizer with momentum=0")
    if any(float(each.get("betas", (0,))[0]) > 0 for each in groups):  # Adam's
        raise ValueError(
            f"'{spec}' has a momentum of {momentum:g} in the optimizer's place, and {type(optimizer).__name__} has one of its "
            "own (betas): take SGD with momentum=0, or a codec without, such as 'safe' or 'transformer'"
        )


class OnlyMomentum:
    """A codec's, in averages of gradients for optimizers that it is not told of: each is looked at before it first changes any of
    these parameters. Neither these nor optimizers are kept alive."""

    def __init__(self, spec: str, momentum: float) -> None:
        self._spec, self._momentum = spec, momentum
        self._met: set[int] = set()  # ids of parameters, which live as long as this
        self._left: set[int] = set()  # those of them that no optimizer has come for
        self._began: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # to step, some before their parameters were met
        self._look_from_now()

    def meet(self, parameters: list[Tensor]) -> None:
        """Of a bucket, before its average is given to any optimizer. Raises ValueError where one that has momentum computes it
        within its step, in a closure."""
        new = {id(parameter) for parameter in parameters} - self._met
        self._met |= new
        self._left |= new
        if not self._left:
            self.end()
        elif new:
            self._look_from_now()
            for optimizer in list(self._began):
                self.look(optimizer)

    def look(self, optimizer: Optimizer) -> None:
        """As its step begins. Raises ValueError where it has momentum for parameters that have been met."""
        mine = [each for each in optimizer.param_groups if any(id(p) in self._left for p in each["params"])]
        require_no_other(self._spec, self._momentum, optimizer, mine)
        self._left.difference_update(id(p) for each in mine for p in each["params"])
        self._began.add(optimizer)

    def end(self) -> None:
        _looking.discard(self)
        _watch()

    def _look_from_now(self) -> None:
        _looking.add(self)
        _watch()


_looking: weakref.WeakSet[OnlyMomentum] = weakref.WeakSet()
_hooks: list[Any] = []  # torch's, of all optimizers: one, while anybody looks


def _watch() -> None:
    """Called where no step of an optimizer begins: torch goes through such hooks then, and none may come or go."""
    if _looking and not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_look))
    while _hooks and not _looking:
        _hooks.pop().remove()


def _look(optimizer: Optimizer, *_: Any) -> None:
    for each in list(_looking):
        each.look(optimizer)
