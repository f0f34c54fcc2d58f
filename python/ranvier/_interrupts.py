"""Ctrl-C while C++ waits: see docs/decisions/0040."""

from __future__ import annotations

import atexit
from typing import Any

import torch.distributed as dist


class _Interrupts(dist.Store):  # type: ignore[misc]  # of torch's, which says nothing of its types
    """C++ calls check() now and then while the main thread waits. To enter a function is all that it takes for Python to run
    the handlers of signals that have come, and what they raise is what the call raises."""

    def check(self, keys: list[str]) -> bool:
        return True


_interrupts = _Interrupts()  # torch finds what is overridden only while Python holds it


def watch(operators: Any) -> None:
    """From now on signals interrupt this process's waits."""
    operators.set_interrupts(dist.ProcessGroup(_interrupts, 0, 1).boxed())
    # Not while the interpreter ends, whose functions are not there any more.
    atexit.register(operators.set_interrupts, None)
