"""What `pip install .` says where libraries are missing."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Optional parts of the build, and what only tests and benchmarks take.
NOT_NEEDED = re.compile(r"libprotobuf|protobuf|libgtest|libgmock|libnlopt|libbenchmark|libopenmpi|openmpi|libucx|libgrpc|dataset|iproute|nftables|cmake|ninja")


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
def test_all_missing_libraries_are_named_at_once():
    def configure(*settings):
        command = ["cmake", *settings, "-P", str(ROOT / "python" / "libraries.cmake")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    nowhere = configure("-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF")
    lines = (ROOT / "scripts" / "apt-packages.txt").read_text().splitlines()
    needed = {line for line in lines if line and not line.startswith("#") and not NOT_NEEDED.match(line)}
    named = re.search(r"apt-get install (.*?)'", " ".join(nowhere.stderr.split())).group(1)
    assert nowhere.returncode != 0 and set(named.split()) == needed, nowhere
    assert {"libssl-dev", "pkg-config"} <= needed
    here = configure("-DCMAKE_PREFIX_PATH=/usr")  # which this copy was built with
    assert here.returncode == 0, here.stderr
