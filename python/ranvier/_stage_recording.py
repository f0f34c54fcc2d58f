"""What a step of a pipeline consists of, whose stages are unlike: the file has the one that computes longest, which the
others wait for, with the passes of all micro-batches.

Each rank records the module that is its stage, and stages stand in their group in their order, one on each rank. Passes are
alike: the last one of a step is measured, from when its input or gradient is there, so that waiting for other stages is not
computing. `ranvier simulate` counts what they wait for by `fills`, (stages - 1) / micro-batches.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier import _collectives, recording
from ranvier._collectives import Call


class StageRecording(recording.Recording):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._stages: dist.ProcessGroup = self._groups["pipeline"]
        self._begun_passes = 0  # of this step
        self._all_passes = 1
        self._backward_begun: Any = None
        self._sent = {"forward": 0, "input_gradient": 0}  # bytes of a step

    def _begin(self) -> None:
        if torch.is_grad_enabled():  # else shapes are found out, or it is an evaluation
            super()._begin()

    def _begins_step(self) -> bool:
        begins = self._begun == 0 or self._update_begin is not None
        self._begun_passes = 1 if begins else self._begun_passes + 1
        return begins

    def _see(self, call: Call | None, seconds: float) -> None:
        """Of what goes through all stages, one way or the other, the last of them only takes: as much as it would send."""
        own, last = self._stages.rank(), self._stages.size() - 1
        peer = None if call is None else call.to if call.source is None else call.source
        if call is None or call.role != "pipeline" or peer is None:
            super()._see(call, seconds)
        elif call.to is not None:
            self._sent["forward" if peer > own else "input_gradient"] += call.bytes
        elif own in (0, last):
            self._sent["forward" if peer < own else "input_gradient"] += call.bytes

    def _end_of_forward(self, output: Any) -> None:
        if not torch.is_grad_enabled():
            return
        for each in _collectives.tensors(output):
            if each.requires_grad:
                each.register_hook(self._begin_backward)
        super()._end_of_forward(output)

    def _begin_backward(self, _: Tensor) -> None:
        self._backward_begun = self._clock.now()

    def _backward_begin(self) -> Any:
        return self._backward_begun

    def _close_step(self, now: Any) -> None:
        self._step_begin = self._forward_begin  # passes before the last one count as it does, and not as what is beside
        closed = len(self._closed)
        super()._close_step(now)
        if len(self._closed) > closed:
            self._all_passes = self._begun_passes

    def _alike(self, own: recording.Medians) -> list[recording.Medians]:
        everyone = recording.gathered((self._stages.rank(), own))
        # Behind the optimizer later stages wait for the first one's next pass.
        other = min(theirs[1] for _, theirs in everyone)
        return [(theirs[0], other, theirs[2]) for stage, theirs in everyone if stage == self._stages.rank()]

    def _means(self) -> tuple[recording.Times, float, dict[int, float], int]:
        forward, other, ready, steps = super()._means()
        passes = self._all_passes
        return (
            {module: passes * seconds for module, seconds in forward.items()}, other,
            {number: passes * seconds for number, seconds in ready.items()}, steps,
        )  # fmt: skip

    def _origin(self, steps: int, world: int) -> str:
        stage = f"stage {self._stages.rank()} of {self._stages.size()}, which computes longest"
        return f"the median of {steps} steps of {self._all_passes} passes on {world} ranks; {stage}"

    def _own_keys(self) -> str:
        return f"fills = {(self._stages.size() - 1) / self._all_passes}\n"

    def _boundary(self, where: str) -> list[str]:
        return [recording.line(where, Call("send", "pipeline", self._sent[where]))]

    def _text(self, forward: recording.Times, other: float, ready: dict[int, float], steps: int) -> str:
        own = super()._text(forward, other, ready, steps)
        computing = sum(forward.values()) + max(ready.values())
        longest: tuple[float, str] = max(recording.gathered((computing, own)), key=lambda each: each[0])
        return longest[1]
