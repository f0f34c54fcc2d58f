"""What a training step consists of, for `ranvier simulate` and `ranvier plan`.

    with ranvier.record(model, "recorded/workload.toml"):
        for batch in loader:
            ...                       # an ordinary loop: forward, backward, optimizer.step()

Hooks note when the forward pass begins, when it is through with each module that has parameters of its own, when it
ends, and when each gradient is complete, by the clock of the device that the model is on. The file gets the medians over
the steps, means over the ranks. What is computed between two such modules counts as the later one's. The first steps, which
warm up, do not count. Of a model inside DistributedDataParallel averaging goes on beside backward and takes some of its
processor time: `ranvier train --record` has it wait.

    with ranvier.record(model, "workload.toml", groups={"tensor": mesh["tp"].get_group()}):

Gradients are taken to be averaged over all ranks that the other groups leave, unless there is a group for "data". The
collectives of the groups are those of the second step; the waits of functional ones (DTensor, FSDP2) are not computing,
those of others cannot be told from it.

Where gradients are accumulated, a step's passes before the last one are computing beside which nothing is averaged, and
count as what a step has beside its layers (`other_ns`), as gathering samples does.

    with ranvier.record(stage, "workload.toml", groups={"pipeline": group}):

Of a pipeline each rank names the module that is its stage, see _stage_recording.py.
"""

from __future__ import annotations

import os
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ranvier import _collectives, _files
from ranvier._collectives import Call
from ranvier._library import require_group
from ranvier._streams import Clock

WARM_UP = 3
WATCHED = 2  # the step whose collectives are written down; the first one sets things up

# Where in a step: in the forward pass ("forward") the module that came next, none: the end of the pass; behind it
# ("backward") the parameter whose gradient came next.
Place = tuple[str, int | None]
FORWARD_ENDS: Place = ("forward", None)
Times = dict[int | None, float]  # seconds of the forward pass, by module
Medians = tuple[Times, float, dict[int, float]]  # forward, other, ready by parameter


class Recording:
    """A context manager; see the module. `path` is written by rank 0 when it ends without an exception.

    Raises OSError where it begins if that cannot be, rather than when everything is over.
    """

    def __init__(
        self, model: nn.Module, path: str | os.PathLike[str], groups: Mapping[str, dist.ProcessGroup] | None = None
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"record() takes a torch.nn.Module, and this is {model!r}: give it the model that the steps train")
        for role, group in (groups or {}).items():
            if role not in _collectives.ROLES:
                raise ValueError(f"'{role}' is no role of a group; there are {', '.join(_collectives.ROLES)}")
            require_group(group)
        self._groups = dict(groups or {})
        self._watch: _collectives.Watch | None = None
        self._begun = 0  # steps
        self._pending: list[tuple[Call | None, float]] = []  # since the last gradient
        self._calls: list[tuple[Place, Call]] = []
        self._waits: dict[Place, float] = {}
        self.path = pathlib.Path(path)
        self._parameters = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        if not self._parameters:
            raise ValueError("the model has no parameter with a gradient: there is no step to record")
        number_of = {id(each): number for number, (_, each) in enumerate(self._parameters)}
        own = [(m, [number_of.get(id(p), -1) for p in m.parameters(recurse=False)]) for m in model.modules()]
        self._modules = [(module, numbers) for module, numbers in own if max(numbers, default=-1) >= 0]
        self._model = model
        self._hooks: list[Any] = []
        self._clock = Clock(self._parameters[0][1].device)
        self._step_begin: Any = None  # moments of that clock, of this step …
        self._forward_begin: Any = None  # … and of its last pass
        self._forward_end: Any = None
        self._update_begin: Any = None
        self._passed: list[tuple[int | None, Any]] = []  # modules, and when the forward pass was through with each
        self._ready: dict[int, Any] = {}  # of the gradient that came last, last
        self._accumulates = 0  # steps of several passes
        self._closed: list[tuple[Any, ...]] = []  # of steps that a GPU may still be at
        self._steps: list[Medians] = []

    def __enter__(self) -> Recording:
        if self._writes():
            _files.check_writable(self.path, "workload")
        self._hooks = [self._model.register_forward_pre_hook(lambda *_: self._begin())]
        for number, (module, _) in enumerate(self._modules):
            self._hooks.append(module.register_forward_hook(self._pass(number)))
        self._hooks.append(self._model.register_forward_hook(lambda _, __, output: self._end_of_forward(output)))
        self._hooks.append(register_optimizer_step_pre_hook(lambda *_: self._begin_update()))
        for number, (_, parameter) in enumerate(self._parameters):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(self._complete(number)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._stop_watching()
        if kind is not None:
            return
        self._close_step(self._clock.now())
        self._measure(to_keep=0)
        if not self._steps:
            raise RuntimeError("no step was recorded: one is a forward pass, backward() and optimizer.step()")
        if self._groups and 2 * self._accumulates > len(self._steps):
            raise RuntimeError(
                "each step has several passes, and what the groups of a divided model say to each other was seen in one of "
                "them: record steps of one pass, without accumulation or micro-batches"
            )
        text = self._text(*self._means())
        if self._writes():
            _files.write_whole(self.path, "workload", text)

    @staticmethod
    def _writes() -> bool:
        return not dist.is_initialized() or dist.get_rank() == 0

    def _begin(self) -> None:
        self._close_step(self._clock.now())
        self._measure(to_keep=1)
        if self._begins_step():
            self._stop_watching()
            self._begun += 1
            if self._groups and self._begun == WATCHED:
                self._watch = _collectives.Watch(self._groups, self._see)
                self._watch.__enter__()
        before_this_pass = self._step_begin if self._ready and self._update_begin is None else None
        self._forward_begin, self._forward_end, self._update_begin = self._clock.now(), None, None
        self._step_begin = self._forward_begin if before_this_pass is None else before_this_pass
        self._passed, self._ready = [], {}

    def _begins_step(self) -> bool:
        """This pass: of those that follow without an update between, each counts as one until it is known that it does not."""
        return True

    def _see(self, call: Call | None, seconds: float) -> None:
        self._pending.append((call, seconds))

    def _pass(self, module: int) -> Callable[..., None]:
        def note(*_: Any) -> None:
            if self._forward_begin is None or self._forward_end is not None:
                return  # called by itself, or again by backward, which checkpoints its activations
            self._place(("forward", module))
            self._passed.append((module, self._clock.now()))

        return note

    def _end_of_forward(self, _: Any) -> None:
        self._place(FORWARD_ENDS)
        self._forward_end = self._clock.now()
        self._passed.append((None, self._forward_end))

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
            self._watch = None
            self._pending.clear()

    def _place(self, place: Place) -> None:
        """What was called since the last place came before this one."""
        for call, seconds in self._pending:
            self._waits[place] = self._waits.get(place, 0.0) + seconds
            if call is not None:
                self._calls.append((place, call))
        self._pending.clear()

    def _complete(self, number: int) -> Callable[[Tensor], None]:
        def note(_: Tensor) -> None:
            self._place(("backward", number))
            self._ready.pop(number, None)  # of several backward passes the last one counts
            self._ready[number] = self._clock.now()

        return note

    def _begin_update(self) -> None:
        if self._pending and self._ready:  # behind the last gradient: it is what they wait for
            self._place(("backward", next(reversed(self._ready))))
        if self._update_begin is None:
            self._update_begin = self._clock.now()

    def _close_step(self, now: Any) -> None:
        if self._ready and self._update_begin is not None:
            self._accumulates += self._step_begin is not self._forward_begin
            moments = (self._step_begin, self._forward_begin, self._backward_begin(), self._update_begin, now)
            self._closed.append((moments, self._passed, self._ready))

    def _backward_begin(self) -> Any:
        return self._forward_end

    def _measure(self, to_keep: int) -> None:
        """Takes the times of closed steps but for the last `to_keep`, for which a GPU would have to be waited for.

        Between the last gradient and the optimizer a step waits for averages, which is not computing."""
        between = self._clock.seconds
        while len(self._closed) > to_keep:
            (begin, before, backward, update, now), passed, ready = self._closed.pop(0)
            other = between(begin, before) + between(update, now)
            forward: Times = {}
            for module, at in passed:
                forward[module] = forward.get(module, 0.0) + between(before, at)
                before = at
            self._steps.append((forward, other, {n: between(backward, at) for n, at in ready.items()}))

    def _means(self) -> tuple[Times, float, dict[int, float], int]:
        steps = self._steps[WARM_UP:] if len(self._steps) > 2 * WARM_UP else self._steps
        forward = {module: [step[0].get(module, 0.0) for step in steps] for step in steps for module in step[0]}
        numbers = dict.fromkeys(number for step in steps for number in step[2])
        ready = {number: [step[2][number] for step in steps if number in step[2]] for number in numbers}
        everyone = self._alike((_medians(forward), statistics.median(step[1] for step in steps), _medians(ready)))
        if any(set(theirs) != set(ready) for _, _, theirs in everyone):
            raise RuntimeError("ranks have gradients of different parameters: record a model that is the same on all")
        forwards, others, readies = zip(*everyone, strict=True)
        return _means_of(forwards), statistics.mean(others), _means_of(readies), len(steps)

    def _alike(self, own: Medians) -> list[Medians]:
        """Of all ranks that hold the same."""
        return gathered(own)

    def _origin(self, steps: int, world: int) -> str:
        return f"the median of {steps} steps on each of {world} ranks"

    def _own_keys(self) -> str:
        """Lines of the file, beside those that all have."""
        return ""

    def _boundary(self, where: str) -> list[str]:
        """Lines of what goes from stage to stage in that pass."""
        return []

    def _text(self, forward: Times, other: float, ready: dict[int, float], steps: int) -> str:
        world = dist.get_world_size() if dist.is_initialized() else 1
        divided = [role for role in ("tensor", "expert", "pipeline") if role in self._groups]
        degrees = "".join(f"{role} = {self._groups[role].size()}\n" for role in divided)
        text = (
            f"# Written by ranvier.record(): {self._origin(steps, world)}.\n"
            "# Layers stand as the forward pass goes through them; gradients become ready from the last to the first.\n"
            f"name = {_quoted(type(self._model).__name__)}\nother_ns = {other * 1e9:.0f}\n"
            f"{self._own_keys()}ranks = {world}\n\n[degrees]\n{degrees}"
        )
        order = sorted(ready, key=lambda number: ready[number])
        passes, rest = self._passes(forward, order)
        layers = [self._layer("rest of forward", {"forward": rest[0]}, rest[1] + self._boundary("forward"))]
        before = 0.0
        for number in order:
            name, parameter = self._parameters[number]
            passing, lines = passes.get(number, (0.0, []))
            lines = lines + self._lines("input_gradient", ("backward", number))
            if number == order[-1]:
                lines += self._boundary("input_gradient")
            if "data" not in self._groups:
                own = parameter.to_local() if hasattr(parameter, "to_local") else parameter  # a DTensor's part
                size = own.numel() * own.element_size()
                lines.append(line("weight_gradient", Call("all_reduce", "data", size)))
            seconds = ready[number] - before - self._waits.get(("backward", number), 0.0)
            layers.append(self._layer(name, {"forward": passing, "weight_gradient": seconds}, lines))
            before = ready[number]
        return text + "".join(reversed(layers))

    def _passes(
        self, forward: Times, order: list[int]
    ) -> tuple[dict[int, tuple[float, list[str]]], tuple[float, list[str]]]:
        """Seconds and collectives of the forward pass by parameter: a module's stand with the one of its parameters
        that is ready last, which is its first layer in the file; and those of no parameter that has a gradient."""
        when = {number: at for at, number in enumerate(order)}
        by_parameter: dict[int, tuple[float, list[str]]] = {}
        rest: tuple[float, list[str]] = (0.0, [])
        for module, seconds in sorted(forward.items(), key=lambda item: -1 if item[0] is None else item[0]):
            place: Place = ("forward", module)
            here = seconds - self._waits.get(place, 0.0), self._lines("forward", place)
            mine = [n for n in self._modules[module][1] if n in when] if module is not None else []
            if not mine:
                rest = rest[0] + here[0], rest[1] + here[1]
                continue
            number = max(mine, key=lambda n: when[n])
            before = by_parameter.get(number, (0.0, []))
            by_parameter[number] = before[0] + here[0], before[1] + here[1]
        return by_parameter, rest

    def _lines(self, where: str, place: Place) -> list[str]:
        return [line(_pass_of(call, where), call) for at, call in self._calls if at == place]

    def _layer(self, name: str, times: dict[str, float], lines: list[str]) -> str:
        computing = "".join(f"{what}_ns = {max(0.0, seconds) * 1e9:.0f}\n" for what, seconds in times.items())
        communications = f"communications = [\n{''.join(lines)}]\n" if lines else ""
        return f"\n[[layer]]\nname = {_quoted(name)}\n{computing}{communications}"


def record(
    model: nn.Module, path: str | os.PathLike[str], groups: Mapping[str, dist.ProcessGroup] | None = None
) -> Recording:
    """Records the steps that are trained inside its `with` block into the workload file `path`.

    `groups`: by role ("tensor", "data", "expert", "expert_data", "pipeline") the process groups of a divided model.
    """
    from ranvier._stage_recording import StageRecording  # which is a Recording

    return (StageRecording if "pipeline" in (groups or {}) else Recording)(model, path, groups)


def gathered(own: Any) -> list[Any]:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [own]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    return everyone


def _pass_of(call: Call, where: str) -> str:
    """FSDP's sums of gradients go on beside the rest of the backward pass; what else is sent there is waited for."""
    sums_gradients = call.collective == "reduce_scatter" and call.role in ("data", "expert_data")
    return "weight_gradient" if sums_gradients and where == "input_gradient" else where


def line(where: str, call: Call) -> str:
    return (
        f'  {{ pass = "{where}", collective = "{call.collective}", bytes = {call.bytes}, role = "{call.role}" }},\n'
    )


def _medians(times: Mapping[Any, list[float]]) -> dict[Any, float]:
    return {key: statistics.median(each) for key, each in times.items()}


def _means_of(everyones: Sequence[Mapping[Any, float]]) -> dict[Any, float]:
    """0 where a rank has none."""
    keys = dict.fromkeys(key for each in everyones for key in each)
    return {key: statistics.mean(each.get(key, 0.0) for each in everyones) for key in keys}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
