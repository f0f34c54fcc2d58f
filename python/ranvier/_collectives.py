"""Which collectives a step calls in which process group: torch's dispatcher sees all of them, c10d's own and the
functional ones of DTensor and FSDP2. Only one step is watched, for watching every operator costs microseconds each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ROLES = ("tensor", "data", "expert", "expert_data", "pipeline")
# What the dispatcher calls a collective, and whose bytes count: of the input, as `ranvier simulate` counts them (the
# whole vector of an all_reduce, reduce_scatter or all_to_all, one rank's part of an all_gather).
NAMES = {
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "send": "send",
    "recv_": "send",
}
# c10d's calls that write into their first argument have the input in the second.
INPUT_SECOND = {
    "allgather_", "_allgather_base_", "reduce_scatter_", "_reduce_scatter_base_", "alltoall_", "alltoall_base_",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    collective: str
    role: str
    bytes: int
    to: int | None = None  # of a message, the rank in the group
    source: int | None = None


class Watch(TorchDispatchMode):  # type: ignore[misc]  # mypy does not read torch, see pyproject.toml
    """Calls `seen(call, seconds)` for each collective in one of `groups` (role: group), with the time that the call
    took, and `seen(None, seconds)` for the waits of functional ones."""

    def __init__(self, groups: Mapping[str, dist.ProcessGroup], seen: Any) -> None:
        super().__init__()
        self._roles = {group.group_name: role for role, group in groups.items()}
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional"):
            name = func._schema.name.partition("::")[2]
            if name == "wait_tensor":
                self._seen(None, time.perf_counter() - begin)
            elif name in NAMES and (role := self._role(args)):
                source = args[1] if name in INPUT_SECOND else args[0]
                size = sum(each.numel() * each.element_size() for each in tensors(source))
                peer = {"send": "to", "recv_": "source"}.get(name)
                self._seen(Call(NAMES[name], role, size, **({peer: args[2]} if peer else {})), time.perf_counter() - begin)
        return result

    def _role(self, args: Any) -> str | None:
        for each in args:
            if isinstance(each, str) and each in self._roles:
                return self._roles[each]
            if isinstance(each, torch.ScriptObject) and "ProcessGroup" in str(each._type()):
                return self._roles.get(dist.ProcessGroup.unbox(each).group_name)
        return None


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)
