"""Settings of the backend, as environment variables."""

from __future__ import annotations

import difflib
import os
import warnings
from datetime import timedelta

# Variable: (name of the setting in the C++ library, what it does)
SETTINGS: dict[str, tuple[str, str]] = {
    "RANVIER_TRANSPORT": ("transport", "tcp, shm or auto: shm where all ranks share a host, else tcp"),
    "RANVIER_ALGORITHM": ("algorithm", "ring, butterfly, … or auto: chosen by size"),
    "RANVIER_INTERFACE": ("interface", "the IP address to listen on; all of this host's where unset"),
    "RANVIER_LINK_RATE": ("link_rate", "hold each rank's sending to this rate, such as 200Mbit"),
    "RANVIER_DEAD_AFTER_MS": ("dead_after_ms", "give a silent rank up after this many milliseconds; 3000 where unset"),
}


def for_group(timeout: timedelta) -> dict[str, str]:
    """What the library is given for a new process group: the environment, and the timeout that torch was called with."""
    warn_of_misspellings()
    chosen = {name: os.environ[variable] for variable, (name, _) in SETTINGS.items() if os.environ.get(variable)}
    milliseconds = max(1, round(timeout.total_seconds() * 1000))
    join = min(milliseconds, 5 * 60 * 1000)
    return chosen | {"timeout_ms": str(milliseconds), "join_timeout_ms": str(join)}


def warn_of_misspellings() -> None:
    """Other programs may have RANVIER_* variables of their own: only those that nearly are one of ours are suspect."""
    for variable in os.environ:
        if variable.startswith("RANVIER_") and variable not in SETTINGS:
            if near := difflib.get_close_matches(variable, SETTINGS, n=1, cutoff=0.85):
                warnings.warn(f"{variable} is no setting of ranvier; did you mean {near[0]}?", stacklevel=2)
