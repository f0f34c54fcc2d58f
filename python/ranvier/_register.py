"""Registers the backend with torch.distributed. Cheap, since `import torch` runs it wherever ranvier is installed."""

from __future__ import annotations

import atexit
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# torch is imported inside functions: `import torch` itself imports this module, possibly from within `import ranvier`.


def autoload() -> None:
    """The entry point of group "torch.backends". What goes wrong here must not break `import torch`."""
    try:
        register()
    except Exception as error:
        warnings.warn(f"the ranvier backend was not registered: {error}", RuntimeWarning, stacklevel=2)


def register() -> None:
    """Makes "ranvier" known to `torch.distributed.init_process_group`. More than once does no harm."""
    import torch.distributed as dist

    if not dist.is_available() or "RANVIER" in dist.Backend._plugins:
        return
    dist.Backend.register_backend("ranvier", _create, extended_api=True, devices=["cpu"])
    atexit.register(_leave_groups)


def _create(options: Any, backend_options: Any) -> torch.distributed.Backend:
    """Called by torch.distributed for every process group; `options` is its _DistributedBackendOptions."""
    from ranvier._library import connect

    if backend_options is not None:
        raise ValueError("ranvier takes no pg_options: its settings are environment variables, see ranvier.settings")
    return connect(options.store, options.group_rank, options.group_size, options.timeout)


def _leave_groups() -> None:
    """Ends groups that the program did not destroy: in good order, or telling the others what this process died of."""
    from ranvier._library import leave

    leave()
