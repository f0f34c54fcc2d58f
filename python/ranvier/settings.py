"""Settings of the backend: environment variables for the whole job, `Options` for one process group."""

from __future__ import annotations

import difflib
import os
import warnings
from dataclasses import dataclass
from datetime import timedelta

SETTINGS: dict[str, str] = {
    "RANVIER_TRANSPORT": "tcp, shm, udp, mpi, ucx, grpc, a pair such as shm+mpi, or auto (the default): shm within hosts, tcp between",
    "RANVIER_NODE": "ranks of different names are on different hosts, though they run on one; unset: as it is",
    "RANVIER_ALGORITHM": "ring, or another name that `ranvier bench --help` lists, or auto (the default): by size",
    "RANVIER_TUNING": "a file that `ranvier bench --tune` wrote: what auto chooses; the same on all ranks",
    "RANVIER_MEASURE": "0: auto does not measure the links first, and chooses the same in every run; 1, the default: it does",
    "RANVIER_TOPOLOGY": "torus:2x4, mesh:2x4 or ring: the network that data has to keep to; unset: all ranks reach all",
    "RANVIER_INTERFACE": "IP address to listen on; unset: all addresses of this host",
    "RANVIER_SOCKETS": "of tcp for each link, where one is held below the line's rate: 1 (the default) to 16",
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


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of one process group; what is not given here comes from the environment.

        dist.init_process_group("ranvier", pg_options=ranvier.Options(transport="tcp"))
        dist.new_group([0, 1], pg_options=ranvier.Options(algorithm="ring"))

    All ranks of the group pass the same ones. Each means what its variable in `SETTINGS` does.
    """

    transport: str | None = None
    algorithm: str | None = None
    tuning: str | os.PathLike[str] | None = None
    interface: str | None = None
    link_rate: str | None = None
    dead_after: timedelta | None = None

    def settings(self) -> dict[str, str]:
        """Those that were given, under the names of their variables."""
        given = {
            "RANVIER_TRANSPORT": self.transport,
            "RANVIER_ALGORITHM": self.algorithm,
            "RANVIER_TUNING": None if self.tuning is None else os.fspath(self.tuning),
            "RANVIER_INTERFACE": self.interface,
            "RANVIER_LINK_RATE": self.link_rate,
            "RANVIER_DEAD_AFTER_MS": None if self.dead_after is None else str(_milliseconds(self.dead_after)),
        }
        return {variable: value for variable, value in given.items() if value is not None}


def for_group(timeout: timedelta, options: Options | None = None) -> dict[str, str]:
    """What a new process group is given: its options, the environment's settings, the timeout torch was called with."""
    warn_of_misspellings()
    chosen = {variable: os.environ[variable] for variable in SETTINGS if os.environ.get(variable)}
    if options is not None:
        chosen |= options.settings()
    milliseconds = max(1, _milliseconds(timeout))
    join = min(milliseconds, 5 * 60 * 1000)
    return chosen | {"timeout_ms": str(milliseconds), "join_timeout_ms": str(join)}


def warn_of_misspellings() -> None:
    """Other programs may have RANVIER_* variables of their own: only those that nearly are one of ours are suspect."""
    for variable in os.environ:
        if variable.startswith("RANVIER_") and variable not in SETTINGS:
            if near := difflib.get_close_matches(variable, SETTINGS, n=1, cutoff=0.85):
                warnings.warn(f"{variable} is no setting of ranvier; did you mean {near[0]}?", stacklevel=2)


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
