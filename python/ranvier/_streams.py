"""A GPU does what a program asks of it later, in the order of a stream: when it is, and for another thread, which has
streams of its own, none of which waits for another by itself."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

_own = threading.local()  # streams, by device


class Behind:
    """What `device` has been told to do on the current stream, when this is made. A CPU has done it already."""

    def __init__(self, device: torch.device) -> None:
        self.devices = [] if device.type == "cpu" else [device]  # as a Future wants them
        self._device = device
        self._module: Any = torch.get_device_module(device) if self.devices else None
        self._event = None if self._module is None else self._module.current_stream(device).record_event()

    def a_stream(self) -> AbstractContextManager[Any]:
        """One of the calling thread's own, which comes after what this is behind, on whatever thread that was."""
        if not self.devices:
            return nullcontext()
        # Not a new one each time: torch hands out 32 in turn, and keeps what was freed on each for that one alone.
        own, name = vars(_own), str(self._device)
        if name not in own:
            own[name] = self._module.Stream(self._device)
        stream = own[name]
        stream.wait_event(self._event)
        context: AbstractContextManager[Any] = self._module.stream(stream)
        return context


def on_host(values: Tensor) -> Tensor:
    """The tensor itself, or of another device a copy in page-locked memory, which the bus fills several times faster."""
    if values.device.type == "cpu":
        return values
    room = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)
    return room.copy_(values)


class Clock:
    """When `device` gets to what it is asked for on the current stream: of a CPU, that is now."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = None if device.type == "cpu" else torch.get_device_module(device)

    def now(self) -> Any:
        """A moment, for seconds()."""
        if self._module is None:
            return time.perf_counter()
        event = self._module.Event(enable_timing=True)
        event.record(self._module.current_stream(self._device))
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two moments. Waits until the later one has come."""
        if self._module is None:
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000
