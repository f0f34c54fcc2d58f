"""Two functions of torch.distributed and a method of its groups ask for backends by name before they call what every
backend could have: here they ask for ranvier too. A third function names no default backend for groups by device type
once a backend such as ranvier is registered: here it does. And backends get a method that torch calls of any that can
split. See docs/decisions/0008-functions-of-torch.md."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import Backend, ProcessGroup

# Whether the group that is being made is served by ranvier and no other: then pg_options are not another backend's.
is_alone: ContextVar[bool] = ContextVar("ranvier alone", default=False)


def extend(torch_distributed: ModuleType) -> None:
    """Replaces three functions and a method, and adds one. For other backends they do what they do where ranvier is not
    installed."""
    c10d = torch_distributed.distributed_c10d
    extensions: dict[str, Callable[..., Any]] = {
        "monitored_barrier": _monitored_barrier,
        "_set_pg_timeout": _set_pg_timeout,
        "_new_process_group_helper": _new_process_group_helper,
    }
    for name, extension in extensions.items():
        original = getattr(c10d, name, None)
        if original is None:  # all are torch's to rename
            continue
        extended = functools.wraps(original)(functools.partial(extension, c10d, original))
        for module in (c10d, torch_distributed):
            if getattr(module, name, None) is original:
                setattr(module, name, extended)
    _extend_groups(c10d)
    _extend_backends(torch_distributed)


def _extend_groups(c10d: ModuleType) -> None:
    name = "_get_sequence_number_for_group"
    original = getattr(c10d.ProcessGroup, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def extended(group: ProcessGroup) -> Any:
        # "custom" is what the default backend is called that is none of torch's own: beside one, ranvier may not be it.
        if group.name() != "custom" or not _ours(c10d, group):
            return original(group)
        return group._get_backend(_cpu())._get_sequence_number_for_group()

    setattr(c10d.ProcessGroup, name, extended)


def _extend_backends(torch_distributed: ModuleType) -> None:
    """Where the world is bound to a device (init_process_group(device_id=…)), torch has those that a new group leaves out
    split its backend as well, which NCCL needs and others that can split have no method for."""
    name = "perform_nocolor_split"
    base = torch_distributed._Backend
    if hasattr(base, name):
        return

    def extended(backend: Backend, device: object) -> None:
        if backend.name() != "ranvier":
            raise AttributeError(f"'{type(backend).__name__}' object has no attribute '{name}'")

    setattr(base, name, extended)


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


def _new_process_group_helper(c10d: ModuleType, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    given = inspect.signature(original).bind(*arguments, **named).arguments
    alone = {each.rpartition(":")[2] for each in str(given.get("backend")).split(",")} == {"ranvier"}
    token = is_alone.set(alone)
    try:
        made = original(*arguments, **named)
    finally:
        is_alone.reset(token)
    group = made[0]
    if isinstance(group, c10d.ProcessGroup) and group.name() == "undefined":
        kinds = c10d.ProcessGroup.BackendType
        if "ranvier" in c10d.BackendConfig(c10d._world.pg_map[group][0]).device_backend_map.values():
            group._set_default_backend(kinds.CUSTOM)
        elif set(c10d.Backend._plugins) == {"RANVIER"}:  # else torch would have named none without ranvier either
            group._set_default_backend(kinds.GLOO)
    return made


def _ours(c10d: ModuleType, group: ProcessGroup | None) -> Any:
    """The group, if ranvier serves its CPU tensors."""
    chosen = c10d._get_default_group() if group is None else group
    cpu = _cpu()
    return chosen if cpu in chosen._device_types and chosen._get_backend(cpu).name() == "ranvier" else None


def _cpu() -> Any:
    import torch

    return torch.device("cpu")
