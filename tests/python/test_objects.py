"""Python objects, which torch pickles."""

import torch.distributed as dist
from ranks import on_ranks


def objects(rank, world):
    gathered = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert gathered == [{"rank": r, "text": "x" * r} for r in range(world)]
    box = [("from", rank)]
    dist.broadcast_object_list(box, src=world - 1)
    assert box == [("from", world - 1)]
    for root in range(world):
        gathered = [None] * world if rank == root else None
        dist.gather_object({"rank": rank, "text": "y" * 100 * rank}, gathered, root)
        assert gathered == ([{"rank": r, "text": "y" * 100 * r} for r in range(world)] if rank == root else None)
        received = [None]
        dist.scatter_object_list(received, [("to", r, "z" * r) for r in range(world)] if rank == root else None, root)
        assert received == [("to", rank, "z" * rank)]


def test_python_objects_travel():
    on_ranks(3, objects)


def objects_in_messages(rank, world):
    """Lists of objects of different lengths."""
    if rank == 0:
        got = [None, None]
        assert dist.recv_object_list(got, src=1) == 1
        assert got == [{"from": 1}, "long" * 1000]
        got = [None]
        assert dist.recv_object_list(got, src=2) == 2
        assert got == [("from", 2)]
        dist.send_object_list([None, [rank]], dst=1)
    elif rank == 1:
        dist.send_object_list([{"from": 1}, "long" * 1000], dst=0)
        got = [1, 2]
        dist.recv_object_list(got, src=0)
        assert got == [None, [0]]
    else:
        dist.send_object_list([("from", rank)], dst=0)


def test_python_objects_go_from_rank_to_rank():
    on_ranks(3, objects_in_messages)
