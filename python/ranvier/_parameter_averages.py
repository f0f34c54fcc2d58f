"""Averages of parameters between steps under ranvier.attach, as its policy asks for them: at once, while steps go on, by a
codec of what replicas have changed, with an outer step on the average, or by pushes from rank to rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier._asked import BEGIN_AVERAGE, BEGIN_FRAGMENT, FINISH_AVERAGE, FINISH_FRAGMENT, PARAMETERS, PUSH, Asked
from ranvier._delayed import Delayed
from ranvier._fragments import Fragments
from ranvier._gradient_averages import require_same_part
from ranvier._memory import require_records
from ranvier._outer_step import OuterStep
from ranvier._pushes import Pushes
from ranvier._teams import CodedTeam, Teams, Traffic
from ranvier._uneven import Uneven


class ParameterAverages:
    """Of one attached model, whose `buffers` (looked up each time) travel with them. `name` is what no group has."""

    def __init__(
        self,
        parameters: list[Tensor],
        buffers: Callable[[], list[Tensor]],
        policy: Any,
        compress: str,
        group: dist.ProcessGroup,
        name: str,
        teams: Teams,
        uneven: Uneven,
        traffic: Traffic,
    ) -> None:
        self._parameters, self._buffers, self._compress = parameters, buffers, compress
        self._teams, self._uneven, self._traffic, self._last = teams, uneven, traffic, teams.last
        self._fragments, self._is_delayed = policy.fragments(), policy.delays_averages()
        # Samples of this rank since parameters were last everybody's, by level, and behind those by fragment.
        self._seen = [0.0] * (self._last + 1 + self._fragments)
        self._seen_by_buffers = 0.0  # since its buffers were averaged with everybody's
        self._seen_by_begun = 0.0  # of those of the last level or the fragment, when the average that is under way began

        self._pushes = Pushes(group, name, compress, parameters, buffers()) if policy.pushes() else None
        at_once = policy.averages_parameters() and not (self._is_delayed or self._fragments > 0 or policy.pushes())
        leaders, inside = teams.leaders[self._last], teams.whole[self._last - 1]
        self._coded: CodedTeam | None = None
        if at_once and leaders is not None and compress != "none":
            self._coded = CodedTeam(compress, leaders, parameters)
        self._outer: OuterStep | None = None
        if keeps_changes(policy) or self._coded is not None:
            self._outer = OuterStep(parameters, policy.has_outer_step(), self._coded, policy.outer_follows_rate())
        self._under_way: Fragments | Delayed | None = None  # what averages while steps go on
        team = teams.whole[self._last]
        if self._fragments > 0 and team is not None and len(team.ranks) > 1:
            self._under_way = Fragments(team, name, compress, parameters, *self._since_agreed(), self._fragments)
        if self._is_delayed and teams.speakers(self._last - 1, self._last) > 1:
            anchor, _ = self._since_agreed()
            self._under_way = Delayed(leaders, inside, name, compress, parameters, anchor)

    def step_ends(self, by_gradients: int) -> None:
        """One whose gradients were averaged over that level."""
        if self._uneven.trains:
            self._seen = [seen + self._uneven.own for seen in self._seen]
            self._seen_by_buffers += self._uneven.own
        for level in range(by_gradients + 1):
            self._seen[level] = 0  # one step with one gradient leaves nobody ahead

    def agree(self) -> None:
        """All replicas hold the same now."""
        if self._outer is not None:
            self._outer.agree()

    def carry_out(self, actions: Iterable[Asked], step: int, closes: bool = False) -> float:
        """What is asked for behind `step`; what closes training leaves the codec out. Returns how far replicas had parted, where
        the policy wants to know."""
        spread = 0.0
        with torch.no_grad():
            for asked in actions:
                if asked.what == PUSH:
                    assert self._pushes is not None
                    self._traffic.count(self._pushes.push(step, asked.hops))
                elif asked.what == BEGIN_FRAGMENT:
                    self._begin_fragment(asked, closes)
                elif asked.what == FINISH_FRAGMENT:
                    self._finish_fragment(asked, closes)
                elif asked.what == BEGIN_AVERAGE:
                    self._begin_average(asked)
                elif asked.what == FINISH_AVERAGE:
                    self._finish_average(asked)
                elif weights := self._uneven.weights(asked.level, self._seen[asked.level]):
                    spread = self._average(asked, weights, closes, spread)
        return spread

    def average_buffers(self) -> None:
        """Everybody's."""
        if weights := self._uneven.weights(self._last, self._seen_by_buffers):
            weight = self._teams.weight(0, self._last, weights)
            self._traffic.average(self._buffers(), self._teams.whole[self._last], weight)

    def follow(self, table: str) -> None:
        """Algorithms from now on, once what is under way has come."""
        for each in (self._coded, self._under_way):
            if each is not None:
                each.follow(table)

    def meet_under_way(self) -> None:
        """Where training ends: whoever waits for an average that others will never begin is told so."""
        if self._under_way is not None:
            self._under_way.meet()

    def end_under_way(self) -> None:
        if self._under_way is not None:
            self._under_way.end()

    def end_pushes(self) -> None:
        if self._pushes is not None:
            self._pushes.end()

    def state_dict(self) -> dict[str, Any]:
        """Waits for what is under way, which is kept as it has arrived."""
        anchor, momentum = self._since_agreed()
        return {
            "anchor": [t.clone() for t in anchor],
            "momentum": [t.clone() for t in momentum],
            "seen": [*self._seen, self._seen_by_buffers],
            "begun": self._seen_by_begun,
            "pushes": self._pushes.state_dict() if self._pushes else None,
            "fragments": self._under_way.state_dict() if self._under_way else None,
            "coded": self._coded.state_dict() if self._coded else None,
        }

    def require_state(self, state: dict[str, Any]) -> None:
        """Raises ValueError for that of another model or rank."""
        if self._compress != "none":  # who speaks for nobody keeps no anchor
            require_same_part(state["coded"], self._coded)
        anchor, momentum = self._since_agreed()
        if [t.shape for t in (*state["anchor"], *state["momentum"])] != [t.shape for t in (*anchor, *momentum)]:
            raise ValueError("the state is of a model whose trained parameters have other sizes: attach the same")
        if self._coded is not None and state["coded"] is not None:
            require_records(state["coded"]["kept"], self._parameters, self._compress)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what state_dict gave. Raises ValueError for pushes of another model."""
        if self._pushes:
            self._pushes.load_state_dict(state["pushes"])
        *self._seen, self._seen_by_buffers = state["seen"]
        self._seen_by_begun = state.get("begun", 0.0)
        anchor, momentum = self._since_agreed()
        for mine, theirs in zip((*anchor, *momentum), (*state["anchor"], *state["momentum"]), strict=True):
            mine.copy_(theirs)
        if self._under_way:
            self._under_way.load_state_dict(state["fragments"])
        if self._coded is not None and state["coded"] is not None:
            self._coded.load_state_dict(state["coded"])

    def _since_agreed(self) -> tuple[list[Tensor], list[Tensor]]:
        """Where all replicas last were one, and the momentum of outer steps, of a policy that keeps these."""
        return (self._outer.anchor, self._outer.momentum) if self._outer else ([], [])

    def _average(self, asked: Asked, weights: list[float], closes: bool, spread: float) -> float:
        """At once. Returns how far replicas had parted, or `spread` where this does not tell."""
        is_last = asked.level == self._last
        self._seen[asked.level] = 0
        # Of averages under way buffers are no part: what this one has seen is less than what they have.
        buffers = [] if is_last and self._is_delayed else self._buffers()
        if is_last and buffers:
            self._seen_by_buffers = 0
        leaders, inside = self._teams.leaders[asked.level], self._teams.whole[asked.inside]
        together = buffers if inside is None else []  # with parameters
        if leaders is not None:
            weight = self._teams.weight(asked.inside, asked.level, weights)
            if self._outer and is_last and not closes:
                spread = self._outer.take(asked, leaders, weight, self._traffic.average)
                self._traffic.average(together, leaders, weight)
            else:
                self._traffic.average([*self._parameters, *together], leaders, weight)
        if inside is not None:  # gradients have made its parameters equal, but not its buffers
            inside.tell(self._parameters)
            self._traffic.average(buffers, self._teams.whole[asked.level], self._teams.weight(0, asked.level, weights))
        if is_last:
            self.agree()
        return spread

    def _begin_average(self, asked: Asked) -> None:
        if not (weights := self._uneven.weights(asked.level, self._seen[asked.level])):
            return
        self._seen_by_begun = self._seen[asked.level]
        if isinstance(self._under_way, Delayed):
            self._under_way.begin(self._teams.weight(asked.inside, asked.level, weights))
            self._traffic.rounds += 1

    def _finish_average(self, asked: Asked) -> None:
        # Until then, and where it is dropped, replicas are apart by all since the average before it.
        self._seen[asked.level] -= self._seen_by_begun
        self._seen_by_begun = 0.0
        if isinstance(self._under_way, Delayed):
            self._traffic.bytes += self._under_way.finish()

    def _begin_fragment(self, asked: Asked, closes: bool) -> None:
        assert isinstance(self._under_way, Fragments)
        seen = self._seen[self._number_of(asked)]
        weights = self._uneven.weights(self._last, seen)
        self._seen_by_begun = seen
        weight = self._teams.weight(0, self._last, weights or self._uneven.samples)
        self._under_way.begin(asked.fragment, weight, closes)
        self._traffic.rounds += 1

    def _finish_fragment(self, asked: Asked, closes: bool) -> None:
        assert isinstance(self._under_way, Fragments)
        self._traffic.bytes += self._under_way.finish(asked)
        if asked.merge == 0:
            self._seen[self._number_of(asked)] = 0
        elif not closes:  # one under way as training closes is dropped, as if it had never begun
            self._seen[self._number_of(asked)] -= self._seen_by_begun

    def _number_of(self, asked: Asked) -> int:
        """Of a fragment's average among `_seen`."""
        return self._last + 1 + asked.fragment


def is_of_one_rank(state: dict[str, Any]) -> bool:
    """Whether this state is another one on other ranks: it is of one that has gone on since replicas were one, or keeps what
    others do not."""
    *seen, _ = state["seen"]
    return any(seen) or any(state[each] is not None for each in ("pushes", "fragments", "coded"))


def keeps_changes(policy: Any) -> bool:
    """Whether it goes by how far replicas have come since they agreed."""
    return bool(policy.has_outer_step() or policy.wants_spread() or policy.delays_averages())


def are_everybodys(actions: Iterable[Asked], last: int) -> bool:
    """Whether these averages make all replicas one."""
    return any(asked.what == PARAMETERS and asked.level == last for asked in actions)
