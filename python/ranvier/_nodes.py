"""Codes between nodes only, what src/exchange/node.cc does over ranvier's own connections, over any process group."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier import _library
from ranvier._exchanges import Exchange, LowRank, Went, make_exchange
from ranvier._groups import agreed_name
from ranvier._memory import Memory
from ranvier._wire import Wire


def exchange_over(wire: Wire, spec: str) -> Exchange:
    """What averages by `spec` over the ranks of `wire`, all of which call: between nodes, where there are several and some
    have several ranks. A node is a host, or what RANVIER_NODE makes of it."""
    mine = _library.load().host_number(os.environ.get("RANVIER_NODE", ""))
    hosts: list[int | None] = [None] * wire.world
    dist.all_gather_object(hosts, mine, group=wire.group)
    nodes = [[rank for rank, host in enumerate(hosts) if host == each] for each in dict.fromkeys(hosts)]
    if spec == "none" or len(nodes) in (1, wire.world) or _splits_the_world():
        return make_exchange(spec, wire.world)
    return BetweenNodes(spec, wire, nodes)


def _splits_the_world() -> bool:
    """Bound to a device, NCCL makes groups by splitting the world's, for which all ranks have to come each time."""
    return dist.group.WORLD.bound_device_id is not None


def speakers(exchange: Exchange) -> list[int]:
    """Whose codes travel, of the ranks of its wire; none: those of all."""
    return exchange.speakers if isinstance(exchange, BetweenNodes) else []


def kinds_of_codes(exchange: Exchange) -> tuple[str, ...]:
    """What is kept where codes are made, which may be on other ranks."""
    return exchange.between.kinds if isinstance(exchange, BetweenNodes) else exchange.kinds


class BetweenNodes:
    """The ranks of a node add up their floats, the first of them averages by codes with those of other nodes, and tells its
    node. A node's line carries one code of the bucket then, and not one of each of its ranks."""

    def __init__(self, spec: str, wire: Wire, nodes: list[list[int]]) -> None:
        self.between = make_exchange(spec, len(nodes))  # which every rank refuses, and not the first ones alone
        self.momentum = self.between.momentum
        self.speakers = [node[0] for node in nodes]
        self.kinds: tuple[str, ...] = self.between.kinds if wire.rank in self.speakers else ()
        self._share = len(nodes) / wire.world  # of a node's sum in the mean of all nodes
        name = agreed_name(wire.group)
        members = next(node for node in nodes if wire.rank in node)
        of_world = [dist.get_global_rank(wire.group, rank) for rank in range(wire.world)]
        self._inside = Wire(wire.group, f"{name}/node {members[0]}", [of_world[rank] for rank in members]) if len(members) > 1 else None
        first = [of_world[rank] for rank in self.speakers]
        self._wire = Wire(wire.group, f"{name}/nodes", first) if wire.rank == members[0] else None

    def average(self, wire: Wire, values: Tensor, memory: Memory, number: int) -> Went:
        wires = [each for each in (self._inside, self._wire) if each is not None]
        before = sum(each.bytes_sent for each in wires)
        for each in wires:
            each.device, each.floats = wire.device, wire.floats
        mean = values.clone()  # whoever has no code gets his values back
        if self._inside:
            self._inside.reduce(mean)
        mean.mul_(self._share)
        went = self.between.average(self._wire, mean, memory, number) if self._wire else Went.NOT
        if self._inside:
            told = torch.tensor([went], dtype=torch.uint8, device=wire.device)
            self._inside.broadcast(told)
            went = Went(told.item())
            if went is not Went.NOT:
                self._inside.broadcast(mean)
        if went is not Went.NOT:
            values.copy_(mean)
        wire.bytes_sent += sum(each.bytes_sent for each in wires) - before
        return went


def keeps_steps(exchange: Exchange) -> bool:
    """Whether ranks may count different steps. Factors begin and take turns by them, so that whoever brings other ones, of
    any parameter in the bucket and of any codec, would average other messages."""
    return not isinstance(exchange.between if isinstance(exchange, BetweenNodes) else exchange, LowRank)
