"""Removes a lab once the process that made it is gone: `keeper.py NAME`, with a stdin that ends when that process does;
"done" on it says that nothing is left to remove.

A process of its own, since whoever is killed by SIGKILL cannot tidy up.
"""

import signal
import sys
import time

import network

# What the lab had asked `ip` for when it was killed still comes to be.
ASKED_FOR_S = 1


def main() -> None:
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the lab, whose end follows by itself
        signal.signal(ending, signal.SIG_IGN)
    if sys.stdin.buffer.read() == b"done":
        return
    network.remove(sys.argv[1])
    time.sleep(ASKED_FOR_S)
    network.remove(sys.argv[1])


if __name__ == "__main__":
    main()
