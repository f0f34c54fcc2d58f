"""Codes and floats through the process group that the user has: gloo, ranvier or NCCL."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier._groups import agreed_name, group_like
from ranvier._library import is_in_reach

# torch 2.13 has given it another name.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

LENGTH_BYTES = 8  # of a length in front of a code


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
    copied: set `device` by device_for() before a bucket goes, and `floats`, whether what has no code goes as float32."""

    def __init__(self, model: dist.ProcessGroup, name: str = "", ranks: list[int] | None = None) -> None:
        self.group = group_like(model, name or agreed_name(model), "ranvier hook", ranks)
        self.rank, self.world = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.device = torch.device("cpu")
        self.floats = True
        self.bytes_sent = 0
        self.rooms: dict[Hashable, list[int]] = {}  # for codes, as all ranks know them
        self._has_engine = is_in_reach(self.group)
        self._devices: dict[torch.device, torch.device] = {}

    def device_for(self, bucket: torch.device) -> torch.device:
        if bucket not in self._devices:
            self._devices[bucket] = travels_by(self.group, bucket)
        return self._devices[bucket]

    @cached_property
    def boxed(self) -> Any:
        """The group, as operators take it."""
        return self.group.boxed()

    def has_engine(self) -> bool:
        """Whether ranvier's own engine can average the bucket, which encodes, sends and decodes at once. The same on all
        ranks."""
        return self._has_engine and self.floats and self.device.type == "cpu"

    def all_have(self, number: int) -> bool:
        """Whether it is the same on all ranks, all of which call."""
        both = torch.tensor([number, -number], device=self.device)
        self._travel(both, lambda travelling: dist.all_reduce(travelling, dist.ReduceOp.MAX, group=self.group))
        most, least = both.tolist()
        return bool(most == number == -least)

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

    def start_exchange(self, codes: list[Tensor], key: Hashable, most: list[int]) -> Exchanging:
        """The same, in one collective where codes of this `key` have gone before: each goes with its length, in a room that
        suits the last ones. Code i has `most[i]` bytes at most. All ranks start the same, in the same order."""
        return Exchanging(self, codes, key, most)

    def start_gather(self, code: Tensor, key: Hashable, most: int) -> Gathering:
        """Every rank's code, of `most` bytes at most, likewise."""
        return Gathering(self, code, key, most)

    def gather(self, code: Tensor, key: Hashable, most: int) -> list[Tensor]:
        return self.start_gather(code, key, most).wait()

    def start_all_gather(self, code: Tensor, size: int) -> Callable[[], list[Tensor]]:
        """So many bytes of each rank, of which its code is the first ones; what is called waits for them."""
        padded = torch.zeros(size, dtype=torch.uint8, device="cpu")
        padded[: code.numel()] = code
        padded = padded.to(self.device)
        everything = torch.empty(self.world * size, dtype=torch.uint8, device=self.device)
        work = _all_gather(everything, padded, group=self.group, async_op=True)
        self.bytes_sent += (self.world - 1) * size

        def wait(_in_use: Tensor = padded) -> list[Tensor]:
            work.wait()
            return list(everything.cpu().split(size))

        return wait


class Exchanging:
    """Codes to each rank, on their way."""

    def __init__(self, wire: Wire, codes: list[Tensor], key: Hashable, most: list[int]) -> None:
        self.longest = 0  # of the codes that came to this rank, once they have
        self._wire, self._key, self._most = wire, key, most
        self._rooms = wire.rooms.get(key)
        if self._rooms is None:
            self._arrived = wire.exchange(codes)
            return
        own = wire.rank
        sends = [0 if rank == own else LENGTH_BYTES + room for rank, room in enumerate(self._rooms)]
        self._receives = [0 if rank == own else LENGTH_BYTES + self._rooms[own] for rank in range(wire.world)]
        outgoing = torch.zeros(sum(sends), dtype=torch.uint8, device="cpu")
        for block, code in zip(outgoing.split(sends), codes, strict=True):
            if block.numel() > 0:
                _put_block(block, code)
        self._outgoing = outgoing.to(wire.device)
        self._received = torch.empty(sum(self._receives), dtype=torch.uint8, device=wire.device)
        self._work = dist.all_to_all_single(
            self._received, self._outgoing, self._receives, sends, group=wire.group, async_op=True
        )
        wire.bytes_sent += outgoing.numel()

    def wait(self) -> list[Tensor] | None:
        """What each rank sent to this one; None where something was too long for its room."""
        if self._rooms is None:
            arrived = self._arrived
            self.longest = max(code.numel() for code in arrived)
            return arrived
        self._work.wait()
        blocks = self._received.cpu().split(self._receives)
        lengths = [length_in(block) if block.numel() > 0 else 0 for block in blocks]
        self.longest = max(lengths)
        if self.longest > self._rooms[self._wire.rank]:
            return None
        return [block[LENGTH_BYTES : LENGTH_BYTES + length] for block, length in zip(blocks, lengths, strict=True)]

    def all_have_come(self, longest: list[int]) -> bool:
        """Of all ranks, which have told each other what was `longest` of what came to them. Next time there is room for as
        much, and a little more."""
        rooms = [_room_for(length, most) for length, most in zip(longest, self._most, strict=True)]
        if self._rooms is not None:  # what had no code this time will have one
            rooms = [room if length > 0 else old for room, length, old in zip(rooms, longest, self._rooms, strict=True)]
        self._wire.rooms[self._key] = rooms
        return self._rooms is None or all(length <= room for length, room in zip(longest, self._rooms, strict=True))


class Gathering:
    """A code of each rank to all, on its way. all_gather wants one length of all."""

    def __init__(self, wire: Wire, code: Tensor, key: Hashable, most: int) -> None:
        self._wire, self._code, self._key, self._most = wire, code, key, most
        rooms = wire.rooms.get(key)
        self._room = rooms[0] if rooms is not None else 0
        block = torch.zeros(LENGTH_BYTES + self._room, dtype=torch.uint8, device="cpu")
        _put_block(block, code)
        self._blocks = wire.start_all_gather(block, block.numel())

    def wait(self) -> list[Tensor]:
        blocks = self._blocks()
        lengths = [length_in(block) for block in blocks]
        rest = max(lengths) - self._room
        self._wire.rooms[self._key] = [_room_for(max(lengths), self._most)]
        codes = [block[LENGTH_BYTES:] for block in blocks]
        if rest > 0:
            more = self._wire.start_all_gather(self._code[self._room :], rest)()
            codes = [torch.cat(both) for both in zip(codes, more, strict=True)]
        return [code[:length] for code, length in zip(codes, lengths, strict=True)]


def put_length(block: Tensor, length: int) -> None:
    block[:LENGTH_BYTES].view(torch.int64).fill_(length)


def length_in(block: Tensor) -> int:
    return int(block[:LENGTH_BYTES].view(torch.int64).item())


def _put_block(block: Tensor, code: Tensor) -> None:
    """As much of the code as there is room for, behind its length."""
    put_length(block, code.numel())
    fits = min(code.numel(), block.numel() - LENGTH_BYTES)
    block[LENGTH_BYTES : LENGTH_BYTES + fits] = code[:fits]


def _room_for(length: int, most: int) -> int:
    """Codes of one bucket are nearly as long from step to step. A multiple of what a length takes, so that each has its
    alignment."""
    wanted = min(most, length + length // 16 + 64)
    return -(-wanted // LENGTH_BYTES) * LENGTH_BYTES
