"""The streams on which threads work beside a program, by a device module that only counts."""

import threading
import types
from contextlib import nullcontext

import pytest
import torch
from ranvier import _streams


class Stream:
    made: list[torch.device] = []

    def __init__(self, device):
        Stream.made.append(device)
        self.waited = []

    def wait_event(self, event):
        self.waited.append(event)


@pytest.fixture
def counting(monkeypatch):
    events = iter(range(100))
    program = types.SimpleNamespace(record_event=lambda: next(events))
    module = types.SimpleNamespace(Stream=Stream, current_stream=lambda device: program, stream=nullcontext)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(Stream, "made", [])


def test_a_thread_has_one_stream_on_each_device(counting):
    def work(used):
        for step in range(40):
            with _streams.Behind(torch.device("cuda", step % 2)).a_stream() as stream:
                used.append(stream)

    both = [], []
    for used in both:
        thread = threading.Thread(target=work, args=(used,))
        thread.start()
        thread.join()
    assert [str(device) for device in Stream.made] == ["cuda:0", "cuda:1"] * 2
    first, second = both
    assert first[0] is first[38] and first[1] is first[39] and first[0] is not first[1]
    assert not set(first) & set(second)
    assert first[0].waited == list(range(0, 40, 2))  # each time for what is behind it
