"""The C++ library: loading it, and the operators that it adds to torch."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ranvier import _interrupts, settings
from ranvier._declining import telling_whoever_comes
from ranvier._parts import library_for
from ranvier._worker import end_lasting, tell_to_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed import Backend, ProcessGroup, Store


A_MOMENT_S = 0.3  # for threads that waited when the process ends


# Groups of ranvier's own that work for a group of the program's.
_beside: weakref.WeakKeyDictionary[ProcessGroup, weakref.WeakSet[ProcessGroup]] = weakref.WeakKeyDictionary()
# Those that no group of torch's has: of connect_apart().
_apart: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()


def connect(
    store: Store,
    rank: int,
    world: int,
    timeout: timedelta,
    options: settings.Options = settings.Options(),
    world_ranks: Sequence[int] = (),
    name: str = "",
) -> Backend:
    """Meets the other ranks through `store`. Of a group, `world_ranks` are its members; errors call it by its `name`.
    Raises DistBackendError naming the ranks that did not come."""
    return _connect(store, rank, world, timeout, options, world_ranks, name)._get_backend(torch.device("cpu"))


def connect_apart(
    store: Store, rank: int, timeout: timedelta, options: settings.Options, world_ranks: Sequence[int], name: str
) -> ProcessGroup:
    """The same, for operators alone: torch knows of no such group. It ends with its last reference."""
    carrier = _connect(store, rank, len(world_ranks), timeout, options, world_ranks, name)
    _apart.add(carrier)
    return carrier


def _connect(
    store: Store,
    rank: int,
    world: int,
    timeout: timedelta,
    options: settings.Options,
    world_ranks: Sequence[int],
    name: str,
) -> ProcessGroup:
    # A ProcessGroup is what torch can box, and it brings the store along, whatever store that is.
    carrier = dist.ProcessGroup(store, rank, world)
    is_part = dist.is_initialized() and world < dist.get_world_size()
    with telling_whoever_comes(store, rank, world, timeout):
        operators = load()
        chosen = settings.for_group(timeout, options, is_part)
        if world_ranks:
            chosen["world_ranks"] = ",".join(map(str, world_ranks))
        chosen["name"] = name
        operators.check_settings(chosen)
    operators.attach(carrier.boxed(), chosen)  # which tells them itself
    return carrier


def tell_of_failure() -> bool:
    """If an exception ends this process, its groups end, and the other ranks are told which; whether one does."""
    error = _ended_by()
    if error is None:
        return False
    said = f"{type(error).__name__}: {_first_line(error)}".removesuffix(": ")
    for group in _groups():
        load().abort(group.boxed(), f"rank {group.rank()} ended with {said}")
    return True


def _ended_by() -> BaseException | None:
    """The exception that ends this process."""
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_exc", getattr(sys, "last_value", None))
    return error if isinstance(error, BaseException) else None


def leave() -> None:
    """Ends all groups of this process; if an exception ends it, the other ranks are told which."""
    groups = _groups()
    failed = tell_of_failure()
    if not failed:
        end_lasting()
    for group in groups:
        if not failed and group in _apart:  # others may wait for what this rank alone could still do
            load().abort(group.boxed(), f"rank {group.rank()} ended before finish() of what attach() gave")
        try:
            group.shutdown()
        except RuntimeError as mismatch:  # at the end of the process there is nobody to raise it to
            print(f"ranvier: {mismatch}", file=sys.stderr)
    workers = tell_to_end()
    _let_return([each for each in threading.enumerate() if each.daemon] if groups else workers)
    if any(each.is_alive() for each in workers):
        _end_at_once()


def _end_at_once() -> None:
    """Where an exception has ended the program, whose status is known, while a worker waits in a group that is not ranvier's and
    cannot be aborted: it might come back in the midst of the interpreter's end."""
    if error := _ended_by():
        logging.shutdown()  # it was registered before this, and what else was is left out
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(130 if isinstance(error, KeyboardInterrupt) else 1)


def _groups() -> list[ProcessGroup]:
    """That ranvier serves, of this process."""
    groups = list(_apart)
    if dist.is_initialized():
        groups += [each for each in dist.distributed_c10d._world.pg_map if isinstance(each, dist.ProcessGroup) and is_ours(each)]
    return groups


def _let_return(threads: list[threading.Thread]) -> None:
    """Daemon threads that waited in a group come out of C++ now. One that asks for the interpreter when that is ending is
    unwound by Python through frames that cannot be, which ends the process by SIGABRT. Others cost a moment."""
    deadline = time.monotonic() + A_MOMENT_S
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


def lost_share(group: ProcessGroup | None = None) -> float:
    """Of what other ranks gave to this rank's sums over udp:loss=…, the share that these went without, since the group
    was made: from 0 to 1, and 0 where every byte arrives. Sums of ranvier.hook and ranvier.attach count as the group's that
    these were given. None: the default group. Raises ValueError where ranvier does not serve the group's CPU
    tensors, TypeError for what is no group."""
    if group is not None:
        require_group(group)
    chosen = dist.distributed_c10d._get_default_group() if group is None else group
    due, missing = load().losses(chosen.boxed())
    for each in _beside.get(chosen, ()):
        if each in dist.distributed_c10d._world.pg_map:
            more_due, more_missing = load().losses(each.boxed())
            due, missing = due + more_due, missing + more_missing
    return missing / due if due else 0.0


def require_group(group: Any) -> None:
    """Raises TypeError for what is none, ValueError for what torch gives ranks that are not in it."""
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this rank is not in the group: only those that are call with it")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"a group is a torch.distributed.ProcessGroup, and this is {group!r}: give one that new_group() has made, or, of a "
            "DeviceMesh, get_group() of it"
        )


def count_beside(group: ProcessGroup, made: ProcessGroup) -> None:
    """What is lost in `made`, which works for `group`, is told with the group's own."""
    _beside.setdefault(group, weakref.WeakSet()).add(made)


def is_ours(group: ProcessGroup, kind: str = "cpu") -> bool:
    """Whether ranvier serves its tensors on devices of that kind."""
    device = torch.device(kind)
    return device in group._device_types and group._get_backend(device).name() == "ranvier"


# What TORCH_DISTRIBUTED_DEBUG=DETAIL puts around a backend.
_Wrapper: type = getattr(dist.distributed_c10d, "_ProcessGroupWrapper", type(None))


def is_in_reach(group: ProcessGroup) -> bool:
    """Whether ranvier serves its CPU tensors, and nothing of torch's stands around that."""
    return is_ours(group) and not isinstance(group._get_backend(torch.device("cpu")), _Wrapper)


@cache
def load() -> Any:
    """The operators of the library, `torch.ops.ranvier`. Raises RuntimeError where it was built for another torch."""
    torch.ops.load_library(str(library_for(torch.__version__)))
    operators = torch.ops.ranvier
    _interrupts.watch(operators)
    return operators


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
