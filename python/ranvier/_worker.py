"""A thread that does one thing behind the other, and that nobody waits for when the process ends. Python waits for those of
concurrent.futures: where an exception has ended the program, until the others have brought what they never will."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


class Worker:
    """It ends with its last reference, or by end()."""

    def __init__(self, name: str) -> None:
        tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._tasks = tasks
        self._thread = threading.Thread(target=_work, args=(tasks,), name=name, daemon=True)
        self._thread.start()
        self._say_end = weakref.finalize(self, tasks.put, None)
        _workers.add(self)

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()

        def run() -> None:
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001: it is raised where somebody asks for the result
                future.set_exception(error)
            else:
                future.set_result(result)

        self._tasks.put(run)
        return future

    def end(self) -> None:
        """Waits for what it was given."""
        self._say_end()
        self._thread.join()


def end_those_that_rest() -> None:
    """At the end of the process: those that wait for something to do, in vain."""
    for each in list(_workers):
        each._say_end()


def _work(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while (run := tasks.get()) is not None:
        run()
        del run  # and with it a bucket


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
