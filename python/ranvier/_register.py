"""Registers the backend with torch.distributed. Cheap, since `import torch` runs it, through _ranvier_autoload, wherever
ranvier is installed."""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, Any

from ranvier._functions import extend, is_alone
from ranvier.settings import Options, combined

if TYPE_CHECKING:
    import torch

# torch is imported inside functions: `import torch` itself imports this module, possibly from within `import ranvier`.

# By a group's name: what a group of the same kind, such as a hook's own, is to be made with.
made_with: dict[str, Options] = {}


def register() -> None:
    """Makes "ranvier" known to `torch.distributed.init_process_group`. More than once does no harm."""
    import torch
    import torch.distributed as dist

    if not dist.is_available() or "RANVIER" in dist.Backend._plugins:
        return
    # Where torch has no CUDA it is not to be named: ShardedTensor.gather takes whatever is beside the CPU for the better one.
    devices = ["cpu", "cuda"] if torch.backends.cuda.is_built() else ["cpu"]
    dist.Backend.register_backend("ranvier", _create, extended_api=True, devices=devices)
    extend(dist)
    atexit.register(_leave_groups)
    # Python waits for its threads before that. concurrent.futures, which does so too, has come with torch: what was registered
    # last is called first.
    if register_atexit := getattr(threading, "_register_atexit", None):
        register_atexit(_tell_of_failure)


def _create(options: Any, backend_options: Any) -> torch.distributed.Backend:
    """Called by torch.distributed for every process group; `options` is its _DistributedBackendOptions."""
    from ranvier._declining import telling_whoever_comes
    from ranvier._library import connect

    with telling_whoever_comes(options.store, options.group_rank, options.group_size, options.timeout):
        if backend_options is not None and not isinstance(backend_options, Options):
            if is_alone.get() or not _is_anothers(backend_options):
                raise TypeError(f"pg_options of ranvier are a ranvier.Options, and not a {type(backend_options).__qualname__}")
            backend_options = None
        chosen = combined(backend_options)
    members = options.global_ranks_in_group  # none: it is the world
    name = options.group_id if members else "default_pg"  # as torch itself describes it, whose name is "0"
    backend = connect(options.store, options.group_rank, options.group_size, options.timeout, chosen, members, name)
    made_with[options.group_id] = chosen
    return backend


def _is_anothers(options: object) -> bool:
    """In "cpu:ranvier,cuda:nccl" both backends are given the same options, which are NCCL's."""
    import torch.distributed as dist

    return isinstance(options, dist._Backend.Options)


def _tell_of_failure() -> None:
    """Ends groups in which threads of this process may wait for what it will never do, if an exception ended it."""
    from ranvier._library import tell_of_failure

    tell_of_failure()


def _leave_groups() -> None:
    """Ends groups that the program did not destroy: in good order, or telling the others what this process died of."""
    from ranvier._library import leave

    leave()
