"""What ranvier.attach gives where replicas take their steps together: it asks the policy before and behind each step, has
averaged what that says, and brings all replicas together at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import JoinHook

from ranvier import _library
from ranvier._agreement import given_by_all, telling_others
from ranvier._asked import PARAMETERS, Asked
from ranvier._attachment import (
    Attached,
    Everybody,
    StepArguments,
    as_samples,
    attached,
    buffers_now,
    closure_in,
    hooks_around,
    is_part_of_a_step,
    optimizer_kind,
    lacking_in,
    rate_of,
    require_own_steps,
    with_closure,
)
from ranvier._auto import SPECS, Auto
from ranvier._computing import Watch
from ranvier._exchanges import make_exchange
from ranvier._followed_plan import FollowedPlan, PlanChange
from ranvier._gradient_averages import GradientAverages
from ranvier._groups import chosen, follow_in, group_like, leave
from ranvier._momentum import require_no_other
from ranvier._optimizer_state import begin_with_state, share_state
from ranvier._parameter_averages import ParameterAverages, are_everybodys, is_of_one_rank, keeps_changes
from ranvier._remarks import remark_on
from ranvier._scaling import Scaling
from ranvier._step_times import StepTimes
from ranvier._teams import Teams, Traffic, check_codec
from ranvier._uneven import Uneven
from ranvier.plans import Plan


def _once(loss: Any) -> Callable[[], Any]:
    """A closure whose work is done: another evaluation would put one rank's gradients in place of the average."""
    losses = [loss]

    def closure() -> Any:
        if not losses:
            raise ValueError(
                "the optimizer evaluates the model several times in its step, where no policy can average: take another one"
            )
        return losses.pop()

    return closure


class Synchronization(Attached):
    """What attach() gives: the state of the policy, and the end of it."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        sync: str,
        steps_per_epoch: int,
        steps: int,
        place: str,
        samples: float,
        compress: str,
        group: dist.ProcessGroup | None,
        plan: Plan | None,
    ) -> None:
        super().__init__()
        operators = _library.load()
        self.spec, self.compress = sync, compress
        self.step = 0  # complete ones
        self._begins = True  # until the first one of all
        self._averages = 0  # that everybody has been asked for since
        self._traffic = Traffic()
        self.decisions: list[tuple[int, str, str]] = []  # of 'auto': behind so many steps, the policy, and why
        self._made: list[dist.ProcessGroup] = []  # by attach(), for this
        self._lost_share: float | None = None  # of all training, once the groups that know it are gone
        self._group = chosen(group)
        self._rank, self._world = dist.get_rank(self._group), dist.get_world_size(self._group)
        is_auto = operators.chosen_by_measuring(sync)
        with telling_others(self._group):
            if is_auto and compress != "none":
                raise ValueError(f"'auto' counts what plain values take: leave out compress='{compress}', or name the policy")
            self._policy = self._make_policy(SPECS["bsp"] if is_auto else sync, steps_per_epoch, steps)
            self._take(model, optimizer)
            if is_auto or self._policy.averages_parameters() or self._policy.pushes() or self._policy.fragments() > 0:
                require_own_steps(optimizer, sync)
            self._codec = compress, check_codec(compress, self._policy, sync, optimizer)
            if any(p.is_complex() for p in self._parameters) and (keeps_changes(self._policy) or compress != "none"):
                raise ValueError(
                    f"parameters are complex, and '{sync}' with compress='{compress}' is of real ones: take a policy that "
                    "averages them as they are, such as 'bsp' or 'local:8', and no codec"
                )
            self._followed = self._follow_from_now(plan) if plan is not None else None
        schedule = [steps_per_epoch] if is_auto else list(self._policy.save())
        everybody = Everybody(
            self._group, sync, place, compress, samples, self._trained(), self._layouts(), self._remembers(), schedule,
            steps_per_epoch, steps, self._sparse(), plan.text if plan else "", optimizer_kind(optimizer),
        )  # fmt: skip
        self._share(everybody)
        self._policy.check_samples(everybody.samples)
        levels = self._policy.levels(place, everybody.nodes)
        shares_gradients = len(set(levels[self._policy.gradient_level()])) < self._world
        if self._rank == 0 and self._world > 1 and not is_auto:
            remark_on(self._policy, sync, compress, levels, optimizer)
        if everybody.sparse and shares_gradients:
            raise ValueError(
                f"the gradient of '{everybody.sparse}' is sparse, which attach() does not average: make the layer with "
                "sparse=False"
            )
        for speakers in (self._world, len(set(levels[-2]))):
            make_exchange(compress, speakers)  # which every rank refuses, and not those alone who speak for others
        # Of a plan that is followed nothing else is under way in the group where algorithms change.
        averaging = group_like(self._group, f"{everybody.name}/plan", "ranvier attach") if plan is not None else self._group
        self._teams = Teams(averaging, levels, everybody.name)
        self._auto = Auto(self._group, self._teams, self._parameters, steps_per_epoch) if is_auto else None
        self._uneven = Uneven(self, optimizer, self._teams, everybody.samples)
        counts = self._teams, self._uneven, self._traffic
        # Each with a codec of its own, since what one holds back of gradients is of another size than what it does of changes.
        self._gradients = GradientAverages(self._parameters, optimizer, self._policy, compress, self._group, *counts, is_auto)
        self._begin_alike()
        begin_with_state(optimizer, everybody, shares_gradients)
        self._between = ParameterAverages(
            self._parameters, partial(buffers_now, model, self._first_buffers), self._policy, compress, self._group,
            everybody.name, *counts,
        )  # fmt: skip
        self._scaling = Scaling(optimizer, self._parameters)
        self._hooks = hooks_around(optimizer, self._before_step, self._behind_step)
        self._times = StepTimes(self._parameters[0].device) if self._followed else None
        if self._auto:
            self._hooks.append(model.register_forward_pre_hook(Watch(self._auto.computing)))
        if self._times:
            self._hooks.append(model.register_forward_pre_hook(Watch(self._times)))
        attached.add(optimizer)

    def _make_policy(self, spec: str, steps_per_epoch: int = 0, steps: int = 0) -> Any:
        """One that begins behind the steps that there have been."""
        return torch.classes.ranvier.SyncPolicy(spec, steps_per_epoch, steps, self._world, self.step)

    def _follow_from_now(self, plan: Plan) -> FollowedPlan:
        # By bsp all gradients are one bucket here, and what a codec has gathered otherwise between averages is not to be lost.
        bucket = self._gradient_bytes() if plan.sync == "bsp" else plan.bucket_bytes
        return FollowedPlan(replace(plan, bucket_bytes=bucket), self._group, keeps_codec=True)

    def _gradient_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self._parameters)

    @property
    def rounds(self) -> int:
        """Exchanges that this rank took part in."""
        return self._traffic.rounds

    @property
    def bytes(self) -> int:
        """That it gave to them: the algorithm may send them more than once."""
        return self._traffic.bytes

    @property
    def changes(self) -> list[PlanChange]:
        """Of the plan that it follows, since steps took longer or shorter than predicted."""
        return self._followed.changes if self._followed else []

    def set_samples(self, samples: float) -> None:
        """This rank has so many samples in each step from the next one on. Every rank calls, each with its own; in a Join
        only those that like to, since weights travel with every average there."""
        if self._uneven.is_joining:
            own = as_samples(samples)
            self._policy.check_samples([own if rank == self._rank else 1.0 for rank in range(self._world)])
            self._uneven.own = own
            return
        with telling_others(self._group):
            own = as_samples(samples)
        before, now = self._uneven.samples, given_by_all(self._group, "set_samples()", own)
        self._policy.check_samples(now)
        if now != before:
            self._uneven.ever = True  # in the middle of a period, perhaps
        self._uneven.samples, self._uneven.own = now, own

    def finish(self) -> None:
        """Brings all replicas together, buffers too, and lets the optimizer go, also where the first fails since a rank is lost.
        Every rank calls; again it does nothing."""
        if not self._hooks:
            return
        try:
            self._bring_together()
            self._lost_share = self.lost_share
            leave(self._made, self._group, self.join_device)
        finally:
            self._between.end_pushes()
            while self._hooks:
                self._hooks.pop().remove()
            self._scaling.let_go()
            attached.discard(self._optimizer)

    def _bring_together(self) -> None:
        closing = [Asked._make(each) for each in self._policy.ended()]
        self._require_same_averages(len(closing))
        self._between.carry_out(closing, self.step, closes=True)
        self._gradients.realign()
        self._between.average_buffers()
        self._between.end_under_way()

    def state_dict(self) -> dict[str, Any]:
        """What belongs in a checkpoint beside the model's and the optimizer's; every rank saves its own."""
        gradients, between = self._gradients.state_dict(), self._between.state_dict()
        own = {
            "sync": self.spec,
            "step": self.step,
            "policy": self._policy.save(),
            "uneven": self._uneven.ever,
            "compress": self.compress,
            "chosen": self._auto.name if self._auto else "",
            "plan": self._followed.state_dict() if self._followed else None,
            "rank": (self._rank, self._world) if gradients["coded"] is not None or is_of_one_rank(between) else None,
        }
        return own | gradients | between | {"coded": [gradients["coded"], between["coded"]]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what state_dict gave. Raises ValueError for that of another policy, model or rank."""
        if missing := lacking_in(state, self.state_dict().keys() - {"plan", "begun", "rank"}):  # of before these were kept
            raise ValueError(f"this is no state of ranvier.attach, which has '{missing[0]}': load what state_dict() gave")
        if (state["sync"], state["compress"]) != (self.spec, self.compress):
            raise ValueError(
                f"the state is of the policy '{state['sync']}' with '{state['compress']}', this is '{self.spec}' with "
                f"'{self.compress}': attach the same"
            )
        gradients, between = (state | {"coded": each} for each in state["coded"])
        self._gradients.require_state(gradients)
        self._between.require_state(between)
        rank, world = state.get("rank") or (self._rank, self._world)
        if world == self._world and rank != self._rank:  # of more or fewer ranks there is none for each
            raise ValueError(f"the state is of rank {rank}, and this is rank {self._rank}: load each rank's own")
        self._between.load_state_dict(between)
        self._gradients.load_state_dict(gradients)
        self.step = state["step"]
        if self._auto and state["chosen"] != self._auto.name:
            self._auto.name = state["chosen"]
            self._policy = self._make_policy(self._auto.spec)
        self._policy.restore(state["policy"])
        self._uneven.ever = state["uneven"]
        if self._followed and self._followed.load_state_dict(state.get("plan"), self.step):
            self._go_by(self._followed.plan)

    def join_hook(self, **_: Any) -> JoinHook:
        """For torch's Join. Raises ValueError where the policy has no weights by which a rank could stand aside."""
        if not self._policy.weighs_samples():
            raise ValueError(
                f"'{self.spec}' does not weigh ranks by their samples, so all need as many steps: leave out Join, or take a "
                "policy that averages everybody's"
            )
        return self._uneven.hook(self._shadow_step, self._end_join)

    def _shadow_step(self) -> None:
        if self._average_gradients():
            self._optimizer.step()  # as those do whose gradients these are, which keeps its state equal to theirs
            self._scaling.end()
        self._after_step()
        self._judge_plan()

    def _end_join(self) -> None:
        self._uneven.end()
        self.set_samples(self._uneven.own)

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> StepArguments | None:
        """What the optimizer's step is called with instead, where it was given a closure: that computes the gradients."""
        if not self._uneven.trains or is_part_of_a_step(optimizer):
            return None
        self._require_no_others()
        spec, momentum = self._codec
        if momentum > 0:  # a schedule may have given the optimizer one
            require_no_other(spec, momentum, optimizer, optimizer.param_groups)
        self._scaling.begin()
        self._uneven.notify()
        closure = closure_in(args, kwargs)
        if closure is None:
            self._waiting(self._average_gradients)
            return None
        with torch.enable_grad():
            loss = closure()
        self._waiting(self._average_gradients)
        return with_closure(_once(loss), args, kwargs)

    def _behind_step(self) -> None:
        if self._uneven.trains and not is_part_of_a_step(self._optimizer):
            self._scaling.end()
            self._waiting(self._after_step)
            if self._followed and self._times:
                self._times.step_ends(self._followed.window())
            self._judge_plan()

    def _waiting(self, average: Callable[[], object]) -> None:
        if self._times:
            self._times.waiting(average)
        else:
            average()

    def _judge_plan(self) -> None:
        """Also where this rank only keeps others company in a Join, and has no times."""
        if self._followed is None or not self._followed.is_due(self.step):
            return
        own = self._times.last() if self._times and self._uneven.trains else []
        if plan := self._followed.judge(self.step, own, self._gradient_bytes()):
            self._go_by(plan)

    def _go_by(self, plan: Plan) -> None:
        """Algorithms of everybody's averages, of which none is under way; inside nodes and groups stays what there is."""
        table = plan.table()
        for team in (self._teams.whole[self._teams.last], self._teams.leaders[self._teams.last]):
            if team is not None:
                follow_in(team.group, table)
        self._gradients.follow(table)
        self._between.follow(table)

    def _average_gradients(self) -> bool:
        """Whether there was any to average."""
        if self._begins:
            self._begins = False
            self._require_one_step()
        if self._auto and self._uneven.trains:
            self._auto.computing.has_gradients()
        levels = [asked.level for asked in map(Asked._make, self._policy.step_begins(self.step))]
        self._averages += levels.count(self._teams.last)
        scaled, averaged = self._gradients.average(levels, self._scaling.found is not None)
        if scaled:
            self._scaling.leave_out(averaged)
        return averaged

    def _require_one_step(self) -> None:
        """Raises ValueError on all ranks where some go on from a checkpoint and others do not, or from another one."""
        for rank, step in enumerate(given_by_all(self._group, "the first step of attach()", self.step)):
            if step != self.step:
                raise ValueError(
                    f"rank {self._rank} goes on behind step {self.step} and rank {rank} behind step {step}: load the states of one "
                    "checkpoint on all ranks, each rank's own, or on none"
                )

    def _require_same_averages(self, closing: int) -> None:
        """Raises ValueError where ranks have been asked for different averages: what closes training would be taken for one of
        those by ranks that are still in a step. How many steps lie behind the last one makes no difference."""
        why = f"rank {self._rank} calls finish() behind step {self.step}"
        remedy = "let every rank take as many steps, or train inside torch's Join([sync])"
        mine = [self.step, self._averages, closing]
        try:
            self._between.meet_under_way()
            told = self._teams.told_by_all(mine, self.join_device)
        except RuntimeError as error:
            if any(words in str(error) for words in ("the ranks disagree", "Timed out")):  # ranvier's, and gloo's
                raise ValueError(f"{why}, where others are in a step or do not come: {remedy} ({error})") from error
            raise
        for rank, theirs in enumerate(told):
            if theirs[1:] != mine[1:]:
                raise ValueError(f"{why} and rank {rank} behind step {theirs[0]}, with averages of all between: {remedy}")

    def _after_step(self) -> None:
        self.step += 1
        by_gradients, last = self._gradients.level, self._teams.last
        self._between.step_ends(by_gradients)
        if self._uneven.is_joining and self._policy.outer_follows_rate():
            self._uneven.tell(last, 0)  # a shadow of those who train, their rate
        self._gradients.step_ends(self.step)
        asked = [Asked._make(each) for each in self._policy.step_ended(self.step, rate_of(self._optimizer))]
        self._averages += sum(each.what != PARAMETERS or each.level == last for each in asked)
        spread = self._between.carry_out(asked, self.step)
        if by_gradients == last:
            self._between.agree()
        if by_gradients == last or are_everybodys(asked, last):
            self._policy.averaged(self.step, spread)
        if self._auto:
            self._choose(self._auto)
            self._auto.computing.step_ends()

    @property
    def lost_share(self) -> float:
        if self._lost_share is not None:
            return self._lost_share
        return self._gradients.lost_share()

    def _choose(self, auto: Auto) -> None:
        """Replicas meet before another policy takes over."""
        if not auto.is_due(self.step):
            return
        before = auto.name
        name, reason = auto.choose()
        if self.decisions and name == before:
            return
        self.decisions.append((self.step, name, reason))
        if name == before:
            return
        if before != "bsp":
            self._between.carry_out(map(Asked._make, self._policy.ended()), self.step, closes=True)
            share_state(self._optimizer, self._group)
        self._policy = self._make_policy(auto.spec)
