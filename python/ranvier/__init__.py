"""Distributed deep-learning training where the network is the bottleneck.

    import torch.distributed as dist
    dist.init_process_group("ranvier")        # under torchrun; or "cpu:ranvier"

Importing this registers the backend, which torch also does by itself when the package is installed. The C++ library is
loaded by the first process group. Settings come from the environment (see `ranvier.settings.SETTINGS`), or for one
group from `pg_options=ranvier.Options(…)`.
"""

from ranvier._build import VERSION as __version__
from ranvier._register import register
from ranvier.settings import Options

register()

__all__ = ["Options", "__version__"]
