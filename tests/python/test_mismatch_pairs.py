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


# By what errors call it.
CALLS = {
    "all_reduce": lambda group, rank: dist.all_reduce(one(), group=group),
    "sparse_all_reduce": lambda group, rank: dist.all_reduce(one().to_sparse(), group=group),
    "broadcast": lambda group, rank: dist.broadcast(one(), 0, group=group),
    "reduce": lambda group, rank: dist.reduce(one(), 0, group=group),
    "all_gather": lambda group, rank: dist.all_gather(two(), one(), group=group),
    "gather": lambda group, rank: dist.gather(one(), two() if rank == 0 else None, 0, group=group),
    "scatter": lambda group, rank: dist.scatter(one(), two() if rank == 0 else None, 0, group=group),
    "reduce_scatter": lambda group, rank: dist.reduce_scatter(one(), two(), group=group),
    "all_to_all": lambda group, rank: dist.all_to_all(two(), two(), group=group),
    "barrier": lambda group, rank: dist.barrier(group=group),
    "monitored_barrier": lambda group, rank: dist.monitored_barrier(group=group),
}
# Data that flows one way, from or to rank 0.
FROM_ROOT = {"broadcast", "scatter"}
TO_ROOT = {"reduce", "gather"}
PAIRS = list(itertools.permutations(CALLS, 2))


def all_pairs(rank, world):
    """What each of the two is told when rank 0 calls the first of a pair and rank 1 the second."""
    told = []
    for pair in PAIRS:
        group = dist.new_group([0, 1])  # with the time limit of all: nothing here waits for that
        try:
            CALLS[pair[rank]](group, rank)
            dist.barrier(group=group)
            told.append("nothing")
        except RuntimeError as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


def test_each_pair_of_collectives():
    told = on_ranks(2, all_pairs, group_timeout=600)
    for pair, *errors in zip(PAIRS, *told, strict=True):
        # Where both only send, the barriers behind show it, and errors have the calls of the rank that noticed first.
        either = any if pair[0] in FROM_ROOT and pair[1] in TO_ROOT else all
        for error in errors:
            sentence = error.partition("\n")[0]
            assert error.startswith("DistBackendError") and "the ranks disagree" in sentence, (pair, error)
            assert "rank 0" in sentence and "rank 1" in sentence, (pair, error)
            assert either(re.search(rf"\b{name} #0\b", sentence) for name in pair), (pair, error)
