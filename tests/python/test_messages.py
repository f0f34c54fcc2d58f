"""Messages between two ranks."""

import torch
import torch.distributed as dist
from expected import FLOATS, INTEGERS, MOVED_ONLY, check, example
from ranks import on_ranks


def around(rank, world):
    right, left = (rank + 1) % world, (rank - 1) % world
    for count in (0, 1, 1000, 300_000):
        mine = torch.arange(count, dtype=torch.float32) + rank
        received = torch.empty(count)
        sending = dist.isend(mine, right)
        dist.recv(received, left)
        sending.wait()
        assert torch.equal(received, torch.arange(count, dtype=torch.float32) + left)


def test_messages_go_around_a_ring():
    on_ranks(3, around)


def every_type(rank, world):
    for dtype in FLOATS + INTEGERS + MOVED_ONLY:
        for count in (0, 1, 70_001):
            if rank == 0:
                dist.send(example(3, dtype, count), 1)
                check(*_received(dtype, count, 1), dtype, count)
            else:
                check(*_received(dtype, count, 0), dtype, count)
                dist.isend(example(3, dtype, count), 0).wait()


def _received(dtype, count, sender):
    got = torch.zeros(count).to(dtype)
    dist.recv(got, sender)
    return got, example(3, dtype, count)


def test_messages_are_of_every_type():
    on_ranks(2, every_type)


def tags(rank, world):
    if rank == 0:
        for tag in (1, 2, 3):
            dist.send(torch.full((10,), float(tag)), 1, tag=tag)
    else:
        for tag in (3, 1, 2):
            received = torch.empty(10)
            dist.recv(received, 0, tag=tag)
            assert torch.equal(received, torch.full((10,), float(tag)))


def test_a_receive_takes_the_message_of_its_tag():
    on_ranks(2, tags)


def any_source(rank, world):
    if rank == 0:
        senders = set()
        for _ in range(world - 1):
            received = torch.empty(5)
            sender = dist.recv(received)
            assert torch.equal(received, torch.full((5,), float(sender)))
            senders.add(sender)
        assert senders == set(range(1, world))
    else:
        dist.send(torch.full((5,), float(rank)), 0)


def test_a_receive_from_anyone_says_who_it_was():
    on_ranks(3, any_source)


def batch(rank, world):
    other = 1 - rank
    received = torch.empty(100, 2).t()  # with gaps
    operations = [
        dist.P2POp(dist.isend, torch.full((2, 100), float(rank)), other),
        dist.P2POp(dist.irecv, received, other),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert torch.equal(received, torch.full((2, 100), float(other)))


def test_batches_of_messages_cross():
    on_ranks(2, batch)
