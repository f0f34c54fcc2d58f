"""`python -m ranvier rebuild`: the part that belongs to one version of torch, compiled alone. Takes minutes, so that
it runs with `make test-torch` only, which sets RANVIER_TEST_LONG."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from ranvier import _parts, _rebuild

USE = """
import torch, torch.distributed as dist
dist.init_process_group("ranvier", store=dist.HashStore(), rank=0, world_size=1)
total = torch.ones(3)
dist.all_reduce(total)
print([line.split()[-1] for line in open("/proc/self/maps") if "libranvier_torch" in line][0])
dist.destroy_process_group()
"""


@pytest.mark.skipif("RANVIER_TEST_LONG" not in os.environ, reason="takes minutes; make test-torch runs it")
def test_the_rebuilt_part_is_used():
    folder = _parts.folder_for(torch.__version__)
    try:
        command = [sys.executable, "-m", "ranvier", "rebuild"]
        rebuilt = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
        used = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, timeout=60)
        assert used.stdout.strip() == str((folder / _parts.LIBRARY).resolve()), used
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def compiles_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(_rebuild.subprocess, "run", lambda *_, **__: pytest.fail("this would take minutes"))
    monkeypatch.setattr(_rebuild, "folder_for", lambda _: tmp_path / "torch-9.14")
    monkeypatch.setattr(_rebuild.shutil, "which", lambda tool: tool)


def test_a_target_that_cannot_be_written_is_told_before_compiling(compiles_nothing, tmp_path, capsys):
    (tmp_path / "torch-9.14").touch()  # of those who may write everywhere, too
    assert _rebuild.main([]) == 1
    assert f"ranvier rebuild: cannot write to {tmp_path}/torch-9.14 (File exists)" in capsys.readouterr().err


def test_where_there_is_no_torch_rebuild_says_so(compiles_nothing, monkeypatch, capsys):
    def version(name):
        raise _rebuild.PackageNotFoundError(name)

    monkeypatch.setattr(_rebuild, "version", version)
    assert _rebuild.main([]) == 1
    assert f"ranvier rebuild: needs torch, and {sys.executable} has none" in capsys.readouterr().err
