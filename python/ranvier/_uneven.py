"""What each rank counts in averages under ranvier.attach; and ranks with different numbers of steps: what torch's Join asks
of a synchronization."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from ranvier._attachment import Attached
from ranvier._teams import Team, Teams


class _Shadow(JoinHook):  # type: ignore[misc]  # mypy does not read torch
    """A rank without data left: it weighs nothing in the steps of the others, and takes those that it can."""

    def __init__(self, step: Callable[[], None], end: Callable[[], None]) -> None:
        self._step, self._end = step, end

    def main_hook(self) -> None:
        self._step()

    def post_hook(self, is_last_joiner: bool) -> None:
        self._end()


class Uneven:
    """The samples of a step, by rank; whether this rank still trains, and what ranks tell one another where some do not."""

    def __init__(self, joinable: Attached, optimizer: torch.optim.Optimizer, teams: Teams, samples: list[float]) -> None:
        self.samples = samples  # the weights of the next average
        self.own = samples[dist.get_rank(joinable.join_process_group)]
        self.ever = False  # whether ranks may have seen other shares than now: what they have seen then weighs parameters
        self.trains = True  # not a shadow
        # By which a model that nobody needs any more is not kept.
        self._joinable = weakref.ref(joinable)
        self._device, self._optimizer, self._teams = joinable.join_device, optimizer, teams
        self._notices: list[dist.Work] = []  # that this rank is not done, to those that are

    @property
    def is_joining(self) -> bool:
        """Whether this is inside a Join."""
        joinable = self._joinable()
        return joinable is not None and bool(joinable._join_config.enable)

    def hook(self, step: Callable[[], None], end: Callable[[], None]) -> JoinHook:
        """For torch's Join: `step` is taken beside the others' while this rank has no data, `end` when nobody has."""

        def shadow() -> None:
            self.ever, self.trains = True, False
            step()

        return _Shadow(shadow, end)

    def notify(self) -> None:
        """Before each step in a Join. Waited for 16 steps later: between two averages ranks go on by themselves."""
        if not self.is_joining:
            return
        self.ever = True
        if (notice := Join.notify_join_context(self._joinable())) is not None:
            self._notices.append(notice)
        if len(self._notices) > 16:
            self._notices.pop(0).wait()

    def end(self) -> None:
        """Behind a Join."""
        for notice in self._notices:
            notice.wait()
        self._notices, self.trains = [], True
        Joinable.__init__(self._joinable())  # torch leaves it as it was inside

    def weights(self, level: int, seen: float) -> list[float]:
        """Of an average of what `seen` samples of this rank have changed, by rank; none where nobody has changed it."""
        weights = self.tell(level, seen)[0] if self.ever else self.samples
        return weights if any(weights) else []

    def tell(self, level: int, samples: float, marks: Iterable[bool] = ()) -> tuple[list[float], list[bool]]:
        """This rank's group of `level` tell one another: their samples, by rank, and which marks anybody has set."""
        team = self._teams.whole[level]
        assert team is not None
        own = torch.tensor([samples, self.trains, *marks], dtype=torch.float64, device=self._device)
        told_by = [torch.empty_like(own) for _ in team.ranks]
        dist.all_gather(told_by, own, group=team.group)
        weights = self._teams.nothing()
        for rank, each in zip(self._teams.members(level), told_by, strict=True):
            weights[rank] = float(each[0])
        training = [rank for rank, each in zip(team.ranks, told_by, strict=True) if each[1]]
        if 0 < len(training) < len(team.ranks):
            self._adopt_settings(training[0], team)
        return weights, torch.stack(told_by)[:, 2:].any(dim=0).tolist()

    def anybody_set(self, level: int, marks: Iterable[bool]) -> list[bool]:
        """Which of them anybody of this rank's group of `level` has."""
        team = self._teams.whole[level]
        assert team is not None
        told = torch.tensor([*marks], dtype=torch.uint8, device=self._device)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=team.group)
        return [bool(each) for each in told.tolist()]

    def _adopt_settings(self, source: int, team: Team) -> None:
        """A shadow's scheduler stands still: its learning rate and the like become those of a rank that trains."""
        groups = self._optimizer.param_groups
        settings = [[{key: value for key, value in each.items() if key != "params"} for each in groups]]
        dist.broadcast_object_list(settings, source, group=team.group)
        if not self.trains:
            for mine, theirs in zip(groups, settings[0], strict=True):
                mine.update(theirs)
