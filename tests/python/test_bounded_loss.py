"""Sums that tolerate loss, RANVIER_TRANSPORT=udp:loss=0.01: which of a program's calls are sent so."""

import ranvier
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

    assert 0 <= ranvier.lost_share() <= 1
    largest = gradients()
    dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True).wait()
    assert torch.equal(largest, gradients())


def test_only_sums_that_are_not_waited_for_at_once_tolerate_loss():
    on_ranks(2, sums, environment=OVER_LOSS)


def share_over(rank, world):
    before = ranvier.lost_share()
    for _ in range(3):
        dist.all_reduce(gradients(), async_op=True).wait()
    due, missing = torch.ops.ranvier.losses(dist.group.WORLD.boxed())
    return before, due, missing, ranvier.lost_share()


def test_the_measured_loss_is_told():
    for before, due, missing, share in on_ranks(2, share_over, environment=OVER_LOSS):
        # A message of 1 MiB in two halves, one of which comes from the other rank, in pieces of 1 KiB.
        assert before == 0 and due >= 3 * 512, due
        assert share == missing / due


def test_where_every_byte_arrives_none_is_lost():
    for _, due, missing, share in on_ranks(2, share_over, environment={"RANVIER_TRANSPORT": "tcp"}):
        assert (due, missing, share) == (0, 0, 0)


def share(rank, world):
    return ranvier.lost_share()


def test_of_another_backend_the_loss_is_not_known():
    for outcome in run_ranks(2, share, backend="gloo"):
        assert outcome.error and "ranvier does not serve the CPU tensors of this group" in outcome.error, outcome


def one_waits(rank, world):
    dist.all_reduce(gradients(), async_op=rank == 0)
    dist.barrier()


def test_a_rank_that_sums_exactly_is_named():
    for outcome in run_ranks(2, one_waits, environment=OVER_LOSS, group_timeout=60):
        assert outcome.error and outcome.error.startswith("DistBackendError"), outcome
        assert "by bounded loss" in outcome.error and "all_reduce #" in outcome.error, outcome
