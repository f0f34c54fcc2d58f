"""Two ranks that call two different collectives are told so on both, at once, whichever two they are."""

import itertools
import re

import torch
import torch.distributed as dist
from ranks import on_ranks


def one() -> torch.Tensor:
    return torch.ones(6)


def two() -> list[torch.Tensor]:
    return [one(), one()]


# By what errors call it: calls of (group, whether this rank is the root, root).
CALLS = {
    "all_reduce": lambda group, here, root: dist.all_reduce(one(), group=group),
    "sparse_all_reduce": lambda group, here, root: dist.all_reduce(one().to_sparse(), group=group),
    "broadcast": lambda group, here, root: dist.broadcast(one(), root, group=group),
    "reduce": lambda group, here, root: dist.reduce(one(), root, group=group),
    "all_gather": lambda group, here, root: dist.all_gather(two(), one(), group=group),
    "gather": lambda group, here, root: dist.gather(one(), two() if here else None, root, group=group),
    "scatter": lambda group, here, root: dist.scatter(one(), two() if here else None, root, group=group),
    "reduce_scatter": lambda group, here, root: dist.reduce_scatter(one(), two(), group=group),
    "all_to_all": lambda group, here, root: dist.all_to_all(two(), two(), group=group),
    "barrier": lambda group, here, root: dist.barrier(group=group),
    "monitored_barrier": lambda group, here, root: dist.monitored_barrier(group=group),
}
WITH_ROOT = ["broadcast", "gather", "reduce", "scatter"]
# What rank 0 and what rank 1 calls, each with its root.
CASES = [((first, 0), (second, 0)) for first, second in itertools.permutations(CALLS, 2)]
CASES += [((name, root), (name, 1 - root)) for name in WITH_ROOT for root in (0, 1)]


def all_cases(rank, world):
    """What this rank is told in each case."""
    told = []
    for case in CASES:
        group = dist.new_group([0, 1])  # with the time limit of all: nothing here waits for that
        name, root = case[rank]
        try:
            CALLS[name](group, rank == root, root)
            dist.barrier(group=group)
            told.append("nothing")
        except RuntimeError as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


def test_each_pair_of_collectives():
    for case, *errors in zip(CASES, *on_ranks(2, all_cases, group_timeout=600, limit=300), strict=True):
        for error in errors:
            sentence = error.partition("\n")[0]
            assert error.startswith("DistBackendError") and "the ranks disagree" in sentence, (case, error)
            assert "rank 0" in sentence and "rank 1" in sentence, (case, error)
            assert all(re.search(rf"\b{name} #0\b", sentence) for name, _ in case), (case, error)
            assert case[0][0] != case[1][0] or "root" in sentence, (case, error)
