"""What a rank that cannot come to a group says where the others meet, so that they need not wait for it. They meet in C++,
src/engine/store_exchange.cc; here is as much of that as it takes, since the C++ may be what this rank lacks."""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store

# Who has to wait longer for those whom it is to tell says meanwhile what it is to tell them.
IMPATIENCE_S = 5.0
# For as long a rank that knows why nobody meets stays until all do: the store may be in its process.
PARTING_S = 2.0
_NAP_S = 0.01


@contextmanager
def telling_whoever_comes(store: Store, rank: int, world: int, timeout: timedelta) -> Iterator[None]:
    """What is raised here is raised by the other ranks, too, which meet through `store`: that this one cannot take part, and
    why. It waits for those that are late, as they would for it."""
    try:
        yield
    except Exception as error:
        with suppress(Exception):  # who is not there cannot be told
            _decline(store, rank, world, timeout, str(error))
        raise


def _decline(store: Store, rank: int, world: int, timeout: timedelta, why: str) -> None:
    says_so = threading.Timer(IMPATIENCE_S, lambda: print(f"ranvier: {why}; waits to tell the other ranks", file=sys.stderr))
    says_so.daemon = True
    says_so.start()
    try:
        _exchange(store, "", rank, world, _refusal(why), min(timeout.total_seconds(), 1e6))
    finally:
        says_so.cancel()
    _exchange(store, "1/", rank, world, b"", PARTING_S)


def _refusal(why: str) -> bytes:
    """As src/engine/card.cc reads it: of any version, with lengths in front."""
    return b"".join(b"%d:%s" % (len(each), each) for each in (b"ranvier refuses", why.encode(errors="replace")))


def _exchange(store: Store, prefix: str, rank: int, world: int, text: bytes, limit_s: float) -> None:
    """All ranks have seen `text` when this returns. Raises where the limit has passed before."""
    deadline = time.monotonic() + limit_s
    # A store may outlive a job's attempts: a mark that no text had before, and then what each has seen of all.
    store.set(f"{prefix}rank/{rank}", secrets.token_hex(8).encode() + b"%08x" % world + text)
    while True:
        texts = _of_all(store, f"{prefix}rank/", world, deadline)
        seen = b"%016x" % _fnv1a(b"".join(each + b"\0" for each in texts))
        store.set(f"{prefix}seen/{rank}", seen)
        if all(each == seen for each in _of_all(store, f"{prefix}seen/", world, deadline)):
            return
        if time.monotonic() >= deadline:
            raise TimeoutError(f"what ranks have seen in {prefix}seen is of another attempt")
        time.sleep(_NAP_S)


def _of_all(store: Store, prefix: str, world: int, deadline: float) -> list[bytes]:
    keys = [f"{prefix}{rank}" for rank in range(world)]
    store.wait(keys, timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
    return [store.get(key) for key in keys]


def _fnv1a(text: bytes) -> int:
    value = 0xCBF29CE484222325
    for each in text:
        value = (value ^ each) * 0x100000001B3 % 2**64
    return value
