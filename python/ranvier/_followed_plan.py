"""A plan of `ranvier plan` while training goes on: whether steps take as long as it predicted, and what takes its place where
they do not. When that is judged, and what is wrong, is C++ (include/ranvier/plan_judge.h), as in `ranvier train --plan`;
planning again is `ranvier plan --again`, which rank 0 runs while the others wait."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ranvier import _library
from ranvier._agreement import given_by_all
from ranvier._parts import PACKAGE
from ranvier._step_times import StepSeconds
from ranvier.plans import Plan, plan_of

JUDGED_STEPS = 20  # at least, of workers at their own pace: judged_steps of plan_judge.h
LIMIT_S = 2.0  # that a search may take, while all wait
TO_START_S = 60.0  # beside it, on a machine that is busy
AGAIN = "again: "  # the first sentence of a plan that has taken another one's place


class PlanChange(NamedTuple):
    """What training does instead of a plan that turned out wrong."""

    step: int  # the one behind which
    reason: str
    plan: Plan  # from then on; the same one where all stays


class FollowedPlan:
    """Of one rank. All ranks call judge() behind the same steps."""

    def __init__(self, plan: Plan, group: dist.ProcessGroup, *, keeps_codec: bool) -> None:
        """`plan`: with the bucket that gradients really go in, which stays, as does the codec with `keeps_codec`."""
        world = dist.get_world_size(group)
        if world != plan.ranks:
            raise ValueError(
                f"the plan is for {plan.ranks} ranks and these are {world}; make another one with ranvier plan --world {world}"
            )
        self.plan = plan
        self.changes: list[PlanChange] = []
        self.keeps_codec = keeps_codec
        self.group = group
        _library.load()
        expected = 0.0 if plan.has_stragglers else plan.step_seconds
        self._judge = torch.classes.ranvier.PlanJudge(plan.sync, plan.ranks, expected, plan.are_unequal)
        self._since = 0  # the step behind which it began or was last changed

    def state_dict(self) -> dict[str, Any]:
        return {"text": self.plan.text, "changes": self._judge.changes()}

    def load_state_dict(self, state: dict[str, Any] | None, step: int) -> bool:
        """Training goes on behind so many steps; whether by another plan than this one, which was changed before."""
        self._since = step
        if state is None or state["changes"] == 0:
            return False
        self._judge.set_changes(state["changes"])
        self._take(state["text"])
        return True

    def _take(self, text: str) -> None:
        """Without a plan the model of the links chooses, and nothing is expected."""
        self.plan = plan_of(text) if text else replace(self.plan, algorithms=(), text="")
        self._judge.expect(self.plan.step_seconds if text else 0.0)

    def window(self) -> int:
        """How many of the last steps are looked at."""
        return int(self._judge.window())

    def is_due(self, step: int) -> bool:
        return bool(self._judge.is_due(step - self._since))

    def judge(self, step: int, own: list[StepSeconds], gradient_bytes: int) -> Plan | None:
        """What all ranks do from now on, where steps do not take what was expected. `own`: of the last window of them, on this
        rank; none, of a rank that only keeps others company. `gradient_bytes`: of the model that is trained."""
        measured = _mean([each for each in given_by_all(self.group, "judging a plan", self._own(own)) if each])
        if measured is None or not self._judge.is_wrong(measured[0]):
            return None
        told = self._plan_again(measured, gradient_bytes) if dist.get_rank(self.group) == 0 else ("", "")
        text, reason = given_by_all(self.group, "planning again", told)[0]
        if not reason:  # steps take less, and nobody knows better
            self._judge.expect(measured[0])
            return None
        self._judge.set_changes(self._judge.changes() + 1)
        self._take(text)
        self._since = step
        self.changes.append(PlanChange(step, reason, self.plan))
        if dist.get_rank(self.group) == 0:
            warnings.warn(f"ranvier has planned anew behind step {step}: {reason}", stacklevel=2)
        return self.plan

    def judge_pace(self, step: int, own: tuple[float, int] | None) -> None:
        """Of ranks at their own pace, which have all stopped: they go by no algorithm and no bucket, so that of a plan that does
        not hold it is only said, once. `own`: seconds since this rank began, and how many steps it has taken."""
        everybodys = [each for each in given_by_all(self.group, "judging a plan", own) if each]
        steps = sum(count for _, count in everybodys) / self.plan.ranks  # of everybody's samples
        if steps < JUDGED_STEPS or self.changes or self._judge.expected() == 0:
            return
        took = statistics.fmean(seconds for seconds, _ in everybodys) / steps
        if not self._judge.is_wrong(took):
            return
        reason = (
            f"the samples of a step take {took * 1e3:.2f} ms and not {self.plan.step_seconds * 1e3:.2f}: record and probe again, "
            "and plan by that"
        )
        self.changes.append(PlanChange(step, reason, self.plan))
        if dist.get_rank(self.group) == 0:
            warnings.warn(f"ranvier's plan is wrong behind step {step}: {reason}", stacklevel=2)

    def _own(self, steps: list[StepSeconds]) -> StepSeconds | None:
        if not self._judge.by_median():  # steps are not alike
            return _mean(steps)
        return sorted(steps)[len(steps) // 2] if steps else None

    def _plan_again(self, measured: StepSeconds, gradient_bytes: int) -> tuple[str, str]:
        """A plan as text, none where it could not be made; and why, nothing where all stays as it is."""
        try:
            text = plan_again(self.plan, measured, gradient_bytes, self.keeps_codec)
            return text, plan_of(text).because[0].removeprefix(AGAIN)
        except (OSError, ValueError, subprocess.SubprocessError) as problem:
            if measured[0] < self._judge.expected():
                return "", ""
            return "", (
                "algorithms are chosen by the model of the links from now on, since it could not be planned again: "
                f"{problem}"
            )


def plan_again(plan: Plan, measured: StepSeconds, gradient_bytes: int, keeps_codec: bool) -> str:
    """The plan, as text, that suits steps which took what was measured. Raises ValueError with what was wrong, OSError where there
    is no program to ask, SubprocessError where it does not answer."""
    with tempfile.TemporaryDirectory(prefix="ranvier-plan-") as folder:
        before, after = Path(folder, "before.toml"), Path(folder, "after.toml")
        before.write_text(plan.text, encoding="utf-8")
        words = ["plan", "--again", str(before), "--output", str(after), "--limit", str(LIMIT_S)]
        words += ["--took-ms", repr(measured[0] * 1e3), "--waited-ms", repr(measured[1] * 1e3)]
        words += ["--gradient-bytes", str(gradient_bytes)]
        words += ["--bucket", str(plan.bucket_bytes)] if plan.bucket_bytes > 0 else []
        words += ["--keep-compress"] if keeps_codec else []
        done = subprocess.run(
            [PACKAGE / "bin" / "ranvier", *words], capture_output=True, text=True, timeout=LIMIT_S + TO_START_S, check=False
        )
        if done.returncode != 0:
            raise ValueError(done.stderr.strip().removeprefix("ranvier plan: ") or f"ranvier plan ended with {done.returncode}")
        return after.read_text(encoding="utf-8")


def _mean(steps: list[StepSeconds]) -> StepSeconds | None:
    if not steps:
        return None
    return statistics.fmean(step for step, _ in steps), statistics.fmean(waiting for _, waiting in steps)
