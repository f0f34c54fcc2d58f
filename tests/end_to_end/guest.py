"""A guest of a job's parameter servers, made from nothing but proto/ranvier_parameter_server.proto and grpcio:
`guest.py FOLDER_OF_STUBS ADDRESS`. Ends with 0 if all is as the definition says."""

import array
import math
import sys
import threading
import time
from collections.abc import Iterator

import grpc

sys.path.insert(0, sys.argv[1])
import ranvier_parameter_server_pb2 as messages  # noqa: E402

SERVICE = "/ranvier.v1.ParameterServer/"
PIECE = 1 << 18  # values
RATE, SHARE = 0.5, 0.25


def gradient(number: int, values: array.array, guest: int = 3, **changes) -> Iterator[messages.Gradient]:
    for first in range(0, len(values), PIECE):
        begin = {"guest": guest, "number": number, "rate": RATE, "share": SHARE} | changes if first == 0 else {}
        yield messages.Gradient(first=first, values=values[first : first + PIECE].tobytes(), **begin)


class Guest:
    def __init__(self, channel: grpc.Channel):
        self._pull = channel.unary_stream(
            SERVICE + "Pull", messages.PullRequest.SerializeToString, messages.Values.FromString
        )
        self._push = channel.stream_unary(
            SERVICE + "Push", messages.Gradient.SerializeToString, messages.PushReply.FromString
        )

    def pull(self) -> array.array:
        values = array.array("f")
        for piece in self._pull(messages.PullRequest(guest=3), wait_for_ready=True, timeout=60):
            assert piece.first == len(values)
            values.frombytes(piece.values)
            count = piece.count
        assert len(values) == count
        return values

    def push(self, *arguments, **changes) -> None:
        self._push(gradient(*arguments, **changes), timeout=60)

    def begin(self, gradients: Iterator[messages.Gradient]) -> grpc.Future:
        return self._push.future(gradients, timeout=60)

    def refused(self, *arguments, **changes) -> str:
        try:
            self.push(*arguments, **changes)
        except grpc.RpcError as problem:
            assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT, problem
            return problem.details()
        raise AssertionError("it was taken")


def refused_beside_another(guest: Guest, values: array.array) -> str:
    """What a push is refused with while the same guest's is under way."""
    has_begun, may_end = threading.Event(), threading.Event()

    def held_up() -> Iterator[messages.Gradient]:
        yield next(gradient(8, values[:1]))
        has_begun.set()
        may_end.wait()

    pending = guest.begin(held_up())
    has_begun.wait()
    deadline = time.monotonic() + 30
    refusal = ""
    while not refusal and not pending.done() and time.monotonic() < deadline:
        try:
            guest.push(1, values)  # of the same number as before, it changes nothing
        except grpc.RpcError as problem:
            assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, problem
            refusal = problem.details()
    may_end.set()
    if pending.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:  # the other one was taken up first
        return pending.details()
    assert pending.code() == grpc.StatusCode.INVALID_ARGUMENT, pending  # not all of it has come
    return refusal


def differ(a: array.array, b: array.array) -> bool:
    return len(a) != len(b) or any(not math.isclose(x, y, abs_tol=1e-4) for x, y in zip(a, b))


def main() -> None:
    with grpc.insecure_channel(sys.argv[2], options=[("grpc.enable_http_proxy", 0)]) as channel:
        guest = Guest(channel)
        before = guest.pull()
        ones = array.array("f", [1 + i % 3 for i in range(len(before))])
        after = array.array("f", [x - RATE * SHARE * g for x, g in zip(before, ones)])
        guest.push(1, ones)
        assert not differ(guest.pull(), after), "the push did not have its effect"
        guest.push(1, ones)
        assert not differ(guest.pull(), after), "the same push had its effect twice"
        guest.push(7, ones)  # numbers may be left out
        assert "comes behind its push 7" in guest.refused(6, ones)
        assert differ(guest.pull(), after)

        assert "ended behind" in guest.refused(8, ones[:-1])
        assert "what follows" in guest.refused(8, ones + ones)
        assert "number a guest's pushes from 1" in guest.refused(0, ones)
        assert "share" in guest.refused(8, ones, share=2)
        assert "guest 64" in guest.refused(8, ones, guest=64)
        assert "not a number" in guest.refused(8, array.array("f", [math.nan] * len(ones)))
        assert "with rate 1e+39" in guest.refused(8, ones, rate=1e39)
        assert "beyond what a float holds" in guest.refused(8, array.array("f", [-3e38] * len(ones)), rate=2)
        assert "under way" in refused_beside_another(guest, ones)
        guest.push(8, ones)
        print(f"{len(before)} parameters")


if __name__ == "__main__":
    main()
