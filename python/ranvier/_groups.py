"""Process groups that their members make by themselves, whatever groups their ranks have made or left before.

torch.distributed names a new group by a count: of all groups (`new_group`), so that every rank of the world has to call
it, or of those that this rank is in (`use_local_synchronization=True`), which differs between ranks. Ranks that count
differently never meet. Here the name is one that the members have agreed on, and they meet in a group's own store."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist

from ranvier._library import count_beside, is_in_reach, is_ours, load, require_group
from ranvier._register import made_with
from ranvier.settings import Options

_c10d = dist.distributed_c10d

_gathered: ContextVar[list[dist.ProcessGroup] | None] = ContextVar("_gathered", default=None)


@contextlib.contextmanager
def gathering() -> Iterator[list[dist.ProcessGroup]]:
    """The groups that group_like() makes meanwhile, for leave()."""
    made: list[dist.ProcessGroup] = []
    before = _gathered.set(made)
    try:
        yield made
    finally:
        _gathered.reset(before)


def leave(made: list[dist.ProcessGroup], group: dist.ProcessGroup, device: torch.device) -> None:
    """Ends the connections and threads of those groups. All ranks of `group` call, which has them made between its ranks and
    serves `device`."""
    if group not in _c10d._world.pg_map:  # the world is gone, and they with it
        return
    if group.size() > 1:  # all are done with them
        dist.all_reduce(torch.zeros(1, device=device), group=group)
    while made:
        dist.destroy_process_group(made.pop())


def chosen(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The group that a caller means: its own, or the default one. Refuses what torch.distributed knows no ranks of."""
    if group is None:
        dist.get_world_size()  # torch's word for a program that has no groups yet
        return dist.group.WORLD
    require_group(group)
    if group not in _c10d._world.pg_group_ranks:
        raise ValueError(
            "torch.distributed does not know the ranks of this process group, which ProcessGroup.split_group() makes, nor of one "
            "that was destroyed: make one by torch.distributed.new_group()"
        )
    return group


def new_name() -> str:
    """That no group has, nor ever had in a store that outlives them."""
    return uuid.uuid4().hex


def agreed_name(group: dist.ProcessGroup) -> str:
    """The same on all ranks of `group`, all of which call."""
    name = [new_name()]
    dist.broadcast_object_list(name, dist.get_global_rank(group, 0), group=group)
    return name[0]


def group_like(
    model: dist.ProcessGroup, name: str, description: str, ranks: Sequence[int] | None = None
) -> dist.ProcessGroup:
    """A group of the same kind, with the same timeout and options. `ranks` of the world, this one among them, call with
    the same `name`; none: all ranks of `model`."""
    members = list(ranks) if ranks is not None else dist.get_process_group_ranks(model)
    options, timeout = options_of(model) or Options(), timeout_of(model)  # which may have been changed since
    if len(members) < model.size():  # dimensions suit one number of ranks only, and so does a topology
        algorithm = options.algorithm.partition(":")[0] if options.algorithm else None
        options = replace(options, algorithm=algorithm, topology=None)
    backend = dist.get_backend(model)
    with options:
        made, _ = _c10d._new_process_group_helper(
            len(members),
            members.index(dist.get_rank()),
            members,
            backend,
            _c10d._get_process_group_store(model),
            f"{model.group_name}/{name}",
            timeout=timeout if timeout is not None else _c10d._get_default_timeout(backend),
            device_id=dist.group.WORLD.bound_device_id,
            group_desc=description,
        )
    _c10d._world.pg_group_ranks[made] = {member: rank for rank, member in enumerate(members)}
    count_beside(model, made)
    if (gathered := _gathered.get()) is not None:
        gathered.append(made)
    return made


def options_of(group: dist.ProcessGroup) -> Options | None:
    """That it was made with, if it is one of ranvier's."""
    # Names of torch's come again, so that there may be an entry of an earlier group.
    is_one = "ranvier" in {each.partition(":")[2] for each in str(dist.get_backend_config(group)).split(",")}
    return made_with.get(group.group_name) if is_one else None


def timeout_of(group: dist.ProcessGroup) -> timedelta | None:
    if is_ours(group):
        return timedelta(milliseconds=load().timeout_ms(group.boxed()))
    options = getattr(group._get_backend(group._device_types[0]), "options", None)
    return getattr(options, "_timeout", None)


def follow_in(group: dist.ProcessGroup, table: str) -> None:
    """By this table of algorithms sums of `group` are made from now on, of which none is under way, where it is ranvier's own
    and nobody has named an algorithm; an empty one: by the model of its links. All ranks call."""
    if is_in_reach(group):
        load().follow(group.boxed(), table)
