"""Hosts on one machine: network namespaces, each joined by a shaped link to a switch in a namespace of its own.

    host 0 eth0 ──▶ up ──▶ ┌────────┐ ──▶ down ──▶ eth0 host 1
           eth0 ◀── down ◀─│ switch │◀── up ◀───── eth0
                           └────────┘
         each arrow: a token bucket of the rate; on the way up, one for each flow too; in the switch: random loss

Nothing is ever made in the machine's own namespace, so its network stays as it is. Names begin with the process that
made them, and a keeper (keeper.py) removes them when that process is gone, however it went.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

TOOLS = ("ip", "tc", "nft")
COMMAND_LIMIT_S = 30
KILL_LIMIT_S = 10
NAMESPACES = pathlib.Path("/run/netns")
OWNED = re.compile(r"ranvier-lab-(\d+)-(\d+)-\d+")
NAME_VARIABLE = "LAB_NAME"  # in the environment of whatever runs in a lab, by which it is found again
PARTS_PER_MILLION = 1_000_000

# Two milliseconds of the line: enough for a timer that comes late to find tokens, too little for a link that has rested to
# seem fast. At 1 Gbit/s half a millisecond is less than the 64 KiB that the kernel sends down as one packet; tbf then cuts
# each up, and two hosts on two cores got 65 % of the line.
BURST_S = 0.002
LEAST_BURST = 32 << 10
# A flow is known by the sum of its two ports, its bucket by the last eight bits of that. The kernel numbers the
# connections to one listener almost one after the other, so that few meet in one. In classic BPF (bpf(4)): the ports'
# sum, cut, as the number of a class of the queueing discipline 1:.
FLOW_CLASSES = 256
FLOW_CLASSIFIER = f"7,40 0 0 34,7 0 0 0,40 0 0 36,12 0 0 0,84 0 0 {FLOW_CLASSES - 1},4 0 0 {0x10001},22 0 0 0"
FLOW_BURST = 64 << 10
# What a port of the switch holds before it drops: some 50 ms, as cheap switches do at these rates.
QUEUE_S = 0.050

UNSHAPED = 100e9  # more than any machine moves

# How many packets wait for one of this machine's processors before the kernel drops them. That is for all hosts of a lab
# together, where machines of their own have as many each: with the usual 1000, eight hosts on two cores lost 2 % of their
# packets there, not in front of any link, and took twice as long. It is the kernel's as a whole, so that the last lab to go
# puts back what there was.
BACKLOG = pathlib.Path("/proc/sys/net/core/netdev_max_backlog")
BACKLOG_PACKETS = 20_000
BACKLOG_BEFORE = pathlib.Path("/run/ranvier-lab-backlog")

_counter = itertools.count()


@dataclasses.dataclass(frozen=True)
class Relay:
    """A program (relay.cc) instead of the switch, that can do what this kernel cannot: delay, reorder, repeat."""

    program: pathlib.Path
    rate: str | None = None  # to each host
    queue_ms: float = 50
    delay_ms: float = 0  # one way
    jitter_ms: float = 0
    loss: float = 0
    reorder: float = 0
    duplicate: float = 0
    corrupt: float = 0  # which the kernel refuses by their checksums
    forge_udp: float = 0  # what it does not refuse
    forge_segment: int = 0  # likewise one of TCP, by its number among those with data
    seed: int = 1

    def command(self, namespaces: list[str]) -> list[str]:
        flags = {
            "bits": bits_per_second(self.rate) if self.rate else 0, "queue-ms": self.queue_ms, "delay-ms": self.delay_ms,
            "jitter-ms": self.jitter_ms, "loss": self.loss, "reorder": self.reorder, "duplicate": self.duplicate,
            "corrupt": self.corrupt, "forge-udp": self.forge_udp, "forge-segment": self.forge_segment, "seed": self.seed,
        }  # fmt: skip
        return [str(self.program), *(word for name, value in flags.items() for word in (f"--{name}", f"{value:.12g}")), *namespaces]


class LabError(RuntimeError):
    pass


def command(*words: str, stdin: str | None = None) -> str:
    asked = " ".join(words)
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"'{asked}' did not end within {COMMAND_LIMIT_S} s; is the machine overloaded?") from None
    except OSError as problem:
        raise LabError(f"cannot run {words[0]} ({problem.strerror}); install iproute2 and nftables") from None
    if done.returncode != 0:
        script = f" of {' / '.join(stdin.splitlines())}" if stdin else ""
        said = " ".join(done.stderr.split())
        raise LabError(f"'{asked}'{script} failed: {said}; has this kernel bridges, veth, tbf and nftables?")
    return done.stdout


def reason_to_skip() -> str | None:
    """Why there can be no lab here; None where there can."""
    if sys.platform != "linux":
        return "the lab needs Linux"
    if os.geteuid() != 0:
        return "the lab needs root, which makes network namespaces"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"the lab needs {', '.join(missing)}: install iproute2 and nftables"
    probe = f"{new_name()}-probe"
    try:
        command("ip", "netns", "add", probe)
    except LabError as problem:
        return f"no network namespaces here: {problem}"
    command("ip", "netns", "delete", probe)
    return None


def bits_per_second(rate: str) -> float:
    """What tc takes for a rate: 1Gbit, 100Mbit, 2.5Mbit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)bit", rate, re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise LabError(f"'{rate}' is not a rate; write 1Gbit or 100Mbit")
    return float(found[1]) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[found[2].upper()]


def start_time(pid: int) -> str | None:
    """When the process began, in ticks since the machine did: tells it from a later one of the same number."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def new_name() -> str:
    return f"ranvier-lab-{os.getpid()}-{start_time(os.getpid())}-{next(_counter)}"


def folder_of(name: str) -> pathlib.Path:
    return pathlib.Path(tempfile.gettempdir()) / name


def namespaces_of(name: str) -> list[str]:
    return sorted(each for each in _names_in(NAMESPACES) if each.startswith(f"{name}-"))


def _names_in(folder: pathlib.Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:  # no namespace was ever made
        return []


def _names_of_labs() -> list[str]:
    """And of much else."""
    return [*_names_in(NAMESPACES), *_names_in(folder_of("."))]


def _identity(file: pathlib.Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_dev, found.st_ino


def processes_of(name: str) -> list[int]:
    """Whatever runs in the lab's namespaces or was started into it and is on its way there."""
    spaces = set()
    for namespace in namespaces_of(name):
        with contextlib.suppress(OSError):  # somebody else has just removed it
            spaces.add(_identity(NAMESPACES / namespace))
    spaces.discard(_identity(pathlib.Path("/proc/self/ns/net")))
    mark = f"{NAME_VARIABLE}={name}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it has just ended
            if _identity(entry / "ns/net") in spaces or mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def remove(name: str) -> None:
    """Kills what runs in the lab of this name and removes all that it consists of. Safe to repeat."""
    _kill_all(name)
    for namespace in namespaces_of(name):
        # Another may be at the same: the keeper, or a lab that found this one abandoned.
        with contextlib.suppress(LabError):
            command("ip", "netns", "delete", namespace)
    _kill_all(name)
    shutil.rmtree(folder_of(name), ignore_errors=True)
    if not any(map(OWNED.match, _names_of_labs())):
        restore_backlog()


def widen_backlog() -> None:
    with contextlib.suppress(OSError):  # in a container it may not be ours to set: then some packets are lost
        before = int(BACKLOG.read_text())
        if before < BACKLOG_PACKETS:
            BACKLOG_BEFORE.write_text(str(before))
            BACKLOG.write_text(str(BACKLOG_PACKETS))


def restore_backlog() -> None:
    with contextlib.suppress(OSError):
        BACKLOG.write_text(BACKLOG_BEFORE.read_text())
        BACKLOG_BEFORE.unlink()


def _kill_all(name: str) -> None:
    until = time.monotonic() + KILL_LIMIT_S
    while (pids := processes_of(name)) and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def remove_abandoned() -> None:
    """Removes labs whose process is gone and whose keeper was killed as well."""
    for name, pid, began in {(match[0], match[1], match[2]) for match in map(OWNED.match, _names_of_labs()) if match}:
        if start_time(int(pid)) != began:
            remove(name)


class Network:
    """`hosts` hosts with the addresses 10.77.0.1, 10.77.0.2, …; removed by close(), or when this process is gone."""

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
        if not 1 <= hosts <= 200:
            raise LabError(f"a lab of {hosts} hosts is not possible; choose 1 to 200")
        if not 0 <= loss < 1:
            raise LabError(f"a loss of {loss} is not possible; it is the share of packets, from 0 to below 1")
        if relay and (rate or loss or flow_rate or slow_host):
            raise LabError("where a relay joins the hosts, rate and loss are the relay's")
        self.rate, self.loss = rate, loss
        rates = [bits_per_second(each) for each in rate.split(",")] if rate else []
        if len(rates) not in (0, 1, hosts):
            raise LabError(f"{len(rates)} rates are not those of {hosts} hosts; give one for all, or each its own")
        flow_bits = bits_per_second(flow_rate) if flow_rate else None
        slow_bits = bits_per_second(slow_host) if slow_host else None
        remove_abandoned()
        self.name = new_name()
        self.addresses = [f"10.77.0.{host + 1}" for host in range(hosts)]
        self._relay: subprocess.Popen | None = None
        self.relayed: list[tuple[int, int]] = []  # after close(): what a relay delivered of TCP and UDP in each second
        self._keeper = self._start_keeper()
        try:
            self.folder = folder_of(self.name)
            self.folder.mkdir(mode=0o700)
            widen_backlog()
            if relay:
                self._join(relay)
            else:
                self._make()
            if congestion_control:
                self.set_congestion_control(congestion_control)
            for host, bits in enumerate(rates * hosts if len(rates) == 1 else rates):
                self._shape(bits, [host])
            if slow_bits:
                self._shape(slow_bits, [0])
            if flow_bits:
                self._shape_flows(flow_bits, max(rates, default=UNSHAPED))
            if loss > 0:
                self._lose()
        except BaseException:
            self.close()
            raise

    def namespace(self, host: int) -> str:
        return f"{self.name}-host{host}"

    @property
    def switch(self) -> str:
        return f"{self.name}-switch"

    def close(self) -> None:
        remove(self.name)
        if self._relay:
            self.relayed = [tuple(map(int, line.split())) for line in self._relay.communicate()[0].splitlines()]  # killed by now
            self._relay = None
        if self._keeper.poll() is None:
            try:
                self._keeper.communicate(b"done", timeout=COMMAND_LIMIT_S)  # no error if it was killed just now
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                self._keeper.wait()

    def cut(self, host: int) -> None:
        """Pulls the host's cable: both ends see no carrier, and packets under way are lost."""
        command("ip", "-n", self.switch, "link", "set", "dev", f"port{host}", "down")

    def mend(self, host: int) -> None:
        command("ip", "-n", self.switch, "link", "set", "dev", f"port{host}", "up")

    def set_congestion_control(self, name: str) -> None:
        """Of TCP connections made from now on. By route: as a sysctl a namespace may only have those that any user may."""
        for host, address in enumerate(self.addresses):
            route = f"route change 10.77.0.0/16 dev eth0 proto kernel scope link src {address} congctl {name}"
            command("ip", "-n", self.namespace(host), *route.split())

    def packets(self) -> tuple[int, int]:
        """How many went through the switch so far, and how many of them were lost on purpose."""
        listing = json.loads(command("ip", "netns", "exec", self.switch, "nft", "-j", "list", "counters"))
        counters = [each["counter"] for each in listing["nftables"] if "counter" in each]
        packets = {counter["name"]: counter["packets"] for counter in counters}
        return packets["seen"], packets["lost"]

    def dropped(self) -> int:
        """Packets for which the queue in front of a shaped link had no room, at hosts and in the switch."""
        spaces = [self.switch, *map(self.namespace, range(len(self.addresses)))]
        listings = [json.loads(command("tc", "-n", space, "-s", "-j", "qdisc", "show")) for space in spaces]
        return sum(queue["drops"] for listing in listings for queue in listing if queue["kind"] == "tbf")

    def bytes_sent(self, host: int) -> int:
        """By this host so far, to all others."""
        [device] = json.loads(command("ip", "-n", self.namespace(host), "-s", "-j", "link", "show", "dev", "eth0"))
        return device["stats64"]["tx"]["bytes"]

    def _start_keeper(self) -> subprocess.Popen:
        """Its stdin ends when this process does, even by SIGKILL; its own session keeps Ctrl-C from it."""
        keeper = [sys.executable, str(pathlib.Path(__file__).with_name("keeper.py")), self.name]
        return subprocess.Popen(keeper, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)

    def _make(self) -> None:
        command("ip", "netns", "add", self.switch)
        # It forwards from the first packet on: there is no loop that a spanning tree would have to find.
        bridge = "link add switch type bridge forward_delay 0\nlink set dev switch up\n"
        command("ip", "-n", self.switch, "-batch", "-", stdin=bridge)
        for host, address in enumerate(self.addresses):
            namespace = self.namespace(host)
            command("ip", "netns", "add", namespace)
            # Packets that a loss would hit travel one by one, not 64 KiB at a time.
            single = "link set dev eth0 gso_max_segs 1\n" if self.loss > 0 else ""
            command(
                "ip", "-n", namespace, "-batch", "-",
                stdin=f"link add eth0 type veth peer name port{host} netns {self.switch}\n{single}"
                f"link set dev lo up\nlink set dev eth0 up\naddress add {address}/16 dev eth0\n",
            )  # fmt: skip
            command("ip", "-n", self.switch, "link", "set", "dev", f"port{host}", "master", "switch", "up")

    def _join(self, relay: Relay) -> None:
        """The relay's packets are single ones, and queues are its own: those of the devices never drop."""
        namespaces = [self.namespace(host) for host in range(len(self.addresses))]
        for namespace in namespaces:
            command("ip", "netns", "add", namespace)
        self._relay = subprocess.Popen(
            relay.command(namespaces), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env=os.environ | {NAME_VARIABLE: self.name},
        )  # fmt: skip
        if self._relay.stdout.readline() != "ready\n":
            raise LabError(f"{relay.program} could not join the hosts")
        for namespace, address in zip(namespaces, self.addresses, strict=True):
            command(
                "ip", "-n", namespace, "-batch", "-",
                stdin=f"link set dev lo up\nlink set dev eth0 txqueuelen 20000 mtu 1500 up\naddress add {address}/16 dev eth0\n",
            )  # fmt: skip

    def _shape(self, bits: float, hosts: Iterable[int]) -> None:
        burst = int(max(bits / 8 * BURST_S, LEAST_BURST))
        limit = int(bits / 8 * QUEUE_S) + burst
        bucket = f"root tbf rate {int(bits)}bit burst {burst} limit {limit}"
        for host in hosts:
            for namespace, device in ((self.namespace(host), "eth0"), (self.switch, f"port{host}")):
                command("tc", "-n", namespace, *f"qdisc replace dev {device} {bucket}".split())

    def _shape_flows(self, bits: float, line: float) -> None:
        """In place of the bucket on the way up; a class a flow, all of them within the line."""
        burst = int(max(line / 8 * BURST_S, LEAST_BURST))
        lines = ["qdisc replace dev eth0 root handle 1: htb",
                 f"class add dev eth0 parent 1: classid 1:ffff htb rate {int(line)}bit burst {burst}"]  # fmt: skip
        for flow in range(1, FLOW_CLASSES + 1):
            bucket = f"rate {int(bits)}bit ceil {int(bits)}bit burst {FLOW_BURST} cburst {FLOW_BURST} quantum {FLOW_BURST}"
            lines.append(f"class add dev eth0 parent 1:ffff classid 1:{flow:x} htb {bucket}")
        lines.append(f'filter add dev eth0 parent 1: protocol ip bpf bytecode "{FLOW_CLASSIFIER}"')
        for host in range(len(self.addresses)):
            command("tc", "-n", self.namespace(host), "-batch", "-", stdin="\n".join(lines) + "\n")

    def _lose(self) -> None:
        share = round(self.loss * PARTS_PER_MILLION)
        rules = f"""table bridge lab {{
            counter seen {{ }}
            counter lost {{ }}
            chain forward {{
                type filter hook forward priority 0
                ether type ip counter name seen numgen random mod {PARTS_PER_MILLION} < {share} counter name lost drop
            }}
        }}
        """
        command("ip", "netns", "exec", self.switch, "nft", "-f", "-", stdin=rules)
