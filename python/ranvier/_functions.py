"""Two functions of torch.distributed ask for gloo by name before they call what every backend could have. Here they ask
for ranvier too. See docs/decisions/0005-two-functions-of-torch.md."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import Backend, ProcessGroup


def extend(torch_distributed: ModuleType) -> None:
    """Replaces monitored_barrier and _set_pg_timeout, which for other backends do what they did."""
    c10d = torch_distributed.distributed_c10d
    for name, extension in (("monitored_barrier", _monitored_barrier), ("_set_pg_timeout", _set_pg_timeout)):
        original = getattr(c10d, name, None)
        if original is None:  # both are torch's to rename
            continue
        extended = functools.wraps(original)(functools.partial(extension, c10d, original))
        for module in (c10d, torch_distributed):
            if getattr(module, name, None) is original:
                setattr(module, name, extended)


def _monitored_barrier(
    c10d: ModuleType,
    original: Callable[..., Any],
    group: ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> Any:
    if c10d._rank_not_in_group(group) or not (chosen := _ours(c10d, group)):
        return original(group, timeout, wait_all_ranks)
    if isinstance(timeout, (int, float)):
        timeout = timedelta(seconds=timeout)
    limit = {} if timeout is None else {"timeout": timeout}  # none: the group's own
    return chosen.monitored_barrier(**limit, wait_all_ranks=wait_all_ranks)


def _set_pg_timeout(
    c10d: ModuleType, original: Callable[..., Any], timeout: timedelta, group: ProcessGroup | None = None
) -> None:
    if c10d._rank_not_in_group(group) or not (chosen := _ours(c10d, group)):
        original(timeout, group)
        return
    others = 0
    for device in chosen._device_types:
        backend: Backend = chosen._get_backend(device)
        if backend.name() == "ranvier":
            backend.set_timeout(timeout)
        else:
            others += 1
    if others:
        original(timeout, group)


def _ours(c10d: ModuleType, group: ProcessGroup | None) -> Any:
    """The group, if ranvier serves its CPU tensors."""
    import torch

    chosen = c10d._get_default_group() if group is None else group
    cpu = torch.device("cpu")
    return chosen if cpu in chosen._device_types and chosen._get_backend(cpu).name() == "ranvier" else None
