#!/usr/bin/env python3
"""Fails when a file includes something from a layer above its own, or when the core includes torch or Python.

usage: check_includes.py ROOT
"""

import pathlib
import re
import sys

# From the bottom up; a file may include its own layer, those named here, and what these may (docs/architecture.md).
LAYERS = {
    "base": [],
    "kernel": ["base"],
    "schedule": ["base"],
    "topology": ["schedule"],
    "codec": ["kernel"],
    "sync": ["codec"],
    "transport": ["base"],
    "engine": ["kernel", "topology", "transport"],
    "exchange": ["engine", "codec"],
    "replica": ["exchange", "sync"],
    "plan": ["engine", "sync"],
    "integrations": ["replica"],
    "cli": ["integrations", "plan"],
}


def known_to(layer: str) -> set[str]:
    return {layer}.union(*(known_to(below) for below in LAYERS[layer]))


# Which layer stands behind each public header.
PUBLIC = {
    "types.h": "base",
    "error.h": "base",
    "store.h": "base",
    "text.h": "base",
    "timeouts.h": "base",
    "kernel.h": "kernel",
    "schedule.h": "schedule",
    "cost.h": "schedule",
    "topology.h": "topology",
    "codec.h": "codec",
    "coding.h": "codec",
    "choose_policy.h": "sync",
    "server.h": "sync",
    "plan_judge.h": "sync",
    "sync.h": "sync",
    "unequal_workers.h": "sync",
    "worker_speeds.h": "sync",
    "guest_service.h": "transport",
    "security.h": "transport",
    "transport.h": "transport",
    "simulated.h": "transport",
    "callback.h": "engine",
    "communicator.h": "engine",
    "tuning.h": "engine",
    "demo.h": "exchange",
    "exchange.h": "exchange",
    "low_rank.h": "exchange",
    "shared_grid.h": "exchange",
    "shared_scale.h": "exchange",
    "normalized.h": "exchange",
    "chakra.h": "plan",
    "async_group.h": "replica",
    "parameter_guests.h": "replica",
    "own_pace.h": "replica",
    "parameter_server.h": "replica",
    "peer_average.h": "replica",
    "synchronizer.h": "replica",
    "design.h": "plan",
    "design_files.h": "plan",
    "design_search.h": "plan",
    "execution_trace.h": "plan",
    "measured_network.h": "plan",
    "network.h": "plan",
    "plan.h": "plan",
    "plan_file.h": "plan",
    "simulate.h": "plan",
    "workload.h": "plan",
    "workload_file.h": "plan",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
# What `python -m ranvier rebuild` compiles where there are only the public headers.
SHIPPED = pathlib.PurePath("integrations/torch")
FOREIGN = re.compile(r"^(torch|ATen|c10|c10d|pybind11)/|^Python\.h$")
SOURCES = {".h", ".cc", ".cu", ".cl"}


def layer_of(path: pathlib.PurePath) -> str | None:
    """The layer of a file, given its path from the repository's root."""
    parts = path.parts
    if parts[:2] == ("include", "ranvier"):
        return PUBLIC.get(parts[2])
    if parts[0] == "src":
        return parts[1] if parts[1] in LAYERS else None
    return parts[0] if parts[0] in LAYERS else None


def layer_of_include(name: str) -> str | None:
    """The layer of an included file; None for what is not ranvier's."""
    first, _, rest = name.partition("/")
    if first == "ranvier":
        return PUBLIC.get(rest, "unknown")
    if first in LAYERS and rest:
        return first
    # Relative to a folder of the same layer ("bench/job.h" in cli).
    return None


def problems(root: pathlib.Path) -> list[str]:
    found = []
    for folder in ("include", "src", "integrations", "cli"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            where = path.relative_to(root)
            layer = layer_of(where)
            if layer is None:
                found.append(f"{where}: belongs to no layer; add it to LAYERS or PUBLIC in {pathlib.Path(__file__).name}")
                continue
            for match in INCLUDE.finditer(path.read_text(encoding="utf-8")):
                name = match.group(2)
                if FOREIGN.search(name) and layer not in ("integrations", "cli"):
                    found.append(f"{where}: the core must not know {name}; what needs it belongs to integrations")
                    continue
                included = layer_of_include(name)
                if where.is_relative_to(SHIPPED) and included not in (None, "integrations") and not name.startswith("ranvier/"):
                    found.append(f"{where}: {name} is not in the package that compiles this for another torch; use what is public")
                if included == "unknown":
                    found.append(f"{where}: {name} belongs to no layer; add it to PUBLIC in {pathlib.Path(__file__).name}")
                elif included is not None and included not in known_to(layer):
                    found.append(f"{where}: {layer} includes {name}, which stands above or beside it in {included}")
    return found


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = problems(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "all includes point downwards")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
