"""What the line carries: on every host at once, one TCP stream to the next host and one from the one before.

Part of the laboratory, which runs `streams.py [SECONDS]` on all hosts; prints {"bytes_per_second"} as the host received
them. Payload, as a program sees it: of 1 Gbit/s some 4 % are headers.
"""

import json
import os
import pathlib
import socket
import sys
import threading
import time

PORT = 7001
CHUNK = 1 << 20
SETTLE_S = 0.5  # until TCP has found the rate
MEET_LIMIT_S = 20


def meet(rank: int, world: int, folder: pathlib.Path) -> float:
    """Waits for all; returns the moment at which they begin. The hosts share one clock."""
    mine = folder / f"streams-{rank}"
    mine.with_suffix(".new").write_text(str(time.monotonic()))
    mine.with_suffix(".new").rename(mine)
    until = time.monotonic() + MEET_LIMIT_S
    files = [folder / f"streams-{each}" for each in range(world)]
    while not all(file.exists() for file in files):
        if time.monotonic() > until:
            sys.exit(f"streams.py: of {world} hosts not all came within {MEET_LIMIT_S} s")
        time.sleep(0.01)
    return max(float(file.read_text()) for file in files) + 0.1


def send(to: socket.socket, end: float) -> None:
    data = memoryview(bytes(CHUNK))
    to.settimeout(0.5)
    while time.monotonic() < end:
        try:
            to.send(data)
        except TimeoutError:  # nobody reads any more
            continue
        except OSError:  # the reader has seen enough
            return


def receive(source: socket.socket, begin: float, end: float) -> float:
    """Bytes a second between the first and the last arrival within the time."""
    buffer = bytearray(CHUNK)
    first = last = None
    total = 0
    source.settimeout(1)
    while (now := time.monotonic()) < end:
        try:
            got = source.recv_into(buffer)
        except TimeoutError:
            continue
        now = time.monotonic()
        if begin <= now < end:
            total += got if first is not None else 0
            first, last = (now if first is None else first), now
    return total / (last - first) if first is not None and last > first else 0.0


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    rank, world = int(os.environ["RANVIER_RANK"]), int(os.environ["RANVIER_WORLD"])
    addresses = os.environ["LAB_ADDRESSES"].split(",")
    listener = socket.create_server((os.environ["LAB_ADDRESS"], PORT))
    listener.settimeout(MEET_LIMIT_S)
    begin = meet(rank, world, pathlib.Path(os.environ["RANVIER_STORE"])) + SETTLE_S
    to = socket.create_connection((addresses[(rank + 1) % world], PORT), timeout=MEET_LIMIT_S)
    source, _ = listener.accept()
    sender = threading.Thread(target=send, args=(to, begin + seconds + 0.1))
    sender.start()
    rate = receive(source, begin, begin + seconds)
    sender.join()
    print(json.dumps({"bytes_per_second": rate}))


if __name__ == "__main__":
    main()
