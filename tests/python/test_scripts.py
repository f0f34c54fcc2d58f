"""Whole scripts, each rank an interpreter of its own: what they print, and how they end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import port_of_a_store

SCRIPT = """
import torch, torch.distributed as dist
import ranvier
dist.init_process_group("ranvier")
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert tensor[0] == dist.get_world_size()
"""


def run_script(folder: Path, text: str, world: int, **environment: str) -> list[tuple[int, str, str]]:
    """Exit status, stdout and stderr of each rank; not whom the machine kept from showing signs of life."""
    script = folder / "script.py"
    script.write_text(text)
    with port_of_a_store() as port:
        common = os.environ | {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = [
            subprocess.Popen(
                [sys.executable, script],
                env=common | {"OMP_NUM_THREADS": "1", "RANK": str(rank)} | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]
        try:
            ended = [(process, *process.communicate(timeout=90)) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
    return [(process.returncode, out, re.sub(r"ranvier: rank \d+ silent for .*\n", "", err)) for process, out, err in ended]


@pytest.mark.parametrize("end", ["dist.destroy_process_group()", "pass"], ids=["destroyed", "left to exit"])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_script_that_ends_well_prints_nothing(tmp_path, end, transport):
    for result in run_script(tmp_path, f"{SCRIPT}\n{end}", 3, RANVIER_TRANSPORT=transport):
        assert result == (0, "", "")


@pytest.mark.parametrize("backend", ["ranvier", "cpu:ranvier", "cpu:ranvier,cuda:gloo", "cpu:gloo"])
def test_groups_by_device_type_end_as_quietly(tmp_path, backend):
    """Also those without ranvier, which torch knows because `import torch` registers it."""
    script = f'{SCRIPT}\ndist.destroy_process_group()'.replace('"ranvier"', repr(backend))
    for result in run_script(tmp_path, script, 2):
        assert result == (0, "", "")


def test_groups_on_gloo_count_as_they_do_without_ranvier(tmp_path):
    count = "print(dist.group.WORLD.name(), dist.group.WORLD._get_sequence_number_for_group())"
    script = f"{SCRIPT}\n{count}\ndist.destroy_process_group()".replace('"ranvier"', '"cpu:gloo,cuda:gloo"')
    for result in run_script(tmp_path, script, 2):
        assert result == (0, "gloo 1\n", "")


def test_the_others_are_told_what_ended_a_rank(tmp_path):
    end = "if dist.get_rank() == 1: raise ValueError('no such image')\ndist.all_reduce(tensor)"
    waiting, failing = run_script(tmp_path, SCRIPT + end, 2)
    assert failing[0] == 1 and "ValueError: no such image" in failing[2]
    assert waiting[0] == 1 and "rank 1 ended with ValueError: no such image" in waiting[2], waiting[2]


def test_a_rank_that_exits_early_is_named(tmp_path):
    end = "if dist.get_rank() == 1: raise SystemExit(3)\ndist.all_reduce(tensor)"
    waiting, leaving = run_script(tmp_path, SCRIPT + end, 2)
    assert leaving == (3, "", "")
    assert waiting[0] == 1 and "rank 1 left" in waiting[2], waiting[2]


IN_BACKWARD = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import ranvier

dist.init_process_group(sys.argv[1])
store = dist.distributed_c10d._get_default_store()
net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
ddp = DistributedDataParallel(net, bucket_cap_mb=0.001)
ddp.register_comm_hook(*ranvier.hook("int8"))
for _ in range(2):  # then its buckets are formed
    ddp(torch.ones(4, 8)).sum().backward()
if dist.get_rank() == 0 and sys.argv[2] == "met":
    time.sleep(0.6)
    try:
        ddp(torch.ones(4, 8)).sum().backward()
    except RuntimeError:
        os._exit(0)
if dist.get_rank() == 0:  # busy with something else
    process = store.get("process").decode()
    for _ in range(600):
        with open(f"/proc/{process}/stat") as stat:  # the test waits for this rank first
            if stat.read().rpartition(")")[2].split()[0] == "Z":
                print("it has ended")
                break
        time.sleep(0.1)
    sys.stdout.flush()
    os._exit(0)

def fail(_):
    store.set("process", str(os.getpid()))
    raise ValueError("no such gradient")

net[0].weight.register_hook(fail)
try:
    ddp(torch.ones(4, 8)).sum().backward()
except ValueError:
    if sys.argv[2] != "caught":
        raise
    sys.exit(3)
"""


@pytest.mark.parametrize("backend, way", [("gloo", "raised"), ("gloo", "caught"), ("ranvier", "caught")])
def test_a_rank_that_fails_in_backward_ends_though_no_other_brings_what_its_hook_waits_for(tmp_path, backend, way):
    script = IN_BACKWARD.replace("sys.argv[1]", repr(backend)).replace("sys.argv[2]", repr(way))
    busy, failing = run_script(tmp_path, script, 2)
    assert busy == (0, "it has ended\n", "")
    assert failing[0] == (1 if way == "raised" else 3) and ("no such gradient" in failing[2]) == (way == "raised"), failing


def test_a_rank_that_fails_in_backward_ends_with_its_status_though_another_comes_meanwhile(tmp_path):
    """While the interpreter ends, which a thread that comes out of C++ then would abort."""
    script = IN_BACKWARD.replace("sys.argv[1]", "'gloo'").replace("sys.argv[2]", "'met'")
    late, failing = run_script(tmp_path, script, 2)
    assert late[0] == 0 and failing[0] == 1 and "ValueError: no such gradient" in failing[2], (late, failing)
