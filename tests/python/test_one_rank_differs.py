"""A setting that is wrong, or another one, on a single rank: every rank is told which rank, what it asked for and what to do.
The others neither wait for it until a timeout, nor hear no more than that a connection was closed."""

import os
import re

import pytest
import ranvier
import torch.distributed as dist
from ranks import run_ranks
from torch import nn, optim

ODD = 1


def told(outcomes) -> list[str]:
    assert all(each.error for each in outcomes), outcomes
    return [each.error.split("\n")[0] for each in outcomes]


def expect(outcomes, own: str, others: str) -> None:
    """`own`: what the odd rank is to say, and `others` what the rest do."""
    for rank, error in enumerate(told(outcomes)):
        assert re.search(own if rank == ODD else others, error), f"rank {rank}: {error}"


def hooking(rank, world, usual, odd):
    ranvier.hook(odd if rank == ODD else usual)


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("int9", "did you mean 'int8'"),
        ("rans+int8", "'int8' stands behind 'rans'"),
        ("topk:2", "topk"),
        (None, "named by a str, and this is None"),
    ],
)
def test_a_hook_that_one_rank_cannot_have_is_news_to_all(backend, odd, why):
    outcomes = run_ranks(3, hooking, "int8", odd, backend=backend)
    expect(outcomes, f"^(Value|Type)Error: .*{why}", f"^ValueError: rank 1 cannot take part in hook\\(\\): .*{why}")


def test_two_codecs_of_a_hook_are_both_named():
    for error in told(run_ranks(3, hooking, "int8", "int4", backend="gloo")):
        assert re.search(r"'int[48]' and rank \d with 'int[48]': give hook\(\) the same spec on every rank", error), error


def attaching(rank, world, usual, odd):
    net = nn.Sequential(nn.Linear(4, 3), nn.EmbeddingBag(10, 4))
    if rank == ODD and odd.pop("sparse", False):
        net[1].sparse = True
    made = optim.LBFGS(net.parameters()) if rank == ODD and odd.pop("lbfgs", False) else optim.SGD(net.parameters(), lr=0.1)
    ranvier.attach(net, made, **(usual | odd if rank == ODD else usual))


@pytest.mark.parametrize(
    ("usual", "odd", "why"),
    [
        ({}, {"sync": "lokal:4"}, "did you mean 'local'"),
        ({"sync": "local:4"}, {"sync": "local:0"}, "the value of 'local' is '0'"),
        ({"sync": "async"}, {"sync": "asynk"}, "did you mean 'async'"),
        ({"sync": "async"}, {"place": "node=2"}, "has no nodes"),
        ({}, {"compress": "bf61"}, "did you mean 'bf16'"),
        ({}, {"compress": 5}, "takes a str as compress"),
        ({}, {"sync": "auto", "compress": "int8"}, "counts what plain values take"),
        ({}, {"sync": "local:4", "compress": "dgc:0.01"}, "corrects the momentum"),
        ({}, {"lbfgs": True}, "LBFGS evaluates the model"),
    ],
)
def test_what_one_rank_cannot_attach_is_news_to_all(usual, odd, why):
    outcomes = run_ranks(3, attaching, usual, odd, backend="gloo")
    expect(outcomes, f"^(Value|Type)Error: .*{why}", f"^ValueError: rank 1 cannot take part in attach\\(\\): .*{why}")


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"sync": "local:4"}, ["'bsp'", "'local:4'", "rank 1"]),
        ({"compress": "int8"}, ["'none'", "'int8'", "rank 1"]),
        ({"sparse": True}, ["the gradient of '1.weight' is sparse"]),
        ({"samples": -1.0}, ["-1"]),
    ],
)
def test_what_one_rank_attaches_otherwise_is_named_on_all(odd, words):
    for error in told(run_ranks(3, attaching, {}, odd, backend="gloo")):
        assert error.startswith("ValueError") and all(word in error for word in words), error


def grouping(rank, world, variables, options):
    if rank == ODD:
        os.environ.update(variables)
    dist.new_group(backend="ranvier", pg_options=options[rank == ODD])


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("RANVIER_TRANSPORT", "tpc", "did you mean 'tcp'"),
        ("RANVIER_ALGORITHM", "rinq", "did you mean 'ring'"),
        ("RANVIER_SOCKETS", "99", "from 1 to 16"),
        ("RANVIER_PORTS", "x", "20000-20100"),
        ("RANVIER_LINK_RATE", "fast", "200Mbit"),
        ("RANVIER_MEASURE", "yes", "1 for yes"),
        ("RANVIER_DEAD_AFTER_MS", "3s", "milliseconds"),
        ("RANVIER_KEY", "missing.key", "ranvier key new"),
        ("RANVIER_TOPOLOGY", "tours:3", "did you mean 'torus'"),
    ],
)
def test_a_wrong_setting_of_one_rank_is_news_to_all(variable, value, remedy):
    outcomes = run_ranks(3, grouping, {variable: value}, [None, None], backend="gloo")
    named = f"'{value.partition(':')[0]}.*{remedy}"
    expect(outcomes, f"^(Value|DistBackend)Error: .*{named}", f"^DistBackendError: rank 1 cannot take part: .*{named}")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("RANVIER_TRANSPORT", "tcp", "rank 0 has transport 'auto' and rank 1 has 'tcp'"),
        ("RANVIER_DEAD_AFTER_MS", "60000", "rank 0 has dead-after '3000 ms.*' and rank 1 has '60000 ms.*'"),
        ("RANVIER_INSECURE", "1", "rank 0 has security '.*' and rank 1 has 'insecure'"),
        ("RANVIER_LEARN", "1", "rank 0 has learn 'no' and rank 1 has 'yes'"),
    ],
)
def test_another_setting_of_one_rank_is_named_on_all(variable, value, words):
    for error in told(run_ranks(3, grouping, {variable: value}, [None, None], backend="gloo")):
        assert re.search(f"^DistBackendError: {words}; give all ranks the same", error), error


def sockets(rank, world):
    os.environ["RANVIER_SOCKETS"] = "2" if rank == ODD else "1"
    dist.new_group(backend="ranvier", pg_options=ranvier.Options(transport="tcp"))


def test_another_number_of_sockets_is_named_on_all():
    for error in told(run_ranks(3, sockets, backend="gloo")):
        assert "rank 0 wants 1 sockets a link and rank 1 wants 2; give all ranks the same" in error, error
