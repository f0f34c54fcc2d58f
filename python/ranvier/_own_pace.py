"""ranvier.attach where each rank trains at its own pace: async, ssp, group and ad-psgd.

What one rank's steps have to do with another's is decided and carried out in C++ (include/ranvier/own_pace.h), over
connections of ranvier's own beside the process group, which has no messages that come unasked: it only meets through that
group's store."""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import JoinHook

from ranvier._agreement import telling_others
from ranvier._attachment import (
    Attached,
    Everybody,
    StepArguments,
    as_samples,
    attached,
    closure_in,
    connection_beside,
    flat,
    hooks_around,
    is_part_of_a_step,
    lacking_in,
    optimizer_kind,
    rate_of,
    require_own_steps,
    spread,
    with_closure,
)
from ranvier._computing import Computing, Watch
from ranvier._followed_plan import FollowedPlan, PlanChange
from ranvier._groups import chosen
from ranvier._memory import zeros
from ranvier._optimizer_state import begin_with_state, heavy_ball, in_rate, momenta_of
from ranvier.plans import Plan


class Told(NamedTuple):
    """By the ranks' common work so far."""

    rounds: int
    bytes: int
    groups: list[int]
    shares: list[float]


class OwnPace(Attached):
    """What attach() gives for a policy of ranks that do not wait for one another: meet() and finish() are where they do."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        sync: str,
        place: str,
        samples: float,
        compress: str,
        group: dist.ProcessGroup | None,
        plan: Plan | None,
    ) -> None:
        super().__init__()
        self.spec, self.compress = sync, compress
        self.step = 0  # complete ones, of this rank
        self.decisions: list[tuple[int, str, str]] = []  # only 'auto' takes any
        self._group = chosen(group)
        self._world = dist.get_world_size(self._group)
        with telling_others(self._group):
            self._take(model, optimizer)
            require_own_steps(optimizer, sync)
            if any(p.is_complex() for p in self._parameters):
                raise ValueError(f"parameters are complex, and '{sync}' is of real ones: take 'bsp' or 'local:8'")
            if place:
                raise ValueError(f"'{sync}' has no nodes: leave out place='{place}'")
            self._followed = FollowedPlan(plan, self._group, keeps_codec=True) if plan is not None else None
        self._are_floats = all(p.dtype == torch.float32 for p in self._parameters)
        everybody = Everybody(
            self._group, sync, place, compress, samples, self._trained(), self._layouts(), self._remembers(),
            plan=plan.text if plan else "", optimizer=optimizer_kind(optimizer),
        )  # fmt: skip
        self._share(everybody)
        self._policy = torch.classes.ranvier.SyncPolicy(sync, 0, 0, self._world, 0)
        self._policy.check_samples(everybody.samples)
        if self._policy.meets_peers() and len(set(everybody.samples)) > 1:
            by_rank = ", ".join(f"{each:g}" for each in everybody.samples)
            raise ValueError(
                f"'{sync}' averages two ranks at a time, whatever their samples, and these are {by_rank} by rank: give all as many, "
                "or take 'async' or 'group'"
            )
        self._samples = samples
        if self._world > 1 and dist.get_rank(self._group) == 0 and any(p.dtype == torch.float64 for p in self._parameters):
            warnings.warn(
                f"parameters are of float64, and '{sync}' carries and keeps 32 bits of them: take 'bsp' or 'local:8' where that "
                "is too few",
                stacklevel=3,
            )
        self._begin_alike()
        begin_with_state(optimizer, everybody, shares_gradients=False)
        self._connection: dist.ProcessGroup | None = connection_beside(self._group, everybody.name)
        self._last_told = Told(0, 0, list(range(self._world)), [1 / self._world] * self._world)
        self._pace: Any = None  # from the first step on, which begins from what the model holds then
        self._began = zeros()  # what the model holds, where that is not what ranks tell one another
        self._residual: Tensor | None = None  # of a checkpoint before ranks begin, for one behind finish()
        self._rests = False  # whether the last step was at a rate of 0, of which updates tell no momentum
        self._momenta: list[Tensor] = []  # before this step, behind such a one
        self._seen = 0.0  # samples of this rank since buffers were averaged
        self._computing = Computing(self._parameters[0].device)
        self._running: tuple[float, int] | None = None  # since when, and behind which step, ranks have not met
        self._hooks = hooks_around(optimizer, self._before_step, self._after_step)
        self._hooks.append(model.register_forward_pre_hook(Watch(self._computing)))
        attached.add(optimizer)

    @property
    def rounds(self) -> int:
        """Exchanges that this rank took part in."""
        return self._told().rounds

    @property
    def bytes(self) -> int:
        """That this rank has sent, as worker and as server."""
        return self._told().bytes

    @property
    def groups(self) -> list[int]:
        """By rank: who averages and pushes together, by 'group', once ten steps have been measured."""
        return self._told().groups

    @property
    def shares(self) -> list[float]:
        """By rank: the share of all samples that suits its speed, as 'group' has measured it; else an even one. For whoever
        deals samples out."""
        return self._told().shares

    @property
    def changes(self) -> list[PlanChange]:
        """Of the plan that it was given: that it is wrong, and what to do."""
        return self._followed.changes if self._followed else []

    def set_samples(self, samples: float) -> None:
        """This rank has so many samples in each step from the next one on. How many all have together, of which these are
        a share, is told when they meet: the most that each had in a step since they last did, since the last one before may
        be short; or what was set behind that."""
        own = as_samples(samples)
        if not 0 < own < float("inf"):
            raise ValueError(f"this rank has {own} samples in a step: give a finite number above 0")
        if self._policy.meets_peers() and own != self._samples:
            raise ValueError(
                f"'{self.spec}' does not weigh ranks by their samples, which stay the {self._samples:g} in a step that all were "
                f"attached with, and this rank gives {own:g}: take 'async' or 'group'"
            )
        self._samples = own
        if self._pace is not None:
            self._pace.set_samples(self._samples)

    def meet(self) -> None:
        """Every rank calls, behind as many steps as it has taken: all wait for one another, and hold the same parameters and
        buffers then. To look at a result together, and to write a checkpoint."""
        self._meet(ends=False)

    def finish(self) -> None:
        """As meet(), and lets the optimizer go, also where ranks cannot meet; again it does nothing."""
        if not self._hooks:
            return
        try:
            self._meet(ends=True)
            self._residual = self._pace.owed()
        finally:
            while self._hooks:
                self._hooks.pop().remove()
            attached.discard(self._optimizer)
            self._last_told, self._pace, self._connection = self._told(), None, None

    def state_dict(self) -> dict[str, Any]:
        """What belongs in a checkpoint beside the model's and the optimizer's; every rank saves its own, behind meet()."""
        held_back = self._pace.owed() if self._pace is not None else self._residual
        return {"sync": self.spec, "compress": self.compress, "step": self.step, "residual": held_back}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what state_dict gave. The model's parameters, which servers begin with, are loaded on every rank too,
        before the first step. Raises ValueError behind that, and for the state of another policy or model."""
        if self._pace is not None:
            raise ValueError("ranks have begun already: load a checkpoint before the first step")
        if missing := lacking_in(state, set(self.state_dict())):
            raise ValueError(f"this is no state of '{self.spec}', which has '{missing[0]}': load what state_dict() gave")
        if (state["sync"], state["compress"]) != (self.spec, self.compress):
            raise ValueError(
                f"the state is of the policy '{state['sync']}' with '{state['compress']}', this is '{self.spec}' with "
                f"'{self.compress}': attach the same"
            )
        held_back = state["residual"]
        if held_back is not None and held_back.numel() not in (0, sum(p.numel() for p in self._parameters)):
            raise ValueError("the state is of a model with another number of parameters: attach the same")
        self.step, self._residual = state["step"], held_back

    def join_hook(self, **_: Any) -> JoinHook:
        raise ValueError(f"ranks of '{self.spec}' take as many steps as they like: leave out Join, and call meet() behind them")

    def _told(self) -> Told:
        pace = self._pace
        if pace is None:
            return self._last_told
        return Told(pace.exchanges(), pace.bytes_sent(), list(pace.groups()), list(pace.shares()))

    def _begin(self) -> None:
        if self._pace is not None:
            return
        if self._connection is None:
            raise ValueError("finish() has ended this synchronization: attach the optimizer anew")
        rows = [p.shape[0] if p.dim() > 0 else 1 for p in self._parameters]
        columns = [p.numel() // max(row, 1) for p, row in zip(self._parameters, rows, strict=True)]
        self._pace = torch.classes.ranvier.OwnPace(
            self._connection.boxed(), self.spec, flat(self._parameters), self._samples, self.compress,
            heavy_ball(self._optimizer), self._remembers(), rows, columns,
        )  # fmt: skip
        if self._residual is not None and self._residual.numel() > 0:
            self._pace.owe(self._residual.to("cpu", torch.float32))
        self._residual = None
        self._began = self._as_held()

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> StepArguments | None:
        """What the step is called with instead, where it was given a closure: that computes."""
        if is_part_of_a_step(optimizer):
            return None
        self._require_no_others()
        self._begin()
        self._momenta = momenta_of(optimizer, self._parameters) if self._rests else []
        closure = closure_in(args, kwargs)
        if closure is None:
            self._computing.has_gradients()
            return None

        def timed() -> Any:
            loss = closure()
            self._computing.has_gradients()
            return loss

        return with_closure(timed, args, kwargs)

    def _after_step(self) -> None:
        if is_part_of_a_step(self._optimizer):
            return
        self.step += 1
        self._seen += self._samples
        if self._world > 1:
            values, took = flat(self._parameters), self._computing.took()
            rate = rate_of(self._optimizer)
            velocity = zeros()
            if self._momenta and rate > 0:
                velocity = flat(in_rate(self._optimizer, self._parameters, self._momenta, rate))
            self._pace.step(values, self._began, velocity, rate, self._samples, took[-1] if took else 0.0)
            self._rests, self._momenta = rate == 0 and heavy_ball(self._optimizer) > 0, []
            self._hold(values)
        self._computing.step_ends()
        if self._running is None:  # the first one behind a meeting may have waited for whatever a program does there
            self._running = time.perf_counter(), self.step

    def _judge_plan(self) -> None:
        """Where all ranks have stopped."""
        if self._followed is None:
            return
        own = None
        if self._running is not None:
            began, first = self._running
            own = time.perf_counter() - began, self.step - first
        self._followed.judge_pace(self.step, own)

    def _meet(self, ends: bool) -> None:
        self._begin()
        self._judge_plan()
        if self._world > 1:  # one rank alone keeps its bits, of whatever type
            values = flat(self._parameters)
            self._pace.meet(values, ends)
            self._hold(values)
            self._average_buffers()
        self._running = None

    def _average_buffers(self) -> None:
        """By the samples that each rank has had since the last time."""
        seen = torch.tensor([self._seen], dtype=torch.float64, device=self.join_device)
        dist.all_reduce(seen, group=self._group)
        if float(seen) > 0:
            for buffer in self._buffers:
                # In the order of its indices: gloo would send memory as it lies, gaps and all.
                weighted = buffer.detach().clone(memory_format=torch.contiguous_format)
                # What nobody here has seen is no part of it, whatever it is: 0 times infinity is no number.
                weighted = weighted.mul_(self._seen / float(seen)) if self._seen > 0 else weighted.zero_()
                dist.all_reduce(weighted, group=self._group)
                buffer.detach().copy_(weighted)
        self._seen = 0.0

    def _hold(self, values: Tensor) -> None:
        spread(values, self._parameters)
        self._began = self._as_held()

    def _as_held(self) -> Tensor:
        """Where its parameters are of another type, what the model makes of them: its next step counts from there."""
        return zeros() if self._are_floats or self._world == 1 else flat(self._parameters)
