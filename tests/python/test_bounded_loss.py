"""Sums that tolerate loss, RANVIER_TRANSPORT=udp:loss=0.01: which of a program's calls are sent so."""

import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks

OVER_LOSS = {"RANVIER_TRANSPORT": "udp:loss=0.01"}


def gradients() -> torch.Tensor:
    """The same on all ranks: then the average is what each gave, whichever packets come too late."""
    return torch.randn(1 << 18, generator=torch.Generator().manual_seed(7))


def sums(rank, world):
    exact = gradients() * world

    waited_for = gradients()
    dist.all_reduce(waited_for)
    assert torch.equal(waited_for, exact)

    later = gradients()
    dist.all_reduce(later, async_op=True).wait()
    assert torch.allclose(later, exact, atol=1e-4)
    # The values are spread and brought back on the way, which rounds.
    assert not torch.equal(later, exact)

    scattered = torch.empty(exact.numel() // world)
    dist.reduce_scatter_tensor(scattered, gradients(), async_op=True).wait()
    assert torch.equal(scattered, exact.view(world, -1)[rank])

    largest = gradients()
    dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True).wait()
    assert torch.equal(largest, gradients())


def test_only_sums_that_are_not_waited_for_at_once_tolerate_loss():
    on_ranks(2, sums, environment=OVER_LOSS)


def one_waits(rank, world):
    dist.all_reduce(gradients(), async_op=rank == 0)
    dist.barrier()


def test_a_rank_that_sums_exactly_is_named():
    for outcome in run_ranks(2, one_waits, environment=OVER_LOSS, group_timeout=60):
        assert outcome.error and outcome.error.startswith("DistBackendError"), outcome
        assert "by bounded loss" in outcome.error and "all_reduce #" in outcome.error, outcome
