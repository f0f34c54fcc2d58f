"""What all ranks of a group give to a call that they all make, before any of them goes on by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch.distributed as dist


class Refusal(NamedTuple):
    """In place of what a rank would have given: why it cannot take part."""

    why: str


def given_by_all(group: dist.ProcessGroup, call: str, given: Any) -> list[Any]:
    """By rank. Raises ValueError where a rank has refused, or made another call."""
    told = _gather(group, (call, given))
    for rank, (other, theirs) in enumerate(told):
        if isinstance(theirs, Refusal):
            raise ValueError(f"rank {rank} cannot take part in {call}: {theirs.why}")
        if other != call:
            raise ValueError(
                f"rank {dist.get_rank(group)} has called {call} where rank {rank} has called {other}: call both in the same "
                "order on every rank"
            )
    return [given for _, given in told]


@contextmanager
def telling_others(group: dist.ProcessGroup) -> Iterator[None]:
    """What is raised here on this rank alone, the others get, too: instead of waiting for it in given_by_all()."""
    try:
        yield
    except Exception as error:
        with suppress(Exception):  # there is no group, or nobody in it
            _gather(group, ("", Refusal(str(error))))
        raise


def _gather(group: dist.ProcessGroup, given: Any) -> list[Any]:
    all_given: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(all_given, given, group=group)
    return all_given
