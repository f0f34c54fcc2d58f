"""Runs a function on several ranks, each a process of its own."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest import mock

import ranvier  # noqa: F401: the copy under test may be a build tree, which torch does not find by itself
import torch
import torch.distributed as dist

# Forked from a process that has imported torch already: a rank then starts in milliseconds and not in seconds.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "torch.nn.parallel", "ranvier"])
# Where a library has to come before all others, which only a new program can have.
_anew = multiprocessing.get_context("spawn")


@dataclass
class Outcome:
    value: Any = None
    error: str | None = None  # "DistBackendError: …", the whole text
    trace: str = ""


@dataclass(frozen=True)
class Setup:
    world: int
    backend: str = "ranvier"
    environment: tuple[tuple[str, str], ...] = ()
    group_timeout: float = 30
    store: str = ""


def run_ranks(
    world: int,
    body: Callable[..., Any],
    *args: Any,
    lost: Collection[int] = (),
    limit: float = 240,
    daemon: bool = True,
    environment: dict[str, str] | None = None,
    preload: str = "",
    **setup: Any,
) -> list[Outcome]:
    """What `body(rank, world, *args)` gave or raised on each rank, inside a process group that is destroyed afterwards.

    Ranks in `lost` are not waited for. `preload` is a library to load before all others. What still runs after `limit` seconds is killed, and that is its error.
    """
    with tempfile.TemporaryDirectory() as folder:
        what = Setup(world, environment=tuple((environment or {}).items()), store=f"file://{folder}/store", **setup)
        processes, rank_of = [], {}
        context = _anew if preload else _context
        for rank in range(world):
            reader, writer = context.Pipe(duplex=False)
            processes.append(context.Process(target=_rank, args=(writer, rank, what, body, args), daemon=daemon))
            with mock.patch.dict(os.environ, {"LD_PRELOAD": preload} if preload else {}):
                processes[rank].start()
            writer.close()
            rank_of[reader] = rank
        outcomes = [Outcome(error=f"rank {rank} gave no result within {limit} s") for rank in range(world)]
        deadline = time.monotonic() + limit
        while set(rank_of.values()) - set(lost) and (ready := multiprocessing.connection.wait(list(rank_of), _left(deadline))):
            for reader in ready:
                outcomes[rank_of.pop(reader)] = _read(reader)
        for rank, process in enumerate(processes):
            process.join(0 if rank in lost else _left(deadline))
            if process.is_alive():
                process.kill()
                process.join()
                outcomes[rank].error = outcomes[rank].error or f"rank {rank} did not end within {limit} s"
        return outcomes


def values(outcomes: list[Outcome]) -> list[Any]:
    """The results, when all ranks must have succeeded."""
    failures = [f"rank {rank}: {each.error}\n{each.trace}" for rank, each in enumerate(outcomes) if each.error]
    assert not failures, "\n".join(failures)
    return [each.value for each in outcomes]


def on_ranks(world: int, body: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
    return values(run_ranks(world, body, *args, **options))


def said_by(commands: list[list[str]], limit: float = 120) -> list[str]:
    """On stderr, by processes that run at once and end within `limit` seconds."""
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        return [process.communicate(timeout=limit)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def port_of_a_store() -> Iterator[int]:
    """A port on which a TCPStore can listen, and which meanwhile nobody else is given who asks for any."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the store's
        keeper.bind(("127.0.0.1", 0))
        yield keeper.getsockname()[1]


def until_it_waits(thread: threading.Thread) -> None:
    """Returns once this thread waits, in what it was about to call: it is where it was though it has gone on since, or sleeps,
    and does not just wait for a core."""
    number = os.getpid() if thread is threading.main_thread() else thread.native_id
    folder = pathlib.Path(f"/proc/self/task/{number}")
    times, before = 0, None
    while times < 5:
        time.sleep(0.03)
        frame = sys._current_frames()[thread.ident]
        ran = int((folder / "schedstat").read_text().split()[0])
        sleeps = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "S"
        now = (frame.f_code, frame.f_lasti), ran
        if before and now[0] != before[0]:
            times = 0
        elif before and (sleeps or now[1] > before[1]):
            times += 1
        before = now


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _read(reader: Any) -> Outcome:
    try:
        return pickle.loads(reader.recv_bytes())
    except EOFError:
        return Outcome(error="the process ended without a result")


def _rank(writer: Any, rank: int, setup: Setup, body: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    if setup.backend == "gloo":  # whose ranks fail where another goes that has connected before they have
        os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
    os.environ.update(setup.environment)
    dist.set_debug_level_from_env()  # torch has read it before, in the process that this one was forked from
    try:
        dist.init_process_group(
            setup.backend,
            init_method=setup.store,
            rank=rank,
            world_size=setup.world,
            timeout=timedelta(seconds=setup.group_timeout),
        )
        outcome = Outcome(value=body(rank, setup.world, *args))
    except BaseException as error:
        outcome = Outcome(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
    if dist.is_initialized():
        try:
            dist.destroy_process_group()
        except RuntimeError as error:
            outcome.error = outcome.error or f"{type(error).__name__}: {error}"
    writer.send_bytes(pickle.dumps(outcome))  # send() would share tensors through a file that ends with this process
    writer.close()
