"""Who averages with whom under ranvier.attach, and how: plainly, or by a codec."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier import _library
from ranvier._attachment import flat, spread
from ranvier._bounded import lost_share_of
from ranvier._exchanges import Exchange, Plain, make_exchange
from ranvier._groups import follow_in, group_like
from ranvier._memory import Memories, owed_elsewhere, require_records
from ranvier._momentum import require_no_other
from ranvier._nodes import exchange_over, keeps_steps, kinds_of_codes, speakers
from ranvier._wire import Wire

NARROW = (torch.float16, torch.complex32)  # whose sums are soon infinite


@dataclass(frozen=True)
class Team:
    """Some ranks and their process group."""

    group: dist.ProcessGroup
    ranks: list[int]  # as the default group numbers them

    def average(self, tensors: list[Tensor], weight: float) -> int:
        """In place, `weight` times this rank's values. The bytes given."""
        given = 0
        for flat in self._together(tensors):
            # Behind the sum it is rounded once.
            divides = flat.dtype not in NARROW and _library.is_ours(self.group, flat.device.type)
            factor = weight if divides else weight / len(self.ranks)
            if factor != 1:
                flat.mul_(factor)
            dist.all_reduce(flat, dist.ReduceOp.AVG if divides else dist.ReduceOp.SUM, group=self.group)
            given += flat.numel() * flat.element_size()
        return given

    def tell(self, tensors: list[Tensor]) -> None:
        """What the first of the ranks holds in them becomes everybody's, in place."""
        if len(self.ranks) > 1:
            for flat in self._together(tensors):
                dist.broadcast(flat, self.ranks[0], group=self.group)

    def told_by_each(self, numbers: list[int], device: torch.device) -> list[list[int]]:
        """The numbers that each of the ranks gives, as many."""
        given = torch.tensor(numbers * len(self.ranks), device=device)
        told = torch.empty_like(given)
        dist.all_to_all_single(told, given, group=self.group)
        return [each.tolist() for each in told.split(len(numbers))]

    @staticmethod
    def _together(tensors: list[Tensor]) -> Iterator[Tensor]:
        """Those of one type and device, one behind the other, whose values are theirs afterwards. In the order of their
        indices: gloo would send memory as it lies, which may be in another order on other ranks, or have gaps."""
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
        for alike in kinds.values():
            flat = torch.cat([t.reshape(-1) for t in alike])
            yield flat
            for tensor, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
                tensor.copy_(part.view_as(tensor))


class Teams:
    """Of each level of a policy this rank's whole group, and the first rank of each group inside it, if this rank is one."""

    def __init__(self, group: dist.ProcessGroup, levels: list[list[int]], name: str) -> None:
        self._group, self._rank, self._levels = group, dist.get_rank(group), levels
        self.last = len(levels) - 1
        self.whole: list[Team | None] = [None]
        self.leaders: list[Team | None] = [None]
        everybody = range(len(levels[0]))
        for level, (inner, groups) in enumerate(zip(levels, levels[1:], strict=False), start=1):
            first = [rank for rank in everybody if inner.index(inner[rank]) == rank]
            self.whole.append(self._form(groups, everybody, f"{name}/{level}/whole"))
            self.leaders.append(self._form(groups, first, f"{name}/{level}/leaders"))

    def groups(self, level: int) -> list[int]:
        """Of each rank its group, from 0."""
        return self._levels[level]

    def members(self, level: int) -> list[int]:
        """Of this rank's group, as `group` numbers them."""
        groups = self._levels[level]
        return [rank for rank, group in enumerate(groups) if group == groups[self._rank]]

    def nothing(self) -> list[float]:
        """No samples, of every rank of all."""
        return [0.0] * len(self._levels[0])

    def speakers(self, inside: int, level: int) -> int:
        """In this rank's group of `level` one for each group `inside`."""
        return len({self._levels[inside][rank] for rank in self.members(level)})

    def weight(self, inside: int, level: int, samples: list[float]) -> float:
        """Of this rank, which speaks for its group `inside`, among all that speak in its group of `level`."""
        members, inner = self.members(level), self._levels[inside]
        parts = self.speakers(inside, level)
        spoken_for = sum(samples[rank] for rank in members if inner[rank] == inner[self._rank])
        return spoken_for * parts / sum(samples[rank] for rank in members)

    def told_by_all(self, numbers: list[int], device: torch.device) -> list[list[int]]:
        """Those of each rank, through every group in which this one averages: by an all_to_all, which no average there is made
        of, so that a rank that is in one is not taken for one that tells. Level by level, and those who speak for others first,
        as all do: nobody waits for one who waits for him elsewhere."""
        told, through = [numbers], list[dist.ProcessGroup]()
        for teams in zip(self.leaders[1:], self.whole[1:], strict=True):
            for team in teams:
                if team is not None and len(team.ranks) > 1 and team.group not in through:
                    through.append(team.group)
                    told = team.told_by_each(numbers, device)
        return told

    def _form(self, groups: list[int], taking_part: Iterable[int], name: str) -> Team | None:
        """The members make it, level by level: nobody waits for one who waits for him elsewhere."""
        mine = groups[self._rank]
        ranks = [rank for rank in taking_part if groups[rank] == mine]
        if self._rank not in ranks:
            return None
        world_ranks = [dist.get_global_rank(self._group, rank) for rank in ranks]
        if len(ranks) == len(groups):
            return Team(self._group, world_ranks)
        return Team(group_like(self._group, f"{name}/{mine}", "ranvier attach", world_ranks), world_ranks)


class Traffic:
    """The averages that this rank takes part in, counted."""

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes = 0  # that it gave to them: the algorithm may send them more than once

    def average(self, tensors: list[Tensor], team: Team | CodedTeam | None, weight: float) -> None:
        """In place, `weight` times this rank's values. Where there is nobody else to average with, nothing."""
        with torch.no_grad():
            if tensors and team is not None and not (isinstance(team, Team) and len(team.ranks) == 1):
                self.count(team.average(tensors, weight))

    def count(self, given: int) -> None:
        self.bytes += given
        self.rounds += 1


def check_codec(spec: str, policy: Any, sync: str, optimizer: torch.optim.Optimizer) -> float:
    """Its momentum. Raises ValueError for a codec that is wrong, or that the policy or the optimizer has no use for."""
    momentum = make_exchange(spec, 1).momentum
    if spec != "none" and policy.pushes():
        _library.load().check_codec_of_pushes(spec)
    if momentum > 0 and policy.averages_parameters():
        raise ValueError(
            f"'{spec}' corrects the momentum of gradients, and '{sync}' also averages parameters: take another codec, or 'bsp'"
        )
    if momentum > 0:
        require_no_other(spec, momentum, optimizer, optimizer.param_groups)
    return momentum


class CodedTeam:
    """A team whose averages a codec compresses, as `ranvier.hook` does it; of tensors that belong to `parameters`. Or what
    else `choose` makes of the spec, that keeps something from step to step."""

    def __init__(
        self, spec: str, team: Team, parameters: list[Tensor], choose: Callable[[Wire, str], Exchange] = exchange_over
    ) -> None:
        self._wire = Wire(team.group)
        self._exchange = choose(self._wire, spec)
        self._keep_of(spec, parameters)

    def of(self, parameters: list[Tensor]) -> CodedTeam:
        """Of other parameters, one average at a time over the same connections."""
        other = copy.copy(self)
        other._keep_of(self._spec, parameters)
        return other

    def _keep_of(self, spec: str, parameters: list[Tensor]) -> None:
        self._spec, self._memories = spec, Memories(spec)
        self._parameters = parameters
        self._number = 0  # of the next average: what is random follows from it

    def average(self, tensors: list[Tensor], weight: float) -> int:
        """As Team.average; by floats of 32 bits, and plainly where a value has no code."""
        wire, before = self._wire, self._wire.bytes_sent
        wire.device = wire.device_for(tensors[0].device)
        values = flat(tensors)
        if weight != 1:
            values.mul_(weight)
        memory = self._memories.of(self._parameters, self._exchange.kinds)
        memory.pay(values, self._exchange.kinds)
        if not self._exchange.average(wire, values, memory, self._number):
            Plain().average(wire, values, memory, self._number)
        memory.step += 1
        self._number += 1
        spread(values, tensors)
        return wire.bytes_sent - before

    def take_back(self, averages: list[Tensor], used: list[bool]) -> None:
        """Of those that are not `used`, the averages of last time are given to nobody, and are owed still."""
        if all(used):
            return
        memory, kinds = self._memories.of(self._parameters, self._exchange.kinds), kinds_of_codes(self._exchange)
        for index, (average, is_used) in enumerate(zip(averages, used, strict=True)):
            if not is_used:
                memory.take_back(index, flat([average]), kinds)

    def follow(self, table: str) -> None:
        """Algorithms from now on, of all who share these connections."""
        follow_in(self._wire.group, table)

    def realign(self, parameters: list[Tensor]) -> int:
        """Those of ranks that may differ meanwhile become their exact average. The bytes given."""
        values = flat(parameters)
        given: int = values.numel() * values.element_size()
        _library.load().realign(self._wire.group.boxed(), values)
        spread(values, parameters)
        return given

    def lost_share(self) -> float:
        return lost_share_of(self._wire)

    def state_dict(self) -> dict[str, Any]:
        """What this rank holds back, by the numbers of parameters."""
        kept = [self._memories.record_of(each) for each in self._parameters]
        return {"number": self._number, "world": self._wire.world, "speakers": speakers(self._exchange), "kept": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what state_dict gave. Of a run of more or fewer ranks, or of others that speak for them, what is owed is."""
        require_records(state["kept"], self._parameters, self._spec)
        same = state.get("world", self._wire.world) == self._wire.world
        same = same and state.get("speakers", []) == speakers(self._exchange)
        self._number = state["number"] if same else 0
        self._memories = Memories(self._spec)
        for number, (parameter, record) in enumerate(zip(self._parameters, state["kept"], strict=True)):
            if record is not None:
                kept = record if same else owed_elsewhere(record, keeps_steps(self._exchange))
                self._memories.restore(parameter, kept, f"parameter {number}")
