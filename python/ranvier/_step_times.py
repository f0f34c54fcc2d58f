"""What a rank's steps take, and what of that they wait for averages, to be compared with what a plan predicted: as the hook of
DistributedDataParallel sees them, and as ranvier.attach does."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from ranvier._streams import Clock

StepSeconds = tuple[float, float]  # what a step took, and of it what it waited for averages


class BucketTimes:
    """What steps of DistributedDataParallel take, by what its hook sees: from the first bucket of one step to that of the next,
    and what it waits for between the last bucket and all of them being back."""

    def __init__(self, device: torch.device) -> None:
        self._clock = Clock(device)
        self._began: Any = None
        self._ready: Any = None
        self._back: Any = None
        self._steps: list[tuple[Any, Any, Any, Any]] = []

    def step_begins(self, window: int) -> None:
        """Where the first bucket is ready. `window`: how many steps are wanted at most."""
        now = self._clock.now()
        if self._began is not None and self._back is not None:
            self._steps.append((self._began, now, self._ready or self._back, self._back))
            del self._steps[:-window]
        self._began, self._ready, self._back = now, None, None

    def last_is_ready(self) -> None:
        self._ready = self._clock.now()

    def one_is_back(self) -> None:
        """Buckets come back one behind the other."""
        self._back = self._clock.now()

    def last(self) -> list[StepSeconds]:
        """Of the window, or of as many as there are."""
        seconds = self._clock.seconds
        return [(seconds(begin, end), seconds(ready, back)) for begin, end, ready, back in self._steps]


class StepTimes:
    """What this rank's steps take, by the clock of its device: from the forward pass until the optimizer is through, and what is
    between two steps, of which the median counts for each, since now and then a program evaluates there."""

    def __init__(self, device: torch.device) -> None:
        self._clock = Clock(device)
        self._ended: Any = None  # the step before
        self._forward: Any = None  # where the model is called, and not only parts of it
        self._waits: list[tuple[Any, Any]] = []
        self._steps: list[tuple[Any, Any, Any, list[tuple[Any, Any]]]] = []

    def forward_begins(self) -> None:
        if self._forward is None:
            self._forward = self._clock.now()

    def waiting(self, average: Callable[[], object]) -> None:
        began = self._clock.now()
        average()
        self._waits.append((began, self._clock.now()))

    def step_ends(self, window: int) -> None:
        """`window`: how many are wanted at most."""
        now = self._clock.now()
        if self._ended is not None:
            self._steps.append((self._ended, self._forward or self._ended, now, self._waits))
            del self._steps[:-window]
        self._ended, self._forward, self._waits = now, None, []

    def last(self) -> list[StepSeconds]:
        """Of the window, or of as many as there are."""
        seconds = self._clock.seconds
        between = statistics.median(seconds(ended, begin) for ended, begin, _, _ in self._steps) if self._steps else 0.0
        return [
            (between + seconds(begin, end), sum(seconds(*wait) for wait in waits)) for _, begin, end, waits in self._steps
        ]
