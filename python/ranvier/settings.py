"""Settings of the backend: environment variables for the whole job, `Options` for one process group."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, get_args, get_origin, get_type_hints

SETTINGS: dict[str, str] = {
    "RANVIER_TRANSPORT": "tcp, shm, udp, mpi, ucx, grpc, a pair such as shm+mpi, or auto (the default): shm within hosts, tcp between",
    "RANVIER_NODE": "ranks of different names are on different hosts, though they run on one; unset: as it is",
    "RANVIER_ALGORITHM": "ring, or another name that `ranvier bench --help` lists, or auto (the default): by size",
    "RANVIER_TUNING": "a file that `ranvier bench --tune` wrote: what auto chooses; the same on all ranks",
    "RANVIER_MEASURE": "0: auto does not measure links and algorithms first, and chooses the same in every run; 1, the default: it does",
    "RANVIER_LEARN": "1: auto corrects itself by what operations take, and rank 0 keeps that in RANVIER_TUNING; 0, the default: not",
    "RANVIER_TOPOLOGY": "torus:2x4, mesh:2x4 or ring: the network that data has to keep to; unset: all ranks reach all",
    "RANVIER_INTERFACE": "interface (eth0) or its IP address to listen on; unset: all addresses of this host",
    "RANVIER_SOCKETS": "of tcp or grpc for each link, where one is held below the line's rate: 1 (the default) to 16",
    "RANVIER_PORTS": "20000-20100: listen on one of these TCP ports while the ranks meet; unset: on any",
    "RANVIER_KEY": "file with the job's key, as `ranvier key new` made it; unset: the ranks agree on one through the store",
    "RANVIER_CERTIFICATE": "PEM file: prove who this rank is by a certificate instead of a key",
    "RANVIER_PRIVATE_KEY": "PEM file: of that certificate",
    "RANVIER_AUTHORITY": "PEM file: who has signed the certificates of all ranks",
    "RANVIER_INSECURE": "1: encrypt nothing between hosts; 0, the default: TLS 1.3",
    "RANVIER_ENCRYPT_EVERYWHERE": "1: TLS within a host too; 0, the default: only between hosts",
    "RANVIER_LINK_RATE": "hold each rank's sending to this rate, such as 200Mbit; unset: as fast as it goes",
    "RANVIER_DEAD_AFTER_MS": "give up a silent rank after this many milliseconds; unset: 3000",
}
"""Variable: what it does. All ranks of a job must have the same ones."""


_Path = str | os.PathLike[str]
_MOST_SOCKETS = 16
_LAST_PORT = 65535
_SHORTEST, _LONGEST = timedelta(milliseconds=100), timedelta(days=1)  # as of --dead-after-ms
_PROOF = ("certificate", "private_key", "authority")  # files of which each needs the others
# What the C++ library reads is text: a setting that was given, in the words of its variable.
_WORDS: dict[type, Callable[[Any], str]] = {
    str: str,
    os.PathLike: os.fspath,
    bool: lambda yes: str(int(yes)),  # before int, which it is, too
    int: str,
    timedelta: lambda duration: str(_milliseconds(duration)),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of one process group; what is not given here comes from the environment.

        dist.init_process_group("ranvier", pg_options=ranvier.Options(transport="tcp"))
        dist.new_group([0, 1], pg_options=ranvier.Options(algorithm="ring"))

    All ranks of the group pass the same ones. Each means what its variable in `SETTINGS` does. Where `pg_options` have
    to be another backend's, as in "cpu:ranvier,cuda:nccl", groups take those of the block that they are made in:

        with ranvier.Options(transport="tcp"):
            dist.init_process_group("cpu:ranvier,cuda:nccl", pg_options=nccl_options)

    Raises TypeError for a value of another type, ValueError for a number or a duration out of range; a text that says nothing,
    such as ports or the name of an algorithm, and a certificate without its other files, which the environment may name, fail
    when the group is made, where the other ranks hear of it.
    """

    transport: str | None = None
    node: str | None = None
    algorithm: str | None = None
    tuning: _Path | None = None
    measure: bool | None = None
    learn: bool | None = None
    topology: str | None = None
    interface: str | None = None
    sockets: int | None = None
    ports: str | None = None
    key: _Path | None = None
    certificate: _Path | None = None
    private_key: _Path | None = None
    authority: _Path | None = None
    insecure: bool | None = None
    encrypt_everywhere: bool | None = None
    link_rate: str | None = None
    dead_after: timedelta | None = None

    def __post_init__(self) -> None:
        for name, value in self._given():
            wanted = _TYPES[name]
            if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
                words = " or ".join(each.__name__ for each in wanted)
                article = "an" if words.startswith("i") else "a"
                raise TypeError(
                    f"ranvier.Options({name}=…) is {article} {words}, and not the {type(value).__name__} {value!r}"
                )
        if self.sockets is not None and not 1 <= self.sockets <= _MOST_SOCKETS:
            raise ValueError(f"ranvier.Options(sockets=…) is a number from 1 to {_MOST_SOCKETS}, and not {self.sockets}")
        if self.dead_after is not None and not _SHORTEST <= self.dead_after <= _LONGEST:
            raise ValueError(f"ranvier.Options(dead_after=…) is from 100 milliseconds to a day, and not {self.dead_after}")

    @property
    def _timeout(self) -> None:
        """torch's DeviceMesh asks for it, of options that stand in its backend_override: as long as by default."""

    def __enter__(self) -> Options:
        _blocks.set((*_blocks.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _blocks.set(_blocks.get()[:-1])

    def settings(self) -> dict[str, str]:
        """Those that were given, under the names of their variables."""
        return {
            _variable(name): next(words(value) for kind, words in _WORDS.items() if isinstance(value, kind))
            for name, value in self._given()
        }

    def _given(self) -> list[tuple[str, Any]]:
        values = [(each.name, getattr(self, each.name)) for each in fields(self)]
        return [(name, value) for name, value in values if value is not None]


_TYPES: dict[str, tuple[type, ...]] = {
    name: tuple(each for each in (get_origin(kind) or kind for kind in get_args(hint)) if each is not type(None))
    for name, hint in get_type_hints(Options).items()
}
_blocks: ContextVar[tuple[Options, ...]] = ContextVar("ranvier.Options", default=())


def _variable(option: str) -> str:
    return "RANVIER_DEAD_AFTER_MS" if option == "dead_after" else f"RANVIER_{option.upper()}"


def combined(options: Options | None = None) -> Options:
    """A group's own options over those of the blocks that it is made in, the innermost first."""
    return Options(**{name: value for each in (*_blocks.get(), options or Options()) for name, value in each._given()})


def for_group(timeout: timedelta, options: Options, is_part: bool = False) -> dict[str, str]:
    """What a new process group is given: its options, the environment's settings, and the timeout torch was called with,
    which is also how long ranks wait for each other to come. The dimensions that the environment names are those of all
    ranks: a group that `is_part` of them has none."""
    warn_of_misspellings()
    chosen = {variable: os.environ[variable] for variable in SETTINGS if os.environ.get(variable)}
    if is_part:
        chosen.pop("RANVIER_TOPOLOGY", None)
        if algorithm := chosen.get("RANVIER_ALGORITHM"):
            chosen["RANVIER_ALGORITHM"] = algorithm.partition(":")[0]
    chosen |= options.settings()
    _require_sense(options, chosen)
    milliseconds = str(max(1, _milliseconds(timeout)))
    return chosen | {"timeout_ms": milliseconds, "join_timeout_ms": milliseconds}


def _require_sense(options: Options, chosen: dict[str, str]) -> None:
    """Raises ValueError where options do not say what the library asks for, which would name variables and flags."""
    if options.ports is not None and not _is_range(options.ports):
        raise ValueError(f"ranvier.Options(ports=…) is a range of ports such as '20000-20100', and not {options.ports!r}")
    given = [name for name in _PROOF if getattr(options, name) is not None]
    lacking = [name for name in _PROOF if _variable(name) not in chosen]
    if given and lacking:
        raise ValueError(
            f"ranvier.Options({given[0]}=…) goes with {' and '.join(f'{name}=…' for name in lacking)}: name these files there, too, "
            f"or by {' and '.join(map(_variable, lacking))}"
        )


def warn_of_misspellings() -> None:
    """Other programs may have RANVIER_* variables of their own: only those that nearly are one of ours are suspect.

    Kubernetes tells pods of a service called ranvier where it is, by RANVIER_PORT=tcp://10.0.0.1:80.
    """
    for variable, value in os.environ.items():
        if variable.startswith("RANVIER_") and variable not in SETTINGS and not value.startswith(("tcp://", "udp://")):
            if near := difflib.get_close_matches(variable, SETTINGS, n=1, cutoff=0.85):
                warnings.warn(f"{variable} is no setting of ranvier; did you mean {near[0]}?", stacklevel=2)


def _is_range(ports: str) -> bool:
    ends = ports.split("-")
    if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
        return False
    return 1 <= int(ends[0]) <= int(ends[-1]) <= _LAST_PORT


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
