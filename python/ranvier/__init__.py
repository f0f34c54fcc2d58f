"""Distributed deep-learning training where the network is the bottleneck.

    import torch.distributed as dist
    dist.init_process_group("ranvier")        # under torchrun; or "cpu:ranvier"

    ddp.register_comm_hook(*ranvier.hook("hadamard:32+int4"))   # compressed gradients, over any process group
    with ranvier.record(model, "workload.toml"): ...            # what its steps consist of, for ranvier plan
    sync = ranvier.attach(model, optimizer, sync="node:50")     # fewer rounds, by a policy and without DDP; the same
    plan = ranvier.read_plan("plan.toml")                       # what ranvier plan has decided, for hook() and attach()
    ranvier.lost_share()                                        # of this rank's gradients, over udp:loss=0.01

Importing this registers the backend, which torch also does by itself when the package is installed. The C++ library is
loaded by the first process group. Settings come from the environment (see `ranvier.settings.SETTINGS`), or for one
group from `pg_options=ranvier.Options(…)`.
"""

from typing import TYPE_CHECKING

from ranvier._build import VERSION as __version__
from ranvier._register import register
from ranvier.settings import Options

if TYPE_CHECKING:
    from ranvier._library import lost_share as lost_share
    from ranvier.hooks import hook as hook
    from ranvier.plans import read_plan as read_plan
    from ranvier.recording import record as record
    from ranvier.synchronize import attach as attach

register()


def __getattr__(name: str) -> object:
    # Not imported before somebody wants it: `import torch` imports this package.
    if name == "hook":
        from ranvier.hooks import hook

        return hook
    if name == "lost_share":
        from ranvier._library import lost_share

        return lost_share
    if name == "read_plan":
        from ranvier.plans import read_plan

        return read_plan
    if name == "record":
        from ranvier.recording import record

        return record
    if name == "attach":
        from ranvier.synchronize import attach

        return attach
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Options", "__version__", "attach", "hook", "lost_share", "read_plan", "record"]
