"""ranvier.attach(sync="auto"): it measures, goes on with what suits, and changes its mind when the links do."""

import copy
import pickle
import types

import pytest
import ranvier
import torch
from ranks import on_ranks
from ranvier import _auto, _streams
from test_synchronize import flat, network, optimizer_for, samples, train

WORLD = 4
EPOCH = 30


def link(*seconds: float) -> None:
    """Averages take so long inside nodes and among all, whenever they are measured."""
    _auto.Auto.seconds_of = lambda self, level: self._together(seconds[level - 1])
    _auto.RARELY = 0


def begin(rank):
    net = network()
    optimizer = optimizer_for("adamw", net)
    return net, optimizer, ranvier.attach(net, optimizer, "auto", place="node=2", steps_per_epoch=EPOCH)


def changing_links(rank, world):
    link(0.0, 100.0)
    net, optimizer, sync = begin(rank)
    mine = (2 * rank, 2 * rank + 2)
    trace = train(net, optimizer, *mine, range(EPOCH - 1))
    kept = copy.deepcopy((net.state_dict(), optimizer.state_dict(), sync.state_dict()))
    link(1000.0, 0.0)
    trace += train(net, optimizer, *mine, range(EPOCH - 1, 2 * EPOCH))
    again = begin(rank)
    for each, state in zip(again, kept, strict=True):
        each.load_state_dict(state)
    resumed = train(again[0], again[1], *mine, range(EPOCH - 1, 2 * EPOCH))
    return trace, resumed[-1], [(step, name) for step, name, _ in sync.decisions], sync.decisions[0][2]


def test_a_slow_link_between_nodes_is_crossed_more_rarely_until_it_is_fast_again():
    ranks = on_ranks(WORLD, changing_links, backend="gloo")
    traces = [trace for trace, *_ in ranks]
    for trace, resumed, decisions, reason in ranks:
        assert decisions == [(10, "node:16"), (EPOCH, "bsp")]
        assert reason.startswith("node:16 takes ") and "(bsp " in reason
        assert torch.equal(resumed, trace[-1]), "a checkpoint has what was chosen"
    for step in range(2 * EPOCH):
        assert torch.equal(traces[0][step], traces[1][step]), "of one node"
        is_alike = step < 10 or step + 1 == 10 + 16 or step + 1 >= EPOCH
        assert torch.equal(traces[0][step], traces[2][step]) == is_alike, f"step {step + 1}"


def as_it_is(rank, world):
    net, optimizer, sync = begin(rank)
    train(net, optimizer, 2 * rank, 2 * rank + 2, range(EPOCH + 5))
    sync.finish()
    return flat(net), sync.decisions


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_whatever_links_are_all_decide_alike_and_end_alike(backend):
    ranks = on_ranks(WORLD, as_it_is, backend=backend)
    for end, decisions in ranks:
        assert decisions == ranks[0][1]
        assert decisions[0][0] == 10
        assert torch.equal(end, ranks[0][0])


def by_a_clock(rank, world, paces):
    """Every forward pass takes a second of a clock that only the test moves, and those of `paces` take 20."""
    clock = [0.0]
    _auto.time = _streams.time = types.SimpleNamespace(perf_counter=lambda: clock[0])
    link(0.0, 0.01)
    net, optimizer, sync = begin(rank)

    def passes(model, inputs, outputs):
        late = rank == 1 and sync.step in paces
        clock[0] += 20.0 if late or not model.training else 1.0

    net.register_forward_hook(passes)
    for step in range(10):
        train(net, optimizer, 2 * rank, 2 * rank + 2, range(step, step + 1))
        if not paces and step == 5:
            net.eval()
            net(samples(0)[0])
            net.train()
    return sync.decisions


@pytest.mark.parametrize(
    ("paces", "chosen"),
    [
        pytest.param((), "bsp", id="an evaluation, which makes nobody late"),
        pytest.param((5,), "bsp", id="one step of 36, which says little"),
        pytest.param((3, 5, 7), "node:16", id="a slow rank"),
    ],
)
def test_late_steps_count_as_far_as_they_prove_something(paces, chosen):
    for decisions in on_ranks(WORLD, by_a_clock, paces, backend="gloo"):
        assert [(step, name) for step, name, _ in decisions] == [(10, chosen)], decisions


def copied(rank, world):
    net, _, sync = begin(rank)
    for copy_of in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(copy_of(samples(0)[0]), net(samples(0)[0]))
    sync.finish()
    return len(net._forward_pre_hooks)


def test_a_model_can_be_copied_and_pickled_while_it_is_attached():
    assert on_ranks(WORLD, copied, backend="gloo") == [0] * WORLD


def alone(rank, world):
    net = network()
    optimizer = optimizer_for("adamw", net)
    sync = ranvier.attach(net, optimizer, "auto")
    train(net, optimizer, 0, 8)
    return flat(net), sync.decisions


def test_who_is_alone_has_nothing_to_choose():
    ((end, decisions),) = on_ranks(1, alone, backend="gloo")
    net = network()
    assert torch.equal(end, train(net, optimizer_for("adamw", net), 0, 8)[-1])
    assert decisions == []
