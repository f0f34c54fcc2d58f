"""A codec that has momentum takes the place of the optimizer's: by both, training diverges."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

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
    """A codec's, in averages of gradients for optimizers that it is not told of: each is looked at before it changes any of
    these parameters. Neither these nor optimizers are kept alive."""

    def __init__(self, spec: str, momentum: float) -> None:
        self._spec, self._momentum = spec, momentum
        self._met: set[int] = set()  # ids of parameters, which live as long as this
        # Those that have begun to step, some before their parameters were met, and which of their groups have some of these.
        self._mine: weakref.WeakKeyDictionary[Optimizer, _Mine] = weakref.WeakKeyDictionary()
        _looking.add(self)
        _watch()

    def meet(self, parameters: list[Tensor]) -> None:
        """Of a bucket, before its average is given to any optimizer. Raises ValueError where one that has momentum computes it
        within its step, in a closure."""
        new = {id(parameter) for parameter in parameters} - self._met
        if not new:
            return
        self._met |= new
        began = list(self._mine)
        self._mine.clear()
        for optimizer in began:
            self.look(optimizer)

    def look(self, optimizer: Optimizer) -> None:
        """As its step begins. Raises ValueError where it has momentum for parameters that have been met."""
        groups = optimizer.param_groups
        mine = self._mine.get(optimizer)
        if mine is None or mine.all is not groups or mine.length != len(groups):
            numbers = [i for i, each in enumerate(groups) if any(id(p) in self._met for p in each["params"])]
            mine = self._mine[optimizer] = _Mine(groups, len(groups), numbers)
        require_no_other(self._spec, self._momentum, optimizer, [groups[i] for i in mine.numbers])

    def end(self) -> None:
        _looking.discard(self)
        _watch()


class _Mine(NamedTuple):
    all: list[dict[str, Any]]  # another list once the optimizer has loaded a state
    length: int
    numbers: list[int]


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
