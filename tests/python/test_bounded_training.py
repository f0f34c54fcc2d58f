"""Training over udp:loss=… where packets are lost on purpose: what ranvier.hook and ranvier.attach know was lost goes with
the next step's gradients, and with resync=K ranks are realigned."""

import ctypes
import io
import shutil
import subprocess
from pathlib import Path

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[2]
WORLD, STEPS, PERIOD = 2, 4, 3
SIZES = (40_000, 90_001, 120_000)
BOUNDED = {"RANVIER_TRANSPORT": "udp:loss=0.05"}
APART = {"RANVIER_TRANSPORT": f"udp:loss=0.2,resync={PERIOD}"}


@pytest.fixture(scope="session")
def lossy_wire(tmp_path_factory):
    """A library that loses packets, to be loaded before all others."""
    if (compiler := shutil.which("c++")) is None:
        pytest.skip("no C++ compiler")
    library = tmp_path_factory.mktemp("wire") / "liblossy_wire.so"
    sources = [ROOT / "tests/support/lossy_wire.cc", ROOT / "tests/python/lossy_wire.cc"]
    folders = [f"-I{ROOT / each}" for each in ("src", "include", "tests")]
    subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", *folders, *sources, "-o", library], check=True)
    return str(library)


def lose(share, times=1):
    """From now on this rank, of its packets that carry gradients; `times` above 1: of those that carry their averages."""
    ctypes.CDLL(None).lose(ctypes.c_double(share), ctypes.c_int(times))


class Linear(nn.Module):
    """Its loss has the gradients that it is given."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(torch.zeros(size) for size in SIZES)

    def forward(self, gradients):
        return sum((part * each).sum() for part, each in zip(self.parts, gradients.split(SIZES), strict=True))


def gradients(rank, step):
    return torch.randn(sum(SIZES), generator=torch.Generator().manual_seed(100 * step + rank))


def flat(tensors):
    return torch.cat([each.detach().flatten() for each in tensors])


def everybodys(values):
    all_of_them = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, values)
    return all_of_them


def are_alike(values):
    first, *others = everybodys(values)
    return all(torch.equal(first, other) for other in others)


def furthest(values):
    """From nothing, summed up over all ranks."""
    total = values.double().clone()
    dist.all_reduce(total)
    return float(total.abs().max())


class Ledger:
    """What a rank has given and got so far."""

    def __init__(self):
        self.rest = torch.zeros(sum(SIZES), dtype=torch.double)

    def enter(self, given, applied):
        self.rest += given.double() - applied.double()


def owed(state, module):
    kept = state.state_dict(module)["parameters"]
    return torch.cat([kept[name]["residual"] for name, _ in module.named_parameters()])


def ddp_with_hook():
    # Several buckets, formed anew after the first step.
    ddp = DistributedDataParallel(Linear(), bucket_cap_mb=0.3)
    state, hook = ranvier.hook("none")
    ddp.register_comm_hook(state, hook)
    return ddp, state


def step_of(ddp, given):
    ddp.zero_grad()
    ddp(given).backward()
    return flat(each.grad for each in ddp.module.parameters())


def hooked(rank, world):
    ddp, state = ddp_with_hook()
    ledger = Ledger()
    lose(0.3)
    for step in range(STEPS):
        applied = step_of(ddp, gradients(rank, step))
        assert are_alike(applied)
        ledger.enter(gradients(rank, step), applied)
        still_owed = owed(state, ddp.module)
        assert furthest(ledger.rest - still_owed.double()) < 1e-3, "what is owed and applied is not what was given"
    assert furthest(ledger.rest) > 0.1 and furthest(torch.tensor(state.lost_share)) > 0, "nothing was lost"
    assert state.lost_share == ranvier.lost_share()

    # A step that overflows is taken by nobody, and so pays nothing.
    spoiled = gradients(rank, STEPS)
    for part in spoiled.split(SIZES):
        part[7] = float("inf") if rank == 0 else 1.0
    assert not step_of(ddp, spoiled).isfinite().all()
    assert torch.equal(owed(state, ddp.module), still_owed)

    saved = io.BytesIO()
    torch.save(state.state_dict(ddp.module), saved)
    saved.seek(0)
    lose(0)
    resumed, state = ddp_with_hook()
    state.load_state_dict(resumed.module, torch.load(saved))
    assert torch.equal(owed(state, resumed.module), still_owed)
    pay_all(ledger, lambda: step_of(resumed, torch.zeros(sum(SIZES))), lambda: owed(state, resumed.module))


def pay_all(ledger, step, still_owed):
    """Steps without gradients, until nothing is owed: what comes late on a busy machine is lost, too."""
    for _ in range(50):
        ledger.enter(torch.zeros(sum(SIZES)), step())
        if furthest(still_owed().abs()) == 0:
            break
    assert furthest(ledger.rest) < 1e-3


def of_other_types(rank, world):
    lose(0.3)
    for dtype in (torch.float64, torch.bfloat16):
        ddp = DistributedDataParallel(Linear().to(dtype))
        state, hook = ranvier.hook("none")
        ddp.register_comm_hook(state, hook)
        for step in range(STEPS):
            given = [gradients(other, step).to(dtype) for other in range(world)]
            applied = step_of(ddp, given[rank])
            assert are_alike(applied)
            if dtype == torch.float64:
                torch.testing.assert_close(applied, sum(given) / world)
        lost = torch.tensor(state.lost_share)
        assert (furthest(lost) > 0) == (dtype == torch.bfloat16)


def without_hook(rank, world):
    ddp, ledger = DistributedDataParallel(Linear(), bucket_cap_mb=0.3), Ledger()
    lose(0.3)
    for step in range(STEPS):
        applied = step_of(ddp, gradients(rank, step))
        assert are_alike(applied)
        ledger.enter(gradients(rank, step), applied)
    assert furthest(ledger.rest) > 0.1, "nothing was lost, or it was given back"


def under_ddp(rank, world):
    hooked(rank, world)
    of_other_types(rank, world)
    without_hook(rank, world)


NOBODY_REALIGNS = "and nobody realigns those whose gradients are summed here"


def test_a_hook_gives_back_what_was_lost_and_without_one_it_is_lost(lossy_wire, capfd):
    on_ranks(WORLD, under_ddp, environment=BOUNDED, preload=lossy_wire)
    assert NOBODY_REALIGNS not in capfd.readouterr().err


def test_where_nobody_realigns_ranks_stay_alike_and_are_told_once(lossy_wire, capfd):
    on_ranks(WORLD, under_ddp, environment=APART, preload=lossy_wire)
    assert capfd.readouterr().err.count(NOBODY_REALIGNS) == WORLD


def attached(rank):
    """By plain SGD with rate 1 parameters are what was applied."""
    model = Linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sync = ranvier.attach(model, optimizer, samples=3 if rank == 0 else 1)
    return model, optimizer, sync


def step_by(model, optimizer, given):
    before = flat(model.parameters())
    optimizer.zero_grad()
    model(given).backward()
    optimizer.step()
    return before - flat(model.parameters())


def owed_of(sync):
    (kept, _) = sync.state_dict()["coded"]
    return torch.cat([each["residual"] for each in kept["kept"]])


def weighted(rank, world):
    lose(0.3)
    ledger = Ledger()
    model, optimizer, sync = attached(rank)
    share = (1.5, 0.5)[rank]  # of 2: 3 and 1 samples
    for step in range(STEPS):
        applied = step_by(model, optimizer, gradients(rank, step))
        assert are_alike(flat(model.parameters()))
        ledger.enter(share * gradients(rank, step), applied)
        assert furthest(ledger.rest - owed_of(sync).double()) < 1e-3, "what is owed and applied is not what was given"
    assert furthest(ledger.rest) > 0.1 and furthest(torch.tensor(sync.lost_share)) > 0, "nothing was lost"
    assert sync.lost_share == ranvier.lost_share()

    state, still_owed = sync.state_dict(), owed_of(sync)
    sync.finish()
    sync = ranvier.attach(model, optimizer, samples=3 if rank == 0 else 1)
    sync.load_state_dict(state)
    assert torch.equal(owed_of(sync), still_owed) and sync.step == STEPS
    lose(0)
    pay_all(ledger, lambda: step_by(model, optimizer, torch.zeros(sum(SIZES))), lambda: owed_of(sync))

    # Rank 1 has a step less, and then takes part without weight.
    lose(0.3)
    before = flat(model.parameters())
    with Join([sync]):
        for step in range(STEPS - rank):
            step_by(model, optimizer, gradients(rank, step))
            ledger.rest += (share if step < STEPS - 1 else 2) * gradients(rank, step)
    assert are_alike(flat(model.parameters()))
    ledger.rest -= before - flat(model.parameters())
    assert furthest(ledger.rest - owed_of(sync).double()) < 1e-3


def test_attach_pays_in_the_next_step_what_was_lost(lossy_wire):
    on_ranks(WORLD, weighted, environment=BOUNDED, preload=lossy_wire)


def exactly(rank, world, states):
    model, optimizer, sync = attached(rank)
    sync.load_state_dict(states[rank])
    assert torch.equal(sync.state_dict()["coded"][0]["kept"][0]["residual"], torch.full((SIZES[0],), rank + 1.0))
    applied = step_by(model, optimizer, torch.zeros(sum(SIZES)))
    again = step_by(model, optimizer, torch.zeros(sum(SIZES)))
    sync.finish()
    return applied, again


def kept_state(rank, world):
    _, _, sync = attached(rank)
    state = sync.state_dict()
    state["coded"] = [{"number": 1, "speakers": [], "kept": [
        {"size": size, "step": 1, "residual": torch.full((size,), rank + 1.0)} for size in SIZES
    ]}, None]  # fmt: skip
    sync.load_state_dict(state)
    sync.finish()
    return state


def of_another_model(rank, world, states):
    net = nn.Linear(2, 2)
    sync = ranvier.attach(net, torch.optim.SGD(net.parameters(), lr=1), "bsp")
    with pytest.raises(ValueError, match=f"a model with {len(SIZES)} trained parameters, and this one has 2: attach the same"):
        sync.load_state_dict(states[rank])
    sync.finish()
    return True


def test_what_another_model_lost_is_refused_over_another_transport_too():
    states = on_ranks(WORLD, kept_state, environment=BOUNDED)
    assert len(SIZES) != 2
    assert all(on_ranks(WORLD, of_another_model, states, backend="gloo"))


@pytest.mark.parametrize("backend", ["gloo", "ranvier"])
def test_what_was_lost_is_paid_over_another_transport_too(backend):
    states = on_ranks(WORLD, kept_state, environment=BOUNDED)
    for applied, again in on_ranks(WORLD, exactly, states, backend=backend, environment={"RANVIER_TRANSPORT": "tcp"}):
        torch.testing.assert_close(applied, torch.full_like(applied, 1.5))
        assert not again.any()


def realigned(rank, world):
    lose(0.3, times=3)  # of averages: those that are late are not waited for
    model, optimizer, sync = attached(rank)
    ever_apart = False
    for step in range(1, 3 * PERIOD + 1):
        step_by(model, optimizer, gradients(rank, step))
        alike = are_alike(flat(model.parameters()))
        assert alike or step % PERIOD, f"behind step {step}"
        ever_apart = ever_apart or not alike
    assert ever_apart
    step_by(model, optimizer, gradients(rank, 0))

    # A checkpoint in between is of ranks that differ: each loads its own.
    state, parameters = sync.state_dict(), [each.detach().clone() for each in model.parameters()]
    assert state["apart"]
    sync.finish()
    assert are_alike(flat(model.parameters()))

    ended = flat(model.parameters())
    again = ranvier.attach(model, optimizer, samples=3 if rank == 0 else 1)
    again.load_state_dict(state)
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), parameters, strict=True):
            mine.copy_(theirs)
    again.finish()
    assert torch.equal(flat(model.parameters()), ended)


def test_ranks_that_differ_are_alike_behind_every_realignment(lossy_wire, capfd):
    on_ranks(WORLD, realigned, environment=APART, preload=lossy_wire)
    assert NOBODY_REALIGNS not in capfd.readouterr().err


def other_policies(rank, world):
    lose(0.3, times=3)
    for policy, place in (("node:2", "node=1"), ("post-local:2", ""), ("auto", "")):
        model = Linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        sync = ranvier.attach(model, optimizer, policy, place=place, steps=2 * STEPS)
        for step in range(STEPS):
            step_by(model, optimizer, gradients(rank, step))
            assert are_alike(flat(model.parameters())), policy
        sync.finish()


def test_where_parameters_are_averaged_too_ranks_do_not_differ(lossy_wire, capfd):
    on_ranks(WORLD, other_policies, environment=APART, preload=lossy_wire)
    assert NOBODY_REALIGNS in capfd.readouterr().err


def partly_used(rank, world):
    used, unused = nn.Linear(300, 300), nn.Linear(724, 1)
    model = nn.ModuleList([used, unused])
    optimizer = torch.optim.AdamW(model.parameters())
    ranvier.attach(model, optimizer)
    before = [p.detach().clone() for p in unused.parameters()]
    for step in range(STEPS):
        optimizer.zero_grad()
        used(torch.randn(8, 300, generator=torch.Generator().manual_seed(10 * step + rank))).square().mean().backward()
        optimizer.step()
    assert all(torch.equal(now, was) for now, was in zip(unused.parameters(), before, strict=True))
    assert all(p not in optimizer.state for p in unused.parameters())


def test_what_nobody_used_stays_as_it_is():
    # Spread by a rotation, what is nothing on all ranks comes back as nearly nothing, which Adam makes a step of.
    on_ranks(WORLD, partly_used, environment=BOUNDED)
