"""Codes and floats through the process group that the user has: gloo, ranvier or NCCL."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier._groups import agreed_name, group_like

# torch 2.13 has given it another name.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def travels_by(group: dist.ProcessGroup, device: torch.device) -> torch.device:
    """Where a group takes what lies on `device`, and anything else: there, unless its backend serves the CPU as well, as
    gloo does, which has no messages and not all collectives for a GPU's tensors."""
    cpu = torch.device("cpu")
    served = {each.type: group._get_backend(each).name() for each in group._device_types}
    return cpu if device.type == "cpu" or served.get("cpu") == served.get(device.type) else device


class Wire:
    """A group of its own, of the same ranks and kind: DDP and the program use theirs meanwhile, and in no common order.
    All ranks of `model` make it, by a broadcast in `model`; or those of `ranks`, as the world numbers them, by a `name` that
    they have agreed on.

    What travels is made on the CPU. Where the group has no way for CPU tensors of a bucket on another device, it is
    copied: set `device` by device_for() before a bucket goes."""

    def __init__(self, model: dist.ProcessGroup, name: str = "", ranks: list[int] | None = None) -> None:
        self.group = group_like(model, name or agreed_name(model), "ranvier hook", ranks)
        self.rank, self.world = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.device = torch.device("cpu")
        self.bytes_sent = 0

    def device_for(self, bucket: torch.device) -> torch.device:
        return travels_by(self.group, bucket)

    def all_reduce(self, values: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
        """In place, the same bits on all ranks."""
        self._travel(values, lambda travelling: dist.all_reduce(travelling, op, group=self.group))
        self.bytes_sent += 2 * (self.world - 1) * values.numel() * values.element_size() // self.world

    def reduce(self, values: Tensor) -> None:
        """The sum, in place, on the first rank; on others nothing of use is left."""
        first = dist.get_global_rank(self.group, 0)
        self._travel(values, lambda travelling: dist.reduce(travelling, first, group=self.group))
        self.bytes_sent += values.numel() * values.element_size() if self.rank > 0 else 0

    def broadcast(self, values: Tensor) -> None:
        """From the first rank, in place."""
        first = dist.get_global_rank(self.group, 0)
        self._travel(values, lambda travelling: dist.broadcast(travelling, first, group=self.group))
        self.bytes_sent += (self.world - 1) * values.numel() * values.element_size() if self.rank == 0 else 0

    def _travel(self, values: Tensor, collective: Callable[[Tensor], object]) -> None:
        """In place, over the device of the bucket."""
        travelling = values.to(self.device)
        collective(travelling)
        if travelling is not values:
            values.copy_(travelling)

    def exchange(self, codes: list[Tensor]) -> list[Tensor]:
        """Code i goes to rank i; what each rank sent to this one."""
        lengths = torch.tensor([code.numel() for code in codes], device=self.device)
        incoming = torch.empty_like(lengths)
        dist.all_to_all_single(incoming, lengths, group=self.group)
        outgoing = torch.cat(codes).to(self.device)
        sizes = incoming.tolist()
        received = torch.empty(sum(sizes), dtype=torch.uint8, device=self.device)
        dist.all_to_all_single(received, outgoing, sizes, lengths.tolist(), group=self.group)
        self.bytes_sent += outgoing.numel()
        return list(received.cpu().split(sizes))

    def gather(self, code: Tensor) -> list[Tensor]:
        """Every rank's code. all_gather wants one length: the longest."""
        length = torch.tensor([code.numel()], device=self.device)
        lengths = torch.empty(self.world, dtype=length.dtype, device=self.device)
        _all_gather(lengths, length, group=self.group)
        sizes = lengths.tolist()
        longest = max(1, *sizes)
        padded = torch.zeros(longest, dtype=torch.uint8, device=self.device)
        padded[: code.numel()] = code.to(self.device)
        everything = torch.empty(self.world * longest, dtype=torch.uint8, device=self.device)
        _all_gather(everything, padded, group=self.group)
        self.bytes_sent += (self.world - 1) * longest
        rows = everything.cpu().view(self.world, longest)
        return [rows[rank, :size].contiguous() for rank, size in enumerate(sizes)]

    def demand_same_spec(self, spec: str) -> None:
        specs: list[str | None] = [None] * self.world
        dist.all_gather_object(specs, spec, group=self.group)
        for rank, theirs in enumerate(specs):
            if theirs != spec:
                raise ValueError(
                    f"rank {self.rank} compresses with '{spec}' and rank {rank} with '{theirs}': give hook() the same "
                    "spec on every rank"
                )
