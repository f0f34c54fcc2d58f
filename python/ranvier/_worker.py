"""A thread that does one thing behind the other, and that a process which an exception or sys.exit ends does not wait for, as
Python waits for those of concurrent.futures: until the others have brought what they never will."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_Task = tuple[Future[Any], Callable[[], Any]]


class Worker:
    """It ends with its last reference, or by end(). `lasting`: what it was given is done also where the program ends first, in
    good order."""

    def __init__(self, name: str, lasting: bool = False) -> None:
        self._lasting = lasting
        tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._tasks = tasks
        self._thread = threading.Thread(target=_work, args=(tasks,), name=name, daemon=True)
        self._thread.start()
        self._say_end = weakref.finalize(self, tasks.put, None)
        _workers.add(self)

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Raises RuntimeError once it has been ended."""
        if not self._say_end.alive:
            raise RuntimeError(f"the thread '{self._thread.name}' has ended, and so has the process, or what it worked for")
        future: Future[Any] = Future()
        self._tasks.put((future, call))
        return future

    def end(self) -> None:
        """Waits for what it was given."""
        self._say_end()
        self._thread.join()


def end_lasting() -> None:
    """At the end of a process that nothing has failed in."""
    for each in list(_workers):
        if each._lasting:
            each.end()


def tell_to_end() -> list[threading.Thread]:
    """At the end of the process: the threads, of which those that rest end at once."""
    for each in (workers := list(_workers)):
        each._say_end()
    return [each._thread for each in workers]


def _work(tasks: SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        future, call = task
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001: it is raised where somebody asks for the result
            future.set_exception(error)
        else:
            future.set_result(result)
            del result
        del task, future, call  # and with them a bucket


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
