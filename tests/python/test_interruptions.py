"""What interrupts a rank without ending it: signals, being stopped for a while, other threads that communicate as well."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks, run_ranks, said_by, until_it_waits
from torch.nn.parallel import DistributedDataParallel

TRANSPORTS = ["shm", "tcp", "udp"]
AT_ONCE = 20  # s, of the 60 that an operation may take: on a busy machine


def work_through(rank, world, seconds, enough=lambda: True):
    """Collectives and messages of several sizes for so long, and until all have had enough, each checked; how many rounds."""
    rounds, deadline = 0, time.monotonic() + seconds
    going = torch.ones(1)
    while going.item() > 0:
        for size in (1, 3000, 400_000):
            total = torch.full((size,), float(rank + rounds))
            dist.all_reduce(total)
            assert torch.equal(total, torch.full((size,), float(sum(range(world)) + world * rounds))), (rounds, size)
        sent, got = torch.full((5000,), float(rank)), torch.empty(5000)
        works = [dist.isend(sent, (rank + 1) % world), dist.irecv(got, (rank - 1) % world)]
        for work in works:
            work.wait()
        assert torch.equal(got, torch.full((5000,), float((rank - 1) % world)))
        rounds += 1
        going.fill_(float(time.monotonic() < deadline or not enough()))
        dist.all_reduce(going, dist.ReduceOp.MAX)
    return rounds


def under_signals(rank, world):
    caught = []
    for number, timer in ((signal.SIGALRM, signal.ITIMER_REAL), (signal.SIGPROF, signal.ITIMER_PROF)):
        signal.signal(number, lambda *_: caught.append(1))
        signal.setitimer(timer, 0.002, 0.002)
    try:
        rounds = work_through(rank, world, 2, lambda: len(caught) > 50)  # Python looks once behind each operation
    finally:
        for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)
    return rounds


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_signals_interrupt_no_operation(transport):
    assert min(on_ranks(3, under_signals, environment={"RANVIER_TRANSPORT": transport})) > 0


def stopped_for_a_while(rank, world, seconds):
    pids = [torch.empty(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(pids, torch.tensor([os.getpid()]))
    if rank == 0:

        def stop():
            time.sleep(0.3)
            os.kill(pids[1].item(), signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pids[1].item(), signal.SIGCONT)

        thread = threading.Thread(target=stop)
        thread.start()
    longest = 0.0
    going = torch.ones(1)
    while going.item() > 0:
        began = time.monotonic()
        work_through(rank, world, 0.1)
        longest = max(longest, time.monotonic() - began)
        going.fill_(float(rank == 0 and thread.is_alive()))
        dist.all_reduce(going, dist.ReduceOp.MAX)
    return longest


@pytest.mark.parametrize("transport", TRANSPORTS)
# Less by so much that a busy machine may let it go on late: by default 3 s of silence are too many, and 1 s is suspicious.
@pytest.mark.parametrize(("seconds", "limit"), [(1.5, None), (3.5, "8000")])
def test_a_rank_that_is_stopped_for_less_than_it_may_be_silent_goes_on(transport, seconds, limit):
    environment = {"RANVIER_TRANSPORT": transport} | ({"RANVIER_DEAD_AFTER_MS": limit} if limit else {})
    longest = on_ranks(3, stopped_for_a_while, seconds, environment=environment)
    assert max(longest) > seconds - 1, "it was stopped"


def interrupt(number=signal.SIGINT):
    """Ctrl-C of this process once its main thread waits in what it calls next: one that comes before is none of a wait."""
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)  # what a shell starts in the background ignores it

    def when_it_waits():
        until_it_waits(threading.main_thread())
        os.kill(os.getpid(), number)

    threading.Thread(target=when_it_waits, daemon=True).start()


def seconds_until(expected, call):
    """How long `call` takes to raise that."""
    began = time.monotonic()
    try:
        call()
        for _ in range(1000):  # until Python looks at signals
            time.sleep(0.001)
    except expected as error:
        assert type(error) is expected, repr(error)
        return time.monotonic() - began
    raise AssertionError(f"it raised no {expected.__name__}")


def all_reduce(tensor):
    dist.all_reduce(tensor)


def waiting(tensor):
    dist.all_reduce(tensor, async_op=True).wait()


def waiting_with_a_limit(tensor):
    dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=60))


def barrier(tensor):
    dist.barrier()


def monitored_barrier(tensor):
    dist.monitored_barrier(timeout=timedelta(seconds=60))


def receiving(tensor):
    dist.recv(tensor, 1)


def of_a_large_one(tensor):
    dist.all_reduce(torch.ones(5_000_000))


VAIN = [all_reduce, waiting, waiting_with_a_limit, barrier, monitored_barrier, receiving, of_a_large_one]


def in_vain(rank, world, call):
    """Ctrl-C of rank 0, which waits for what rank 1 never calls; what both hear then."""
    dist.barrier()
    if rank == 0:
        interrupt()
        took = seconds_until(KeyboardInterrupt, lambda: call(torch.ones(3)))
        assert took < AT_ONCE, took
    try:
        dist.recv(torch.ones(1), 1 - rank, tag=99)
    except dist.DistError as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("call", VAIN, ids=lambda call: call.__name__)
def test_an_interrupt_ends_a_wait_in_vain_at_once(transport, call):
    for said in on_ranks(2, in_vain, call, group_timeout=60, environment={"RANVIER_TRANSPORT": transport}):
        assert "rank 0 was interrupted: KeyboardInterrupt" in said and "EMPTY" not in said, said


def in_a_group_of_its_own(rank, world, path):
    """Ctrl-C of rank 0, which waits for rank 1 to make a group, too."""
    if rank == 0:
        interrupt()
        took = seconds_until(KeyboardInterrupt, lambda: dist.new_group([0, 1]))
        assert took < AT_ONCE, took
        path.touch()
    else:
        while not path.exists():
            time.sleep(0.01)
    total = torch.ones(1)
    dist.all_reduce(total)  # in the world, which stands
    return total.item()


def test_an_interrupt_ends_a_wait_for_those_who_make_no_group(tmp_path):
    assert on_ranks(2, in_a_group_of_its_own, tmp_path / "interrupted", group_timeout=60) == [2, 2]


def in_backward(rank, world, path):
    """DDP waits for Futures of torch's, which nothing interrupts."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    sharded = DistributedDataParallel(net, bucket_cap_mb=1e-6)
    inputs = torch.ones(2, 3, requires_grad=True)
    sharded(inputs).sum().backward()
    loss = sharded(inputs).sum()
    if rank == 1:
        while not path.exists():
            time.sleep(0.01)
    else:
        interrupt()
        took = seconds_until(KeyboardInterrupt, loss.backward)
        assert took < AT_ONCE, took
        path.touch()
    try:
        loss.backward()
    except (dist.DistError, RuntimeError) as error:
        return str(error)
    return "nothing"


def test_an_interrupt_ends_a_backward_of_ddp(tmp_path):
    _, other = on_ranks(2, in_backward, tmp_path / "interrupted", group_timeout=60)
    assert "rank 0 was interrupted: KeyboardInterrupt" in other, other


class OwnError(Exception):
    pass


def by_a_handler(rank, world, raises, path):
    """Handlers run while a rank waits. One that raises ends the wait with that; another lets it go on."""
    tensor = torch.ones(3)

    def handler(number, frame):
        path.touch()  # for which the other rank waits
        if raises:
            raise OwnError("of the program")

    dist.barrier()
    if rank == 1:
        while not path.exists():
            time.sleep(0.01)
        time.sleep(0.5)
        try:
            dist.all_reduce(tensor)
        except dist.DistError as error:
            return str(error)
        return tensor.tolist()
    signal.signal(signal.SIGALRM, handler)
    interrupt(signal.SIGALRM)
    if raises:
        seconds_until(OwnError, lambda: dist.all_reduce(tensor))
    else:
        dist.all_reduce(tensor)
    return tensor.tolist()


def test_what_another_handler_raises_ends_the_wait_as_well(tmp_path):
    assert "rank 0 was interrupted: OwnError: of the program" in on_ranks(2, by_a_handler, True, tmp_path / "ran")[1]


def test_a_handler_that_raises_nothing_runs_and_the_wait_goes_on(tmp_path):
    assert on_ranks(2, by_a_handler, False, tmp_path / "ran") == [[2.0] * 3] * 2


def twice(rank, world, path):
    """A second Ctrl-C, of a wait in another group, and of one where another thread waits."""
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    if rank == 1:
        while not path.exists():
            time.sleep(0.01)
        return None
    tensor = torch.ones(3)
    for group in groups[:2]:
        interrupt()
        assert seconds_until(KeyboardInterrupt, lambda group=group: dist.all_reduce(tensor, group=group)) < AT_ONCE
    said, ended = [], threading.Event()

    def elsewhere():
        try:
            dist.all_reduce(tensor, group=groups[2])
        except dist.DistError as error:
            said.append(str(error))
        ended.set()

    threading.Thread(target=elsewhere).start()
    interrupt()
    assert seconds_until(KeyboardInterrupt, ended.wait) < AT_ONCE
    assert not ended.wait(0.3), "it is the main thread alone that is interrupted"
    dist.destroy_process_group()
    assert ended.wait(AT_ONCE)
    path.touch()
    return said


def test_a_second_interrupt_is_heard_and_other_threads_are_not_interrupted(tmp_path):
    (said,), _ = on_ranks(2, twice, tmp_path / "interrupted", group_timeout=60)
    assert "closed" in said


PROGRAM = """
import os, signal, sys, threading, time
import torch, torch.distributed as dist
import ranvier
how, rank, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
signal.signal(signal.SIGINT, signal.default_int_handler)
dist.init_process_group("ranvier", init_method=f"file://{store}", rank=rank, world_size=2)
dist.barrier()
tensor = torch.ones(3)
if rank == 1:
    while not os.path.exists(store + ".interrupted"):
        time.sleep(0.01)
    dist.all_reduce(tensor)
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    if how == "main":
        dist.all_reduce(tensor)
    else:
        threading.Thread(target=lambda: dist.all_reduce(tensor)).start()
        time.sleep(60)
except KeyboardInterrupt:
    open(store + ".interrupted", "w").close()
    raise
"""


@pytest.mark.parametrize("how", ["main", "thread"])
def test_a_process_that_is_interrupted_ends_at_once_and_the_others_hear_why(how, tmp_path):
    store = tmp_path / "store"
    ranks = [[sys.executable, "-c", PROGRAM, how, str(rank), str(store)] for rank in range(2)]
    interrupted, other = said_by(ranks)  # and not when the operation had to end, which is after half an hour
    assert "KeyboardInterrupt" in interrupted and "terminate" not in interrupted, interrupted
    assert "rank 0 was interrupted: KeyboardInterrupt" in other or "rank 0 ended with KeyboardInterrupt" in other, other


def threads_of_groups(rank, world):
    """A group each: what one thread calls is in no order with what others do."""
    groups = [dist.new_group(list(range(world))) for _ in range(4)]
    wrong = []

    def work(number):
        for turn in range(100):
            total = torch.full((1 + 5000 * number,), float(rank + turn))
            dist.all_reduce(total, group=groups[number])
            if not torch.equal(total, torch.full_like(total, float(sum(range(world)) + world * turn))):
                wrong.append((number, turn))

    with ThreadPoolExecutor(len(groups)) as threads:
        list(threads.map(work, range(len(groups))))
    assert not wrong


def test_threads_may_have_a_group_each():
    on_ranks(3, threads_of_groups)


def threads_of_messages(rank, world):
    """One group, and a tag for each thread."""
    wrong = []

    def work(tag):
        for turn in range(50):
            sent, got = torch.full((1 + 3000 * tag,), float(100 * rank + turn)), torch.empty(1 + 3000 * tag)
            works = [dist.isend(sent, 1 - rank, tag=tag), dist.irecv(got, 1 - rank, tag=tag)]
            for each in works:
                each.wait()
            if not torch.equal(got, torch.full_like(got, float(100 * (1 - rank) + turn))):
                wrong.append((tag, turn))

    with ThreadPoolExecutor(4) as threads:
        working = threads.map(work, range(1, 5))
        for turn in range(50):  # and collectives meanwhile
            total = torch.full((2000,), float(turn))
            dist.all_reduce(total)
            if total[0].item() != 2 * turn:
                wrong.append(("all_reduce", turn))
        list(working)  # raises what they have
    assert not wrong


def test_threads_may_share_a_group_for_messages():
    on_ranks(2, threads_of_messages)


def threads_in_no_order(rank, world):
    """Collectives of several threads on one group, whose order nothing sees to: an error on all ranks, or right sums."""

    def work(size):
        for _ in range(200):
            total = torch.ones(size)
            dist.all_reduce(total)
            assert torch.equal(total, torch.full((size,), float(world))), size

    said = []

    def catching(size):
        try:
            work(size)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}".split("\n")[0])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(catching, (7, 3000)))
    return said


def test_collectives_of_threads_that_go_wrong_end_in_an_error():
    for said in on_ranks(2, threads_in_no_order, group_timeout=10, limit=60):
        for error in said:
            assert error.startswith("Dist") and "all_reduce" in error, error


def destroyed_under_way(rank, world, size):
    """What one rank does not wait for ends in an error on the others, or has been done."""
    dist.barrier()
    tensors = [torch.ones(size) for _ in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    if rank == 0:
        dist.destroy_process_group()
        del tensors
        return ""
    try:
        for work, tensor in zip(works, tensors, strict=True):
            work.wait(timedelta(seconds=60))
            assert torch.equal(tensor, torch.full((size,), float(world)))
    except dist.DistError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", [10, 5_000_000])
def test_a_group_that_is_destroyed_under_way_hangs_nobody(transport, size):
    outcomes = run_ranks(3, destroyed_under_way, size, environment={"RANVIER_TRANSPORT": transport}, group_timeout=600, limit=100)
    for outcome in outcomes:
        said = outcome.value if outcome.value is not None else outcome.error
        assert said == "" or "rank 0" in said or "left" in said, outcome
