#!/usr/bin/env python3
"""A laboratory of hosts on one machine, for what needs a network; as root:
`lab.py --hosts 4 --rate 1Gbit -- COMMAND…`

Runs the command on every host at once. It finds in its environment which host it is (RANVIER_RANK), of how many
(RANVIER_WORLD), where they meet (RANVIER_STORE, a directory: the hosts share the file system), its own address
(LAB_ADDRESS) and all of them (LAB_ADDRESSES, by commas), on the interface eth0. As a module:

    with Lab(hosts=4, rate="1Gbit") as lab:
        for result in lab.run(["ranvier", "bench", "--transport", "tcp", "--no-pin"], limit=60):
            print(result.host, result.code, result.out)

Say --transport tcp to ranvier, for hosts in a lab share memory too, and --no-pin to its bench, for each host takes
itself to have all cores of the machine.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

from network import NAME_VARIABLE, LabError, Network, Relay, reason_to_skip

__all__ = ["Lab", "LabError", "Relay", "Result", "Run", "reason_to_skip"]

POLL_S = 0.005
TERM_TO_KILL_S = 2


@dataclasses.dataclass(frozen=True)
class Result:
    host: int
    code: int  # as subprocess has it: below 0, the signal that ended it
    out: str
    err: str
    ended: float  # time.monotonic()
    timed_out: bool  # it was ended because the time was up


class Run:
    """One command under way on some hosts. Its output goes to files, so that nobody need read for it to go on."""

    def __init__(
        self, lab: "Lab", command: list[str], hosts: list[int], environment: dict[str, str], folder: pathlib.Path
    ):
        self._folder, self._ended, self._late = folder, {}, set()
        self._processes: dict[int, subprocess.Popen] = {}
        for host in hosts:
            # Hosts share this machine's processors, of which each would take all for itself.
            threads = {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // lab.hosts))}
            variables = threads | os.environ | environment | lab.variables(host, len(hosts), folder / "store")
            with open(self._file(host, "out"), "wb") as out, open(self._file(host, "err"), "wb") as err:
                self._processes[host] = subprocess.Popen(
                    ["ip", "netns", "exec", lab.namespace(host), *command],
                    env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                )  # fmt: skip

    def _file(self, host: int, stream: str) -> pathlib.Path:
        return self._folder / f"host{host}.{stream}"

    def said(self, host: int, stream: str = "out") -> str:
        return self._file(host, stream).read_text(errors="replace")

    def running(self) -> list[int]:
        for host, process in self._processes.items():
            if host not in self._ended and process.poll() is not None:
                self._ended[host] = time.monotonic()
        return [host for host in self._processes if host not in self._ended]

    def wait_for_words(self, words: str, limit: float) -> bool:
        """Whether every host said this on stdout within the limit."""
        until = time.monotonic() + limit
        while not all(words in self.said(host) for host in self._processes):
            if time.monotonic() > until or not self.running():
                return all(words in self.said(host) for host in self._processes)
            time.sleep(POLL_S)
        return True

    def kill(self, host: int, number: signal.Signals = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._processes[host].pid, number)

    def wait(self, limit: float) -> list[Result]:
        """The results by host. Who has not ended when the time is up is told to, then killed."""
        if not self._wait(limit):
            self._late = set(self.running())
            self._tell(signal.SIGTERM)
            if not self._wait(TERM_TO_KILL_S):
                self.stop()
        return [self._result(host) for host in self._processes]

    def _result(self, host: int) -> Result:
        code = self._processes[host].returncode
        return Result(host, code, self.said(host), self.said(host, "err"), self._ended[host], host in self._late)

    def stop(self) -> None:
        self._tell(signal.SIGKILL)
        for host in self.running():
            self._processes[host].wait()
        self.running()  # takes note of the time

    def _wait(self, limit: float) -> bool:
        until = time.monotonic() + limit
        while self.running():
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def _tell(self, number: signal.Signals) -> None:
        for host in self.running():
            self.kill(host, number)


class Lab:
    """Hosts joined by a switch. `rate`: of each host's link, both ways, or each host's own ("1Gbit,50Mbit"). `loss`: share of
    packets lost in the switch. `congestion_control`: TCP's on all hosts; else the machine's default. `flow_rate`: that each TCP
    connection gets each way, as clouds have it. `slow_host`: the rate of host 0's link. `relay`: joins them instead of the
    switch."""

    def __init__(
        self,
        hosts: int,
        rate: str | None = None,
        loss: float = 0.0,
        congestion_control: str | None = None,
        flow_rate: str | None = None,
        slow_host: str | None = None,
        relay: Relay | None = None,
    ):
        self.hosts = hosts
        self.network = Network(hosts, rate, loss, congestion_control, flow_rate, slow_host, relay)
        self._runs: list[Run] = []

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        for run in self._runs:
            run.stop()
        self.network.close()

    @property
    def addresses(self) -> list[str]:
        return self.network.addresses

    def namespace(self, host: int) -> str:
        return self.network.namespace(host)

    def variables(self, host: int, world: int, store: pathlib.Path) -> dict[str, str]:
        return {
            "RANVIER_RANK": str(host),
            "RANVIER_WORLD": str(world),
            "RANVIER_STORE": str(store),
            "GLOO_SOCKET_IFNAME": "eth0",
            NAME_VARIABLE: self.network.name,
            "LAB_ADDRESS": self.addresses[host],
            "LAB_ADDRESSES": ",".join(self.addresses[:world]),
        }

    def start(self, command: list[str], hosts: int | None = None, environment: dict[str, str] | None = None) -> Run:
        """On all hosts, or on the first so many of them; they are then the whole world."""
        folder = self.network.folder / f"run{len(self._runs)}"
        (folder / "store").mkdir(parents=True)
        words = [str(word) for word in command]
        run = Run(self, words, list(range(hosts or self.hosts)), environment or {}, folder)
        self._runs.append(run)
        return run

    def run(self, command: list[str], limit: float = 60, **options) -> list[Result]:
        return self.start(command, **options).wait(limit)

    def cut(self, host: int) -> None:
        self.network.cut(host)

    def mend(self, host: int) -> None:
        self.network.mend(host)


def several_on_each(count: int, command: list) -> list[str]:
    """For `run`: so many ranks on each host, one after the other. All hosts of the laboratory are one machine, and each
    rank says that it is on that one (RANVIER_LOCAL_RANK); `ranvier bench --nodes HOSTS` tells them apart again."""
    script = f"""
        first=$((RANVIER_RANK * {count}))
        export RANVIER_WORLD=$((RANVIER_WORLD * {count}))
        export RANVIER_LOCAL_WORLD=$RANVIER_WORLD
        others=
        for rank in $(seq $((first + 1)) $((first + {count} - 1))); do
          RANVIER_RANK=$rank RANVIER_LOCAL_RANK=$rank "$@" & others="$others $!"
        done
        RANVIER_RANK=$first RANVIER_LOCAL_RANK=$first "$@"; code=$?
        for other in $others; do wait $other || code=$?; done
        exit $code"""
    return ["sh", "-c", script, "sh", *map(str, command)]


def print_while(run: Run, hosts: int, limit: float) -> list[Result]:
    """Passes on what the hosts say, line by line, as they say it."""
    shown = {(host, stream): 0 for host in range(hosts) for stream in ("out", "err")}

    def show(last: bool) -> None:
        for (host, stream), begin in shown.items():
            text = run.said(host, stream)
            end = len(text) if last else text.rfind("\n") + 1
            for line in text[begin:end].splitlines():
                print(f"{host}: {line}", file=sys.stdout if stream == "out" else sys.stderr, flush=True)
            shown[host, stream] = max(begin, end)

    until = time.monotonic() + limit
    while run.running() and time.monotonic() < until:
        show(last=False)
        time.sleep(0.1)
    results = run.wait(max(until - time.monotonic(), 0))
    show(last=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="lab.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="how many (default: 2)")
    parser.add_argument("--rate", metavar="RATE", help="of each link, both ways: 1Gbit, or each host's: 1Gbit,50Mbit (default: unshaped)")
    parser.add_argument("--loss", type=float, default=0.0, metavar="SHARE", help="of packets lost, such as 0.01")
    parser.add_argument("--congestion-control", metavar="NAME", help="of TCP, such as cubic (default: the machine's)")
    parser.add_argument("--flow-rate", metavar="RATE", help="most that each TCP connection gets (default: no limit)")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="for the command (default: 600)")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run on each host, after --")
    arguments = parser.parse_args()
    if reason := reason_to_skip():
        print(f"lab.py: {reason}", file=sys.stderr)
        return 1
    # What ends a program without a word ends the lab as Ctrl-C does: hosts first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(128 + signal.SIGHUP))
    try:
        network = (arguments.rate, arguments.loss, arguments.congestion_control, arguments.flow_rate)
        with Lab(arguments.hosts, *network) as lab:
            results = print_while(lab.start(arguments.command), arguments.hosts, arguments.limit)
    except LabError as problem:
        print(f"lab.py: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    for result in results:
        if result.timed_out:
            print(f"lab.py: host {result.host} had not ended after {arguments.limit:g} s", file=sys.stderr)
    codes = [result.code for result in results if result.code != 0]
    return next(iter(codes), 0) if all(code > 0 for code in codes) else 1


if __name__ == "__main__":
    sys.exit(main())
