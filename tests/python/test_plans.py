"""ranvier.read_plan: what `ranvier plan` wrote is what a training in PyTorch does."""

import pathlib
import subprocess
import sys
import tomllib

import pytest
import ranvier
import torch
import torch.distributed as dist
from ranks import on_ranks

PLAN = """
ranks = 2
transport = "tcp"
compress = "bf16"
sync = "local:3"
bucket_bytes = 2097152
[prediction]
step_ns = 12e6
[[all_reduce]]
up_to_bytes = 4096
algorithm = "swing"
[[all_reduce]]
algorithm = "direct"
"""


@pytest.fixture
def written(tmp_path):
    def write(text=PLAN):
        file = tmp_path / "plan.toml"
        file.write_text(text)
        return file

    return write


def test_what_ranvier_plan_writes_is_read(tmp_path):
    file = tmp_path / "plan.toml"
    words = ("--workload", "resnet50", "--world", "4", "--link-rate", "1Gbit", "--output", str(file))
    subprocess.run([sys.executable, "-m", "ranvier", "plan", *words], check=True, capture_output=True, timeout=60)
    found, plan = tomllib.loads(file.read_text()), ranvier.read_plan(file)
    for name in ("ranks", "transport", "compress", "sync", "bucket_bytes"):
        assert getattr(plan, name) == found[name]
    assert plan.step_seconds == found["prediction"]["step_ns"] / 1e9
    assert plan.because == tuple(found["because"])
    assert plan.algorithms == tuple((row.get("up_to_bytes"), row["algorithm"]) for row in found["all_reduce"])


def test_its_choices_are_arguments(written):
    plan = ranvier.read_plan(written())
    assert (plan.sync, plan.place, plan.compress) == ("local:3", "", "bf16")
    assert plan.bucket_mb == 2
    options = plan.options(link_rate="1Gbit")
    assert (options.transport, options.link_rate) == ("tcp", "1Gbit")
    table = pathlib.Path(options.tuning)
    assert table.read_text() == "all_reduce tcp 2 4096 swing\nall_reduce tcp 2 max direct\n"
    assert plan.options().tuning == table, "one file, in memory, for all groups of this process"
    assert plan.options(algorithm="ring").tuning is None and plan.options(learn=True).tuning is None


def follow(rank, world, file):
    plan = ranvier.read_plan(file)
    group = dist.new_group([0, 1], pg_options=plan.options())
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ranvier.attach(model, optimizer, plan, group=group)
    alike = []
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.full((2, 4), 1.0 + rank)).sum().backward()
        optimizer.step()
        everyones = [torch.empty(4, 4) for _ in range(world)]
        dist.all_gather(everyones, model.weight.detach())
        alike.append(torch.equal(*everyones))
    assert alike == [False, False, True, False, False, True]
    # Only errors tell by which algorithm a group runs.
    for size, algorithm in ((100, "swing"), (10_000, "direct")):
        group = dist.new_group([0, 1], pg_options=plan.options())
        with pytest.raises(dist.DistBackendError, match=f"all_reduce #0 .* by {algorithm}"):
            dist.all_reduce(torch.ones(size + rank), group=group)


def test_groups_and_attachments_do_as_it_says(written):
    on_ranks(2, follow, str(written()))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ranks = 2", "", "a plan needs 'ranks'"),
        ("ranks = 2", "ranks = 0", "ranks is 0"),
        ("ranks = 2", 'ranks = "2"', "ranks of a plan is '2'"),
        ("transport", "transprot", "no 'transprot'; did you mean transport"),
        ("step_ns", "step", "no step_ns"),
        ("up_to_bytes = 4096", "", "only the last row"),
        ("[prediction]", "[prediction", "line 7"),
    ],
)
def test_a_file_that_is_no_plan_is_named(written, old, new, said):
    file = written(PLAN.replace(old, new, 1))
    with pytest.raises(ValueError, match="plan.toml is no plan of ranvier plan") as wrong:
        ranvier.read_plan(file)
    assert said in str(wrong.value)


def test_a_plan_of_another_world_or_order_says_so(written, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="for 2 ranks and these are 4; make another one with ranvier plan --world 4"):
        ranvier.read_plan(written()).options()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="these places: 1, 0"):
        ranvier.read_plan(written("placement = [1, 0]\n" + PLAN)).options()
