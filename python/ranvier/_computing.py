"""What a rank's steps take to compute, from the model's first forward pass to its gradients: without what loads samples,
evaluates, writes checkpoints, or waits for others."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn

from ranvier._streams import Clock


class Computing:
    """Of a model on `device`, by that device's clock. The first step warms up, and is not counted."""

    def __init__(self, device: torch.device) -> None:
        self._clock = Clock(device)
        self._began: Any = None
        self._has_forward = False  # since the last step
        self._spans: list[tuple[Any, Any]] = []

    def step_ends(self) -> None:
        """Computing counts from here where the model is never called itself, but parts of it are."""
        self._began, self._has_forward = self._clock.now(), False

    def forward_begins(self) -> None:
        if self._began is not None and not self._has_forward:
            self._began, self._has_forward = self._clock.now(), True

    def has_gradients(self) -> None:
        if self._began is not None:
            self._spans.append((self._began, self._clock.now()))
        self._began = None

    def took(self) -> list[float]:
        """Seconds, of the steps since the last call."""
        spans, self._spans = self._spans, []
        return [self._clock.seconds(begin, end) for begin, end in spans]


class Told(Protocol):
    def forward_begins(self) -> None: ...


class Watch:
    """The model's forward pre-hook. A copy of the model, pickled or not, has one that tells nobody."""

    def __init__(self, told: Told | None = None) -> None:
        self._told = told

    def __call__(self, model: nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling():
            return  # part of a graph, which has no clock
        if self._told and model.training and torch.is_grad_enabled():
            self._told.forward_begins()

    def __reduce__(self) -> tuple[type[Watch], tuple[()]]:
        return Watch, ()
