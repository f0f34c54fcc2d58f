"""What `ranvier plan --output plan.toml` has decided, for a training in PyTorch.

    plan = ranvier.read_plan("plan.toml")
    dist.init_process_group("ranvier", pg_options=plan.options())
    sync = ranvier.attach(model, optimizer, plan)

or, where the plan's policy is bsp, by DistributedDataParallel, which averages beside the backward pass:

    ddp = DistributedDataParallel(model, bucket_cap_mb=plan.bucket_mb)
    ddp.register_comm_hook(*ranvier.hook(plan))

Either way steps are then compared with what the plan predicted, and where they take a quarter more or less, it is planned
again while training goes on (docs/simulator.md).
"""

from __future__ import annotations

import difflib
import functools
import os
import pathlib
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

from ranvier.settings import Options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# As include/ranvier/plan_file.h has them, and of what type: those without a default have to be there.
_KEYS: dict[str, tuple[type | tuple[type, ...], Any]] = {
    "workload": (str, ""),
    "communicator": (str, ""),
    "network": (str, ""),
    "link_gbit": ((int, float), 0),
    "latency_us": ((int, float), 0),
    "ranks": (int, None),
    "transport": (str, "auto"),
    "compress": (str, "none"),
    "sync": (str, "bsp"),
    "place": (str, ""),
    "placement": (list, []),
    "bucket_bytes": (int, 0),
    "because": (list, []),
    "prediction": (dict, None),
    "all_reduce": (list, []),
}
_EITHER_WAY = ("shm", "tcp", "shm+tcp")  # what a transport of "auto" may turn out to be
_MIB = 1 << 20


@dataclass(frozen=True)
class Plan:
    """Read by `read_plan`. Raises ValueError where it is asked about another world than it is for."""

    ranks: int
    transport: str
    compress: str  # codec, as attach() and hook() take it
    sync: str  # policy, as attach() takes it
    place: str  # of its nodes, as attach() takes it; "": a host is one
    placement: tuple[int, ...]  # rank r is to run in the place of rank placement[r]; (): in its own
    bucket_bytes: int  # of gradients that go together; 0: the plan does not say
    algorithms: tuple[tuple[int | None, str], ...]  # of all_reduce, each up to a size in bytes; None: beyond
    step_seconds: float  # predicted
    because: tuple[str, ...]
    are_unequal: bool = False  # ranks, on purpose: the prediction is the mean of many steps …
    has_stragglers: bool = False  # … or of particular ones, with which no others can be compared
    text: str = field(default="", repr=False, compare=False)  # of the file

    @property
    def bucket_mb(self) -> float | None:
        """DistributedDataParallel's bucket_cap_mb, which is in MiB; None, its default, where the plan does not say."""
        return self.bucket_bytes / _MIB if self.bucket_bytes > 0 else None

    def options(self, **others: Any) -> Options:
        """Settings of the process group: the plan's transport and algorithms, and `others` as `ranvier.Options` has them.
        Where algorithms are named otherwise, or learned, they are not the plan's."""
        world = os.environ.get("WORLD_SIZE", "")
        if world.isdigit() and int(world) != self.ranks:
            raise ValueError(
                f"the plan is for {self.ranks} ranks and these are {world}; make another one with ranvier plan --world {world}"
            )
        if self.placement:
            order = ", ".join(map(str, self.placement))
            warnings.warn(
                f"the plan has rank r run in the r-th of these places: {order}; start ranks so, for it counts on it",
                stacklevel=2,
            )
        mine: dict[str, Any] = {"transport": self.transport}
        learns = others.get("learn", os.environ.get("RANVIER_LEARN") == "1")
        if self.algorithms and not learns and not {"tuning", "algorithm"} & others.keys():
            mine["tuning"] = _file_of(self.table())
        return Options(**(mine | others))

    def table(self) -> str:
        """Its algorithms by size, in the format of `ranvier bench --tune`."""
        transports = _EITHER_WAY if self.transport == "auto" else (self.transport,)
        rows = [
            f"all_reduce {transport} {self.ranks} {'max' if up_to is None else up_to} {algorithm}\n"
            for transport in transports for up_to, algorithm in self.algorithms
        ]  # fmt: skip
        return "".join(rows)


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Raises OSError where there is no such file, ValueError with its name for one that is no plan. What a policy, codec
    or algorithm of that name is, whoever is given it says."""
    file = pathlib.Path(path)
    try:
        return plan_of(file.read_text(encoding="utf-8"))
    except ValueError as wrong:  # TOMLDecodeError and UnicodeDecodeError are, too
        raise ValueError(f"{file} is no plan of ranvier plan: {wrong}") from wrong


def plan_of(text: str) -> Plan:
    """As read_plan, of what such a file has in it."""
    found: dict[str, Any] = tomllib.loads(text)
    _check(found, _KEYS, "a plan")
    prediction = found["prediction"]
    if not isinstance(prediction.get("step_ns"), (int, float)):
        raise ValueError("its prediction has no step_ns, a number")
    value = {name: found.get(name, default) for name, (_, default) in _KEYS.items()}
    rows: list[tuple[int | None, str]] = []
    for row in value["all_reduce"]:
        if not isinstance(row, dict):
            raise ValueError("all_reduce is not a list of tables")
        _check(row, {"up_to_bytes": (int, 0), "algorithm": (str, None)}, "a row of all_reduce")
        rows.append((row.get("up_to_bytes"), row["algorithm"]))
    if any(up_to is None for up_to, _ in rows[:-1]):
        raise ValueError("only the last row of all_reduce may leave out up_to_bytes")
    if value["ranks"] < 1:
        raise ValueError(f"ranks is {value['ranks']}, and a plan is for 1 or more")
    return Plan(
        ranks=value["ranks"], transport=value["transport"], compress=value["compress"], sync=value["sync"],
        place=value["place"], placement=tuple(value["placement"]), bucket_bytes=value["bucket_bytes"],
        algorithms=tuple(rows), step_seconds=prediction["step_ns"] / 1e9, because=tuple(value["because"]),
        are_unequal=any(key in prediction for key in ("speeds", "jitter")), has_stragglers="straggle" in prediction,
        text=text,
    )  # fmt: skip


def _check(found: dict[str, Any], known: dict[str, tuple[type | tuple[type, ...], Any]], what: str) -> None:
    for name, value in found.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ValueError(f"{what} has no '{name}'" + (f"; did you mean {near[0]}?" if near else ""))
        if not isinstance(value, known[name][0]) or isinstance(value, bool):
            raise ValueError(f"{name} of {what} is {value!r}")
    for name, (_, default) in known.items():
        if default is None and name not in found:
            raise ValueError(f"{what} needs '{name}'")


@functools.cache
def _file_of(table: str) -> pathlib.Path:
    """In memory, as long as this process lives: groups read it when they are made."""
    file = os.memfd_create("ranvier-plan")
    os.write(file, table.encode())
    return pathlib.Path(f"/proc/self/fd/{file}")
