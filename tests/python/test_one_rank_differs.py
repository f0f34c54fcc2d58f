"""A setting that is wrong, or another one, on a single rank: every rank is told which rank, what it asked for and what to do.
The others neither wait for it until a timeout, nor hear no more than that a connection was closed."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import port_of_a_store, run_ranks, said_by
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
        ({"sync": "local:4"}, ["by 'bsp' with 'none'", "by 'local:4' with 'none'", "rank 1"]),
        ({"place": "node=3"}, ["by 'bsp' with 'none'", "by 'bsp' in 'node=3' with 'none'", "rank 1"]),
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


def hooking_and_attaching(rank, world):
    if rank == ODD:
        ranvier.hook("int8")
    else:
        attaching(rank, world, {}, {})


def test_a_hook_where_others_attach_is_named_on_all():
    for rank, error in enumerate(told(run_ranks(3, hooking_and_attaching, backend="gloo"))):
        own, other = ("hook()", "attach()") if rank == ODD else ("attach()", "hook()")
        assert error.startswith(f"ValueError: rank {rank} has called {own} where rank ") and other in error, error


# The default timeout is half an hour: nothing here waits for this one.
LONG_S = 600


def beginning(rank, world, folder, odd):
    dist.destroy_process_group()
    options = None
    if rank == ODD:
        if odd == "another torch":
            torch.__version__ = "9.14.1"
        elif odd == "no options":
            options = {"transport": "tcp"}
        elif odd == "ports":
            taken = socket.create_server(("", 0))
            port = taken.getsockname()[1]
            options = ranvier.Options(transport="tcp", ports=f"{port}-{port}")
        else:
            options = ranvier.Options(**odd)
    store, limit = f"file://{folder}/again", timedelta(seconds=LONG_S)
    dist.init_process_group("ranvier", store, limit, world, rank, pg_options=options)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("another torch", "ranvier was built for torch .*, this is 9.14: run 'python -m ranvier rebuild'"),
        ("no options", r"pg_options of ranvier are a ranvier\.Options, and not a dict"),
        ("ports", "port"),
        ({"transport": "tpc"}, "did you mean 'tcp'"),
        ({"transport": "udp:loss=2"}, "loss"),
        ({"algorithm": "rinq"}, "did you mean 'ring'"),
        ({"tuning": "/nowhere/table"}, "cannot read the tuning table /nowhere/table"),
        ({"key": "/nowhere/job.key"}, "/nowhere/job.key"),
        ({"key": "/"}, "'/'"),
        ({"ports": "7-5"}, "20000-20100"),
        ({"interface": "no address"}, "no address"),
        ({"certificate": "/nowhere/rank.pem"}, "/nowhere/rank.pem|private"),
    ],
    ids=str,
)
def test_what_one_rank_gives_init_process_group_is_news_to_all(odd, why, tmp_path):
    outcomes = run_ranks(3, beginning, str(tmp_path), odd, backend="gloo", limit=60)
    expect(outcomes, f"^\\w+Error: .*{why}", f"^DistBackendError: rank 1 cannot take part: .*{why}")


KEEPS_THE_STORE = """
import sys
from datetime import timedelta
import ranvier
import torch.distributed as dist
rank = int(sys.argv[1])
store = dist.TCPStore("127.0.0.1", int(sys.argv[2]), is_master=rank == 0, wait_for_workers=False)
options = {} if rank == 0 and sys.argv[3] == "python" else ranvier.Options(transport="tpc" if rank == 0 else None)
dist.init_process_group("ranvier", store=store, rank=rank, world_size=3, timeout=timedelta(seconds=600), pg_options=options)
"""


def of_script(rank, port, where) -> list[str]:
    return [sys.executable, "-c", KEEPS_THE_STORE, str(rank), str(port), where]


@pytest.mark.parametrize("where", ["python", "library"])
def test_the_others_are_told_by_a_rank_that_takes_the_store_along(where):
    with port_of_a_store() as port:
        errors = said_by([of_script(rank, port, where) for rank in range(3)])
    why = r"not a dict" if where == "python" else "did you mean 'tcp'"
    for rank, error in enumerate(errors):
        assert re.search(f"rank 0 cannot take part: .*{why}" if rank else why, error), error


@pytest.mark.parametrize("where", ["python", "library"])
def test_a_rank_that_waits_to_tell_others_says_what(where):
    with port_of_a_store() as port:
        rank = subprocess.Popen(of_script(0, port, where), stderr=subprocess.PIPE, text=True)
        try:
            line = next(line for line in rank.stderr if line.startswith("ranvier: "))
        finally:
            rank.kill()
            rank.wait()
    assert re.search("(not a dict|did you mean 'tcp').*; waits to tell the other ranks", line), line


def naming_others(rank, world, named, patience_s):
    """The world would wait longer. Nobody leaves before all have heard, or for so long: else others might hear of that first."""
    said, store = "", dist.distributed_c10d._get_default_store()
    try:
        dist.new_group(named[rank], timeout=timedelta(seconds=LONG_S))
    except dist.DistBackendError as error:
        said = str(error)
    store.set(f"told {rank}", "")
    with contextlib.suppress(RuntimeError):  # DistStoreError
        store.wait([f"told {each}" for each in range(world)], timedelta(seconds=patience_s))
    return said


@pytest.mark.parametrize("odd", [0, 1])
def test_groups_of_other_ranks_are_named_on_all(odd):
    named = [[0, 1, 2, 3]] * 4
    named[odd] = [0, 1]
    said = [each.value or each.error for each in run_ranks(4, naming_others, named, 60, limit=100)]
    words = r"rank \d came to a group of (2|4) and rank \d to one of (2|4); name the same ranks"
    assert all(re.search(words, each) for each in said), said


def test_groups_of_as_many_other_ranks_are_noticed():
    """Who meets whom is decided by who comes first; the third one hears no more than that they have left."""
    outcomes = run_ranks(3, naming_others, [[0, 1], [1, 2], [1, 2]], 3, limit=60)
    said = [each.value or each.error or "" for each in outcomes]
    assert sum("name the same ranks of a group on all of them" in each for each in said) >= 1, said
    assert "name the same ranks" in said[0] or "has left the job" in said[0], said
