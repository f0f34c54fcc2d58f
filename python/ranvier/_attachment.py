"""What every way to attach an optimizer begins with: whether it may be, and what the ranks are told of one another."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from itertools import zip_longest
from types import FrameType
from typing import Any, SupportsFloat

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import Joinable
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from ranvier import _library
from ranvier._agreement import given_by_all
from ranvier._groups import new_name, options_of, timeout_of
from ranvier._streams import on_host
from ranvier._wire import travels_by
from ranvier.settings import combined

_c10d = dist.distributed_c10d

attached: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


# What calls an optimizer's hooks around its step, whatever its class.
_calls_hooks = torch.optim.Optimizer.profile_hook_step(lambda optimizer: None).__code__


def is_part_of_a_step(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a hook was called inside another step of the same optimizer: where a class calls its base's step, both call hooks
    once somebody has made an optimizer of the base."""
    frame: FrameType | None = sys._getframe(1)
    steps = 0
    while frame is not None and steps < 2:
        steps += frame.f_code is _calls_hooks and frame.f_locals["self"] is optimizer
        frame = frame.f_back
    return steps == 2


def hooks_around(
    optimizer: torch.optim.Optimizer, before: Callable[..., StepArguments | None], behind: Callable[[], None]
) -> list[RemovableHandle]:
    """Of its step, which torch.compile leaves as they are where a program compiles that."""
    pre: Any = torch.compiler.disable(before)
    post: Any = torch.compiler.disable(lambda *_: behind())
    return [optimizer.register_step_pre_hook(pre), optimizer.register_step_post_hook(post)]


def optimizer_kind(optimizer: torch.optim.Optimizer) -> str:
    """The name of torch's own class that it is made of, or else of its own."""
    kinds = type(optimizer).__mro__
    names = (each.__name__ for each in kinds if each.__module__.startswith("torch.optim") and each is not torch.optim.Optimizer)
    return next(names, type(optimizer).__name__)


def trained_by(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for each in optimizer.param_groups for p in each["params"] if p.requires_grad]


def fitting_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Those that the optimizer changes. Raises ValueError where attach() cannot take these two, TypeError for what is none."""
    if not isinstance(model, nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"attach() takes a torch.nn.Module and a torch.optim.Optimizer, and these are of {type(model).__name__} and "
            f"{type(optimizer).__name__}: give it the model and its optimizer, in this order"
        )
    parameters = trained_by(optimizer)
    for module in model.modules():
        if isinstance(module, nn.parallel.DistributedDataParallel):
            raise ValueError(
                "the model is in DistributedDataParallel, which averages gradients in every step itself: give attach() "
                "the model without it"
            )
    # By name: what takes long to import need not be there.
    sharding = any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
    if sharding or any(hasattr(p, "device_mesh") for p in parameters):  # DTensor
        raise ValueError(
            "each rank holds a part of the parameters (FSDP, DTensor), and attach() averages whole replicas: give it a model "
            "that is whole on every rank"
        )
    if any(is_lazy(p) for p in parameters):
        raise ValueError("a parameter has no shape yet, as lazy modules have none: call the model once before attach()")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS evaluates the model within its step, where no policy can average: take another optimizer")
    if not getattr(type(optimizer).step, "hooked", False) or "_optimizer_step_pre_hooks" not in vars(optimizer):
        raise ValueError(
            f"{type(optimizer).__name__} calls no hooks around its step, as what wraps an optimizer may not: give attach() the "
            "optimizer inside of it"
        )
    if optimizer in attached:
        raise ValueError("the optimizer is attached already: call finish() of what attach() gave before, or attach once")
    of_model = {id(p) for p in model.parameters()}
    if not parameters and any(id(p) in of_model for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("all parameters of the optimizer are frozen: let some have requires_grad before attach()")
    if not any(id(p) in of_model for p in parameters):
        raise ValueError("the optimizer has no parameter of the model: give attach() the two that belong together")
    return parameters


def as_samples(samples: Any) -> float:
    """Raises TypeError for what is no number."""
    try:
        if isinstance(samples, SupportsFloat):
            return float(samples)
    except (TypeError, ValueError):  # as of many values
        pass
    raise TypeError(f"samples are a number, and this is {samples!r}: give those of a step, such as 32")


def lacking_in(state: Any, keys: set[str]) -> list[str]:
    """What a checkpoint would have, and this, which may be none, does not."""
    return sorted(keys - (state.keys() if isinstance(state, dict) else set()))


def is_divided(optimizer: torch.optim.Optimizer) -> bool:
    """Whether each rank remembers what belongs to a part of the parameters, and no rank all of it."""
    return any(each.__name__ == "ZeroRedundancyOptimizer" for each in type(optimizer).__mro__)


def require_own_steps(optimizer: torch.optim.Optimizer, sync: str) -> None:
    """Raises ValueError for one whose ranks tell each other parameters in each step, where policies let them differ."""
    if is_divided(optimizer):
        raise ValueError(
            f"in each step of a ZeroRedundancyOptimizer every rank takes over what others have made of their parts, so that by "
            f"'{sync}' it would undo steps of its own: take 'bsp', or the optimizer that it divides"
        )


def rate_of(optimizer: torch.optim.Optimizer) -> float:
    """Of learning: the largest of the parameters' groups, of which some may rest; 1 where the optimizer has none."""
    return float(max(each.get("lr", 1.0) for each in optimizer.param_groups))


class Attached(Joinable):  # type: ignore[misc]  # mypy does not read torch
    """A model and its optimizer, and what torch's Join asks of each way to attach them."""

    _group: dist.ProcessGroup
    _world: int

    @property
    def lost_share(self) -> float:
        """Of what other ranks gave to this rank's averages of gradients, the share that these went without, over
        udp:loss=…: from 0 to 1."""
        return 0.0

    def _take(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Raises ValueError where attach() cannot take these two."""
        self._parameters = fitting_parameters(model, optimizer)
        self._known = {id(p) for p in self._parameters}
        self._first_buffers = dict(model.named_buffers())
        self._frozen = {name: p for name, p in model.named_parameters() if id(p) not in self._known}
        self._model, self._optimizer = model, optimizer

    def _layouts(self) -> dict[str, tuple[object, ...]]:
        """Of all that is not trained, for Everybody."""
        tensors = self._first_buffers | self._frozen
        return {name: (_kind_of(each), *each.shape) for name, each in tensors.items() if not is_lazy(each)}

    def _trained(self) -> list[tuple[str, tuple[object, ...]]]:
        """What travels, in its order, for Everybody."""
        # Whether a rank compiles its model makes no difference.
        names = {id(p): name.replace("_orig_mod.", "") for name, p in self._model.named_parameters()}
        return [(names.get(id(p), ""), (_kind_of(p), *p.shape)) for p in self._parameters]

    def _remembers(self) -> bool:
        """Whether the optimizer does anything, for Everybody."""
        return any(self._optimizer.state.get(p) for p in self._parameters)

    def _share(self, everybody: Everybody) -> None:
        """What is of another shape on other ranks, such as caches and parts of a divided layer, stays each rank's own."""
        self._first_buffers = {name: b for name, b in self._first_buffers.items() if name in everybody.alike}
        self._frozen = {name: p for name, p in self._frozen.items() if name in everybody.alike}

    @property
    def _buffers(self) -> list[Tensor]:
        return buffers_now(self._model, self._first_buffers)

    def _begin_alike(self) -> None:
        """All that rank 0's model has becomes everybody's, frozen parameters and buffers of any type too; but what is sparse,
        quantized, or has no values yet."""
        tensors = {id(t): t for t in (*self._parameters, *self._frozen.values(), *self._first_buffers.values())}
        for tensor in tensors.values():
            tell_by_first(tensor, self._group, self._parameters[0].device)

    def _require_no_others(self) -> None:
        """Raises ValueError where the optimizer trains what it did not when it was attached."""
        if self._world > 1 and any(id(p) not in self._known for p in trained_by(self._optimizer)):
            raise ValueError(
                "the optimizer trains parameters that it did not when it was attached, added or unfrozen since, which no "
                "rank would tell the others: call finish() of what attach() gave, and attach() anew"
            )

    def _sparse(self) -> str:
        """The first parameter of whose gradient a layer of the model says that it will be sparse; empty: none."""
        for name, layer in self._model.named_modules():
            if getattr(layer, "sparse", False) is True and id(getattr(layer, "weight", None)) in self._known:
                return f"{name}.weight" if name else "weight"
        return ""

    @property
    def join_device(self) -> torch.device:
        return self._parameters[0].device

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        return self._group


def buffers_now(model: nn.Module, first_buffers: dict[str, Tensor]) -> list[Tensor]:
    """Of floats of 16 bits at least: torch does not add up shorter ones. Complex ones as pairs of them. Looked up each time:
    modules may have put others in the place of the first ones (pytorch issue 63916). What is of another shape now, such as a
    cache, may be of yet another one on other ranks: each keeps its own."""
    now = dict(model.named_buffers())

    def is_like(other: Tensor | None, first: Tensor) -> bool:
        return other is not None and (other.shape, other.dtype, other.device) == (first.shape, first.dtype, first.device)

    floats = {
        name: b
        for name, b in first_buffers.items()
        if (b.is_floating_point() or b.is_complex()) and b.element_size() > 1 and can_be_told(b)
    }
    return [_as_real(each_once(now[name] if is_like(now.get(name), first) else first)) for name, first in floats.items()]


def _as_real(tensor: Tensor) -> Tensor:
    """The same memory, of complex numbers without their conj bit, with which view_as_real() refuses them."""
    if not tensor.is_complex():
        return tensor
    return torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)


def tell_by_first(tensor: Tensor, group: dist.ProcessGroup, device: torch.device) -> None:
    """What the first rank holds in it becomes everybody's, in place; but where it is sparse, quantized, or has no values.
    `device`: by which a group goes that does not serve the CPU."""
    if not can_be_told(tensor):
        return
    tensor = each_once(tensor)
    whole = tensor.detach().resolve_conj().resolve_neg()
    real = torch.view_as_real(whole) if whole.is_complex() else whole
    # As bytes: groups have no way for some types.
    serves_cpu = "cpu" in {each.type for each in group._device_types}
    where = travels_by(group, tensor.device) if serves_cpu else device
    values = real.reshape(-1).clone(memory_format=torch.contiguous_format)
    told = values.view(torch.uint8).to(where)
    dist.broadcast(told, dist.get_global_rank(group, 0), group=group)
    theirs = told.to(values.device).view(values.dtype).view(real.shape)
    if not torch.equal(theirs, real):
        whole = tensor.detach()
        whole.copy_(torch.view_as_complex(theirs) if whole.is_complex() else theirs)


def repeats_values(tensor: Tensor) -> bool:
    """Whether several elements are one in memory, as of an expanded tensor."""
    return tensor.layout == torch.strided and not tensor.is_contiguous() and each_once(tensor) is not tensor


def each_once(tensor: Tensor) -> Tensor:
    """The same memory, of an expanded tensor each value once, so that it can be written."""
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def can_be_told(tensor: Tensor) -> bool:
    has_values = tensor.device.type != "meta" and tensor.numel() > 0
    return has_values and tensor.layout == torch.strided and not tensor.is_quantized


def _kind_of(tensor: Tensor) -> str:
    """What has to be the same where ranks tell each other this tensor."""
    if can_be_told(tensor) or tensor.numel() == 0:
        return str(tensor.dtype)
    return f"{tensor.dtype} that no rank is told"


def _way_of(sync: str, place: str, compress: str) -> str:
    where = f" in '{place}'" if place else ""
    return f"'{sync}'{where} with '{compress}'"


def _in_words(trained: tuple[str, tuple[object, ...]] | None) -> str:
    if trained is None:
        return "no more parameters"
    name, (kind, *shape) = trained
    return f"'{name}' of {' x '.join(map(str, shape)) or 'one value'} ({kind})"


StepArguments = tuple[tuple[Any, ...], dict[str, Any]]  # of the optimizer's step, itself the first of them


def closure_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    closure: Callable[[], Any] | None = kwargs.get("closure", args[1] if len(args) > 1 else None)
    return closure


def with_closure(closure: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepArguments:
    """The same, with another one in its place."""
    return (args[0], closure, *args[2:]), {name: value for name, value in kwargs.items() if name != "closure"}


class Everybody:
    """What the ranks of `group`, all of which call, have given to attach(). Raises ValueError where they do not match;
    `layouts` of what is not trained need not, and `schedule` is what follows from the steps. `trained` are the parameters
    that travel, in that order, `remembers` whether the optimizer does anything of them, `sparse` one whose gradient will be,
    `plan` the text of the one that is followed, and `optimizer` its optimizer_kind()."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        sync: str,
        place: str,
        compress: str,
        samples: float,
        trained: list[tuple[str, tuple[object, ...]]],
        layouts: dict[str, tuple[object, ...]],
        remembers: bool,
        schedule: object = None,
        steps_per_epoch: int = 0,
        steps: int = 0,
        sparse: str = "",
        plan: str = "",
        optimizer: str = "",
    ) -> None:
        node = _library.load().host_number(os.environ.get("RANVIER_NODE", ""))
        named = (sync, place, compress, node, samples, new_name(), schedule, steps_per_epoch, steps)
        mine = (*named, layouts, trained, sparse, remembers, plan, optimizer)
        rank = dist.get_rank(group)
        told_by = given_by_all(group, "attach()", mine)
        for other, theirs in enumerate(told_by):
            if theirs[:3] != mine[:3]:
                raise ValueError(
                    f"rank {rank} synchronizes by {_way_of(*mine[:3])} and rank {other} by {_way_of(*theirs[:3])}: give attach() "
                    "the same on every rank"
                )
            if theirs[13] != plan:
                raise ValueError(
                    f"rank {rank} and rank {other} do not follow the same plan: give attach() the same file's on every rank"
                )
            if theirs[14] != optimizer:
                raise ValueError(
                    f"rank {rank} trains by {optimizer} and rank {other} by {theirs[14]}: make the same optimizer on every rank"
                )
            if theirs[6] != schedule:
                raise ValueError(
                    f"by '{sync}' rank {rank}, with steps_per_epoch={steps_per_epoch} and steps={steps}, and rank {other}, with "
                    f"{theirs[7]} and {theirs[8]}, would meet at different steps: give attach() the same on every rank, such "
                    "as the largest"
                )
            for mine_here, theirs_here in zip_longest(trained, theirs[10]):
                if mine_here != theirs_here:
                    raise ValueError(
                        f"rank {rank} trains {_in_words(mine_here)} where rank {other} trains {_in_words(theirs_here)}: make "
                        "the same model and optimizer on every rank, with parameters in the same order"
                    )
        self.alike = {name for name, each in layouts.items() if all(theirs[9].get(name) == each for theirs in told_by)}
        self.nodes = [theirs[3] for theirs in told_by]
        self.samples: list[float] = [theirs[4] for theirs in told_by]
        self.group = group
        self.remember = [theirs[12] for theirs in told_by]
        self.sparse = next((theirs[11] for theirs in told_by if theirs[11]), "")  # on any rank
        self.name: str = told_by[0][5]  # that no group has


def connection_beside(group: dist.ProcessGroup, name: str) -> dist.ProcessGroup:
    """Connections of ranvier's own between the ranks of `group`, all of which call with the same `name`, with the settings
    that the group was made with if it is one of ranvier's. For operators, which take it boxed(), and which it has to outlive."""
    timeout = timeout_of(group) or _c10d.default_pg_timeout
    store = dist.PrefixStore(name, _c10d._get_process_group_store(group))
    options = options_of(group) or combined()
    ranks = dist.get_process_group_ranks(group)
    return _library.connect_apart(store, dist.get_rank(group), timeout, options, ranks, "ranvier attach")


def flat(parameters: list[Tensor]) -> Tensor:
    """One behind the other, as floats on the CPU: a copy. Raises ValueError for complex ones."""
    if any(p.is_complex() for p in parameters):
        raise ValueError("parameters are complex, and codes and connections of ranvier's own carry real ones: leave both out")
    parts = [p.detach().reshape(-1).to(torch.float32) for p in parameters]
    if len({part.device for part in parts}) > 1:
        parts = [part.cpu() for part in parts]
    return on_host(torch.cat(parts))


def spread(values: Tensor, parameters: list[Tensor]) -> None:
    """What flat() gave, changed, becomes theirs."""
    if len({p.device for p in parameters}) == 1:
        values = values.to(parameters[0].device)
    with torch.no_grad():
        for parameter, part in zip(parameters, values.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(part.view_as(parameter))
