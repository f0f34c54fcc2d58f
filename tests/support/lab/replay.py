"""What a stranger can do who hears all that is said to a host: record it, and say it again."""

import contextlib
import ctypes
import dataclasses
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_ALL_PROTOCOLS = 0x0003  # of linux/if_ether.h
_TCP, _UDP = 6, 17
_SYN = 2


@contextlib.contextmanager
def within(namespace: str) -> Iterator[None]:
    """Sockets that this thread opens meanwhile are those of the namespace, and stay so."""
    with open("/proc/thread-self/ns/net", "rb") as own, open(f"/run/netns/{namespace}", "rb") as other:

        def enter(file) -> None:
            if _libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

        enter(other)
        try:
            yield
        finally:
            enter(own)


@dataclasses.dataclass
class Heard:
    """All that came to one address, in the order in which it came."""

    streams: dict[tuple[int, int], bytes] = dataclasses.field(default_factory=dict)  # by port there and sender's port
    datagrams: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)  # with the port there


class Recorder:
    """Listens on a host's interface. IPv4 without options that change where what stands, as the lab has it."""

    def __init__(self, namespace: str, address: str):
        self._address = socket.inet_aton(address)
        with within(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
            self._socket.bind(("eth0", 0))
        self._socket.settimeout(0.05)
        self._packets: list[bytes] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._ends.is_set():
            with contextlib.suppress(TimeoutError):
                self._packets.append(self._socket.recv(1 << 16))

    def heard(self) -> Heard:
        """Ends the recording."""
        self._ends.set()
        self._thread.join()
        self._socket.close()
        segments: dict[tuple[int, int], dict[int, bytes]] = {}
        begins: dict[tuple[int, int], int] = {}
        found = Heard()
        for packet in self._packets:
            ip = packet[14:]
            if packet[12:14] != b"\x08\x00" or ip[16:20] != self._address:
                continue
            length, protocol = struct.unpack_from(">H", ip, 2)[0], ip[9]
            transport = ip[4 * (ip[0] & 15) : length]
            there, here = struct.unpack_from(">HH", transport)[1], struct.unpack_from(">HH", transport)[0]
            if protocol == _UDP:
                found.datagrams.append((there, transport[8:]))
            elif protocol == _TCP:
                number, flags = struct.unpack_from(">I", transport, 4)[0], transport[13]
                payload = transport[4 * (transport[12] >> 4) :]
                if flags & _SYN:
                    begins[there, here] = number + 1
                elif payload:
                    segments.setdefault((there, here), {})[number] = payload
        for ports, parts in segments.items():
            if ports not in begins:  # a connection that this host has opened
                continue
            stream = bytearray()
            for place, part in sorted(((number - begins[ports]) % 2**32, part) for number, part in parts.items()):
                if place <= len(stream):
                    stream[place:] = part
            found.streams[ports] = bytes(stream)
        return found


class Stranger:
    """On a host of his own."""

    def __init__(self, namespace: str):
        self._namespace = namespace
        self.let_in = 0  # connections that were accepted

    def say_again(self, address: str, heard: Heard, seconds: float) -> bytes:
        """Each stream on a connection of its own, in two parts as who answers would have it, and each datagram, until
        the time is up. All that was answered."""
        answered = b""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with within(self._namespace):
                udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with udp:
                for port, datagram in heard.datagrams:
                    udp.sendto(datagram, (address, port))
                udp.settimeout(0.2)
                with contextlib.suppress(OSError):
                    answered += udp.recv(1 << 16)
            for (port, _), stream in heard.streams.items():
                with within(self._namespace):
                    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                with tcp, contextlib.suppress(OSError):
                    tcp.settimeout(0.2)
                    tcp.connect((address, port))
                    self.let_in += 1
                    for part in (stream[: len(stream) // 2], stream[len(stream) // 2 :]):
                        tcp.sendall(part)
                        with contextlib.suppress(TimeoutError):
                            answered += tcp.recv(1 << 16)
        return answered
