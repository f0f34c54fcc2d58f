"""What optimizers remember of their parameters, such as momentum and Adam's moments, handed from rank 0 to others."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier._agreement import given_by_all, telling_others
from ranvier._attachment import Everybody, can_be_told, is_divided, tell_by_first, trained_by


class _Kept(NamedTuple):
    """A tensor of an optimizer's state, of which each rank makes room."""

    shape: torch.Size
    dtype: torch.dtype
    is_beside: bool  # its parameter, on one device

    @classmethod
    def of(cls, tensor: Tensor, parameter: Tensor) -> _Kept:
        return cls(tensor.shape, tensor.dtype, tensor.device == parameter.device)

    def room(self, parameter: Tensor) -> Tensor:
        return torch.zeros(self.shape, dtype=self.dtype, device=parameter.device if self.is_beside else "cpu")


def heavy_ball(optimizer: torch.optim.Optimizer) -> float:
    """The momentum of torch.optim.SGD where all parameters have one and the same; 0 of other optimizers, and where it is
    Nesterov's, which looks ahead itself."""
    if type(optimizer) is not torch.optim.SGD:
        return 0.0
    found = {0.0 if each["nesterov"] else float(each["momentum"]) for each in optimizer.param_groups}
    return found.pop() if len(found) == 1 else 0.0


def momenta_of(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> list[Tensor]:
    """Those that torch.optim.SGD keeps now, zeros where it keeps none yet: copies."""
    kept = [optimizer.state.get(p, {}).get("momentum_buffer") for p in parameters]
    return [torch.zeros_like(p) if buffer is None else buffer.clone() for p, buffer in zip(parameters, kept, strict=True)]


def in_rate(optimizer: torch.optim.Optimizer, parameters: list[Tensor], momenta: list[Tensor], rate: float) -> list[Tensor]:
    """Each by its own rate of learning, as a share of `rate`."""
    rates = {id(p): float(each["lr"]) for each in optimizer.param_groups for p in each["params"]}
    return [momentum.mul_(rates[id(p)] / rate) for p, momentum in zip(parameters, momenta, strict=True)]


def begin_with_state(optimizer: torch.optim.Optimizer, everybody: Everybody, shares_gradients: bool) -> None:
    """What rank 0's optimizer remembers becomes what those remember that have nothing; and of all where ranks share gradients,
    since replicas stay equal only then. Every rank calls."""
    has_state = everybody.remember
    if is_divided(optimizer) or not any(has_state) or not (shares_gradients or (has_state[0] and not all(has_state))):
        return
    share_state(optimizer, everybody.group, takes=shares_gradients or not has_state[dist.get_rank(everybody.group)])


def share_state(optimizer: torch.optim.Optimizer, group: dist.ProcessGroup, takes: bool = True) -> None:
    """What the optimizer of rank 0 remembers becomes what every rank does that `takes` it, and keeps nothing else. Every rank
    calls. Raises ValueError for what cannot be sent."""
    parameters = trained_by(optimizer)
    is_first = dist.get_rank(group) == 0
    with telling_others(group):
        packed = _packed(optimizer, parameters) if is_first else b""
    told = pickle.loads(given_by_all(group, "attach() for what optimizers remember", packed)[0])
    for parameter, theirs in zip(parameters, told, strict=True):
        known = optimizer.state.get(parameter, {}) if is_first or takes else {}
        arrived = {name: _arrived(kept, known.get(name), parameter, group) for name, kept in theirs.items()}
        if is_first or not takes:
            continue
        if arrived:
            optimizer.state[parameter] = arrived
        else:
            optimizer.state.pop(parameter, None)


def _packed(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> bytes:
    """All but the values of tensors."""
    states: list[dict[Any, Any]] = [{} for _ in parameters]
    for parameter, state in zip(parameters, states, strict=True):
        for name, kept in optimizer.state.get(parameter, {}).items():
            if isinstance(kept, Tensor) and kept.numel() > 0 and not can_be_told(kept):
                raise ValueError(
                    f"rank 0's optimizer remembers '{name}' in a tensor that cannot be sent to the other ranks ({kept.layout}, "
                    f"{kept.dtype}): attach it before its first step, and load its state on every rank behind that"
                )
            state[name] = _Kept.of(kept, parameter) if isinstance(kept, Tensor) else kept
    try:
        return pickle.dumps(states)
    except Exception as error:
        raise ValueError(
            f"rank 0's optimizer remembers what cannot be sent to the other ranks ({error}): attach it before its first step, "
            "and load its state on every rank behind that"
        ) from error


def _arrived(kept: Any, known: Any, parameter: Tensor, group: dist.ProcessGroup) -> Any:
    """On rank 0 a tensor that it has, on others one with its values: that `known` to them, where it has room for them."""
    if not isinstance(kept, _Kept):
        return kept
    if not isinstance(known, Tensor) or _Kept.of(known, parameter) != kept:
        known = kept.room(parameter)
    tell_by_first(known, group, parameter.device)
    return known
