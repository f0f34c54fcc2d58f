"""What compression keeps of a bucket's parameters from step to step. It belongs to parameters, and follows them into
other buckets and into checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

# A float for each value of the bucket: error feedback; momentum; where changes are coded, this rank's gradient of the
# step before, and all ranks' average; where values are normalized, the mean magnitude of averages.
FLAT = ("residual", "velocity", "last", "average", "usual")
SAVED = (*FLAT, "owed")


def zeros(count: int = 0) -> Tensor:
    """Of float32 on the CPU, whatever a program has made its default type and device."""
    return torch.zeros(count, dtype=torch.float32, device="cpu")


@dataclass
class Memory:
    parameters: list[Tensor]
    step: int = 0  # how often it has been averaged
    residual: Tensor = field(default_factory=zeros)  # empty where the codec keeps none
    velocity: Tensor = field(default_factory=zeros)
    last: Tensor = field(default_factory=zeros)
    average: Tensor = field(default_factory=zeros)
    usual: Tensor = field(default_factory=zeros)
    largest: float = 0.0  # magnitude that averages have had since estimates were exact, where changes are coded
    owed: Tensor = field(default_factory=zeros)  # where none is kept, or changes are coded: that of a codec before
    spare: Tensor = field(default_factory=zeros)  # room for the next residual, of no value
    factors: list[list[Tensor]] = field(default_factory=list)  # of each parameter, left and right; empty: none yet
    norms: Tensor = field(default_factory=zeros)  # of blocks of this bucket: of no other one
    norms_of: list[int] = field(default_factory=list)  # the sizes of that bucket's parameters

    def __post_init__(self) -> None:
        self.factors = self.factors or [[] for _ in self.parameters]

    def sizes(self) -> list[int]:
        return [parameter.numel() for parameter in self.parameters]

    def slices(self) -> list[slice]:
        ends = [0, *accumulate(self.sizes())]
        return [slice(begin, end) for begin, end in zip(ends, ends[1:], strict=False)]

    def keeps(self, kinds: Iterable[str]) -> bool:
        """Whether it is of exactly these kinds."""
        return all((getattr(self, kind).numel() > 0) == (kind in kinds) for kind in FLAT)

    def pay(self, values: Tensor, kinds: Iterable[str]) -> None:
        """What a codec before has held back goes with the next gradients, where this one keeps nothing that it could be
        part of. (Where changes are coded they see to it themselves: it would be added up again at every step.)"""
        if self.owed.numel() > 0 and "last" not in kinds and bool(values.isfinite().all()):
            values += self.owed
            self.owed = zeros()

    def take_back(self, index: int, average: Tensor, kinds: Iterable[str]) -> None:
        """The average of that parameter nobody takes: what has been paid out for it is held back still. `kinds`: of those who
        send codes. (Where changes are coded estimates follow the gradient, and owe nothing.)"""
        if "last" in kinds:
            return
        if "residual" not in kinds:
            if bool(average.any()):
                self.owes()[self.slices()[index]] += average
        elif self.residual.numel() > 0:
            self.residual[self.slices()[index]] += average

    def owes(self) -> Tensor:
        """`owed`, with room for it."""
        if self.owed.numel() == 0:
            self.owed = zeros(sum(self.sizes()))
        return self.owed

    def record_of(self, parameter: Tensor) -> dict[str, Any]:
        """Of one parameter, for a checkpoint; clones."""
        index = next(i for i, candidate in enumerate(self.parameters) if candidate is parameter)
        place = self.slices()[index]
        record: dict[str, Any] = {"size": parameter.numel(), "step": self.step}
        record |= {kind: getattr(self, kind)[place].clone() for kind in SAVED if getattr(self, kind).numel() > 0}
        if self.average.numel() > 0:
            record["largest"] = self.largest
        if self.factors[index]:
            record["left"], record["right"] = (factor.clone() for factor in self.factors[index])
        if index == 0 and self.norms.numel() > 0:
            record["norms"], record["norms_of"] = self.norms.clone(), list(self.norms_of)
        return record


def require_record(parameter: Tensor, record: dict[str, Any], name: str, spec: str) -> None:
    """Raises ValueError where a parameter's record is none, or of one of another size."""
    lacking = [key for key in ("size", "step") if not isinstance(record, dict) or key not in record]
    if lacking:
        raise ValueError(f"what was saved of {name} has no '{lacking[0]}', as state_dict of ranvier.hook's state gives it")
    if record["size"] != parameter.numel():
        raise ValueError(
            f"{name} has {parameter.numel()} values and had {record['size']} when what '{spec}' holds back of it was saved, "
            "with another model: start without that state"
        )
    for kind in SAVED:
        if kind in record and (not isinstance(record[kind], Tensor) or record[kind].numel() != record["size"]):
            raise ValueError(f"what was saved of {name} has no '{kind}' of its {record['size']} values: start without that state")


def require_records(records: list[dict[str, Any] | None], parameters: list[Tensor], spec: str) -> None:
    """Raises ValueError for what is none of these parameters', in their order."""
    if len(records) != len(parameters):
        raise ValueError(
            f"the state is of a model with {len(records)} trained parameters, and this one has {len(parameters)}: attach the same"
        )
    for number, (parameter, record) in enumerate(zip(parameters, records, strict=True)):
        if record is not None:
            require_record(parameter, record, f"parameter {number}", spec)


def owed_elsewhere(record: dict[str, Any], keeps_step: bool) -> dict[str, Any]:
    """What of a record counts where ranks have come, who bring nothing, or gone: what is owed. What all have alike begins
    anew: averages of changes, whose estimates owe nothing, magnitudes, factors, norms; and steps, but where each rank has its
    own."""
    kept = {"size": record["size"], "step": record["step"] if keeps_step else 0}
    mine = ("owed",) if "last" in record or "usual" in record else SAVED
    return kept | {kind: record[kind] for kind in mine if kind in record}


def from_record(parameter: Tensor, record: dict[str, Any], name: str, spec: str) -> Memory:
    """Of a bucket of this parameter alone. Raises ValueError as require_record does."""
    require_record(parameter, record, name, spec)
    kept = {kind: record[kind].clone() for kind in (*SAVED, "norms") if kind in record}
    factors = [record[side].clone() for side in ("left", "right") if side in record]
    largest, norms_of = record.get("largest", 0.0), list(record.get("norms_of", []))
    return Memory([parameter], record["step"], largest=largest, factors=[factors], norms_of=norms_of, **kept)


class Memories:
    """Of all parameters that have been seen."""

    def __init__(self, spec: str) -> None:
        self.spec = spec  # what errors name
        self._of: dict[int, Memory] = {}  # by the id of a parameter, which the memory keeps alive
        self._met: dict[int, Tensor] = {}  # by their ids, in the order in which buckets brought them
        self._waiting: list[dict[str, Any]] = []  # of parameters of an unpickled state, in that order

    def of(self, parameters: list[Tensor], kinds: tuple[str, ...]) -> Memory:
        """Of this bucket. DDP forms buckets anew after the first step: what was kept follows the parameters."""
        self._meet(parameters)
        known = self._of.get(id(parameters[0]))
        if (
            known is not None
            and list(map(id, known.parameters)) == list(map(id, parameters))
            and all(self._of[id(each)] is known for each in parameters)  # one may have been in another bucket since
            and known.keeps(kinds)
        ):
            return known
        memory = Memory(parameters)
        for kind in kinds:
            setattr(memory, kind, zeros(sum(memory.sizes())))
        if known is not None and known.norms_of == memory.sizes():
            memory.norms, memory.norms_of = known.norms, known.norms_of
        for index, (parameter, place) in enumerate(zip(parameters, memory.slices(), strict=True)):
            old = self._of.get(id(parameter))
            if old is None:
                continue
            at = next(i for i, candidate in enumerate(old.parameters) if candidate is parameter)
            moves = old.last.numel() == 0 and ("residual" not in kinds or "last" in kinds)
            for owed in (old.owed, old.residual) if moves else (old.owed,):  # once: see pay()
                if owed.numel() > 0:
                    memory.owes()[place] += owed[old.slices()[at]]
            for kind in kinds:
                before = getattr(old, kind)
                # Else another codec kept it, or did not; what estimates lack of a gradient is owed to nobody.
                goes_on = kind != "residual" or not (moves or (old.last.numel() > 0 and "last" not in kinds))
                if before.numel() > 0 and goes_on:
                    getattr(memory, kind)[place] = before[old.slices()[at]]
            memory.factors[index] = old.factors[at]
            memory.step = max(memory.step, old.step)
            memory.largest = max(memory.largest, old.largest)
        for parameter in parameters:
            self._of[id(parameter)] = memory
        return memory

    def record_of(self, parameter: Tensor) -> dict[str, Any] | None:
        memory = self._of.get(id(parameter))
        return memory.record_of(parameter) if memory is not None else None

    def restore(self, parameter: Tensor, record: dict[str, Any], name: str) -> None:
        self._of[id(parameter)] = from_record(parameter, record, name, self.spec)

    def records(self) -> list[dict[str, Any]]:
        """Of all parameters, in an order that another DDP of the same model repeats."""
        return [self._of[each].record_of(parameter) for each, parameter in self._met.items()] + self._waiting

    def wait_for(self, records: list[dict[str, Any]]) -> None:
        self._waiting = list(records)

    def forget(self) -> None:
        """What is kept of the parameters that have been seen."""
        self._of = {each: Memory([parameter]) for each, parameter in self._met.items()}

    def leave_their_world(self, keeps_steps: bool) -> None:
        """Before the first bucket: what is kept, or waits, is of a run of more or fewer ranks, or not of all of them."""
        self._waiting = [owed_elsewhere(record, keeps_steps) for record in self._waiting]
        for memory in list(self._of.values()):
            for parameter in memory.parameters:
                self.restore(parameter, owed_elsewhere(memory.record_of(parameter), keeps_steps), "a parameter")

    def _meet(self, parameters: list[Tensor]) -> None:
        for parameter in parameters:
            if id(parameter) not in self._met:
                if self._waiting:
                    self.restore(parameter, self._waiting[0], f"parameter {len(self._met)} in the order of buckets")
                    del self._waiting[0]
                self._met[id(parameter)] = parameter
