"""A process forked after the group was made: the group stays with the parent, and says so."""

import gc
import os
import signal
import time

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks


def in_a_fork(body) -> tuple[int, str]:
    """Exit status of a forked process that runs `body`, and what that returned or raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(body())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        dist.destroy_process_group()
        os._exit(7)
    os.close(writer)
    with os.fdopen(reader) as text:
        got = text.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), got


def forking(rank, world):
    dist.all_reduce(torch.ones(3))
    work = dist.all_reduce(torch.ones(1000), async_op=True)  # starts the thread that a fork does not have
    work.wait()
    calls = [
        lambda: dist.all_reduce(torch.ones(3)),
        lambda: dist.send(torch.ones(3), 1 - rank),
        dist.monitored_barrier,
        lambda: dist.new_group([0, 1], use_local_synchronization=True),
    ]
    for call in calls:
        status, text = in_a_fork(call)
        assert status == 7 and text.startswith("ValueError: this process was forked off after rank"), (status, text)
    # The parent's group is as it was.
    total = torch.ones(3)
    dist.all_reduce(total)
    assert torch.equal(total, torch.full((3,), float(world)))


def test_the_group_says_that_it_stayed_with_the_parent():
    on_ranks(2, forking)


def dying_before_a_child(rank, world):
    """Such as a data loader's worker, which lives on for some seconds."""
    total = torch.ones(3)
    dist.all_reduce(total)
    if rank == 1:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(total)


@pytest.mark.parametrize("transport", ["shm", "tcp", "udp"])
def test_a_rank_that_dies_is_noticed_though_processes_that_it_forked_live_on(transport):
    environment = {"RANVIER_TRANSPORT": transport, "RANVIER_DEAD_AFTER_MS": "10000"}
    outcomes = run_ranks(2, dying_before_a_child, lost=[1], environment=environment)
    assert "rank 1 died: its control connection closed" in (outcomes[0].error or ""), outcomes[0]


def waiting(rank, world):
    late = torch.zeros(1)
    if rank == 0:
        work = dist.all_reduce(torch.ones(1000), async_op=True)  # not done before rank 1 takes part
        for call in (work.wait, work.is_completed, work.get_future):
            status, text = in_a_fork(call)
            assert status == 7 and text.startswith("ValueError: this process was forked off after rank 0"), (call, text)
        dist.send(late, 1)
        work.wait()
        for call in (work.wait, work.is_completed, lambda: work.get_future().done()):
            assert in_a_fork(call) == (7, "True"), "what ended before the fork is known there"
    else:
        dist.recv(late, 0)
        dist.all_reduce(torch.ones(1000))


def test_what_the_parent_started_cannot_be_waited_for():
    on_ranks(2, waiting)


def compressing(rank, world):
    state, hook = ranvier.hook("bf16")
    status, text = in_a_fork(lambda: hook(state, None))
    assert status == 7 and text.startswith("ValueError: this process was forked off after ranvier.hook"), (status, text)


def test_a_hook_stays_with_the_parent():
    on_ranks(1, compressing)


def at_its_own_pace(rank, world):
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    sync = ranvier.attach(net, optimizer, "async")
    net(torch.ones(4)).sum().backward()
    optimizer.step()

    def body():
        with pytest.raises(ValueError, match="this process was forked off after rank"):
            sync.meet()
        sync._pace = sync._connection = None  # as at the end of an interpreter: the parent's job goes on
        gc.collect()
        return "done"

    assert in_a_fork(body) == (7, "done")
    optimizer.step()
    sync.finish()


def test_training_at_its_own_pace_stays_with_the_parent():
    on_ranks(2, at_its_own_pace)


def with_a_group_of_its_own(rank, world, folder):
    def body():
        dist.destroy_process_group()
        dist.init_process_group("ranvier", init_method=f"file://{folder}/second", rank=rank, world_size=world)
        total = torch.full((3,), float(rank))
        dist.all_reduce(total)
        return total.tolist()

    dist.barrier()
    assert in_a_fork(body) == (7, "[1.0, 1.0, 1.0]")
    dist.barrier()


def test_a_forked_process_may_have_a_group_of_its_own(tmp_path):
    on_ranks(2, with_a_group_of_its_own, tmp_path)


def loading(rank, world):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    data = torch.utils.data.TensorDataset(torch.randn(16, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
    batches = 0
    for _ in range(2):
        for (inputs,) in loader:
            model(inputs).sum().backward()
            batches += 1
    return batches


def test_workers_of_data_loaders_disturb_nobody():
    # Daemonic processes may have no children, and the ranks of other tests are daemons.
    assert on_ranks(2, loading, daemon=False) == [8, 8]
