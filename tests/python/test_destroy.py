"""A group that is destroyed, or whose process ends, while it is in use."""

import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks, until_it_waits

# The groups' own timeout is 30 s: nothing here waits for it.
SOON_S = 15


def other_thread_waits(rank, world, how, ended):
    dist.barrier()
    if rank == 1:
        while not ended.exists():  # its going would be a reason of its own
            time.sleep(0.01)
        return True
    said = []
    work = dist.irecv(torch.ones(3), 1) if how != "recv" else None

    def wait():
        try:
            if how == "recv":
                dist.recv(torch.ones(3), 1)
            else:
                work.wait() if how == "wait" else work.get_future().wait()
        except Exception as error:  # of several types: see what it says
            said.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    until_it_waits(waiter)
    started = time.monotonic()
    dist.destroy_process_group()
    waiter.join()
    took = time.monotonic() - started
    ended.touch()
    assert took < SOON_S
    assert len(said) == 1 and "closed" in said[0], said
    return True


@pytest.mark.parametrize("how", ["recv", "wait", "future"])
def test_ends_the_waits_of_other_threads(how, tmp_path):
    assert on_ranks(2, other_thread_waits, how, tmp_path / "ended") == [True, True]


def in_a_callback(rank, world, waits):
    tensor = torch.ones(100)
    ended = threading.Event()

    def destroy(future):
        dist.destroy_process_group()
        ended.set()

    work = dist.all_reduce(tensor, async_op=True)
    work.get_future().then(destroy)
    if waits:
        work.wait()
    assert ended.wait(SOON_S)
    assert not dist.is_initialized()
    return tensor.tolist() == [world] * 100


@pytest.mark.parametrize("waits", [False, True])
def test_may_be_in_a_callback(waits):
    assert on_ranks(2, in_a_callback, waits) == [True, True]


WAITING_AT_ITS_END = """
import sys, threading, time
import torch, torch.distributed as dist, ranvier
rank = int(sys.argv[1])
dist.init_process_group("ranvier", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
def wait():
    try:
        dist.recv(torch.ones(3), 1)
    except Exception:
        pass
if rank == 0:
    threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.3)
else:
    time.sleep(1)
"""


def test_a_process_ends_though_a_thread_of_it_waits(tmp_path):
    # By default a group waits for 30 minutes.
    command = [sys.executable, "-c", WAITING_AT_ITS_END]
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path / "store")]) for rank in range(2)]
    try:
        assert [rank.wait(4 * SOON_S) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
