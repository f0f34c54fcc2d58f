"""`python -m ranvier rebuild`: the part that belongs to one version of torch, compiled alone. Takes minutes, so that
it runs with `make test-torch` only, which sets RANVIER_TEST_LONG."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from ranvier import _parts

# As if the package had been built for another torch: then the rebuilt part is the one that is loaded.
USE = """
from ranvier import _parts
_parts.TORCH_VERSION = "9.14.0"
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
