"""PyTorch's own tests of torch.distributed, with one word changed: gloo is ranvier.

torch carries the suite with which it tests gloo, NCCL and UCC (torch.testing._internal.distributed.distributed_test). This
module is that suite's text after the edit that a user of gloo makes, and a test class that runs it. BACKEND says which
backend is tested, WORLD_SIZE how many ranks; `gloo` leaves the text as it is.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import ranvier  # noqa: F401: the copy under test may be a build tree, which torch does not find by itself
import torch.multiprocessing
from torch.testing._internal import common_distributed

BACKEND = os.environ.setdefault("BACKEND", "ranvier")
os.environ.setdefault("WORLD_SIZE", "2")
MASTER = "torch.testing._internal.distributed.distributed_test"


def edited(text: str) -> str:
    """The user's edit. What DDP logs of gloo's own threads and interfaces stays gloo's."""
    text = re.sub(r'(?<!get\("backend_name"\) == )"gloo"', '"ranvier"', text)
    return text.replace("Backend.GLOO", "Backend.RANVIER")


def load() -> types.ModuleType:
    """The suite as a module of its own, for BACKEND."""
    specification = importlib.util.find_spec(MASTER)
    assert specification and specification.origin
    path = Path(specification.origin)
    text = path.read_text()
    if BACKEND == "ranvier":
        text = edited(text)
        for backends in common_distributed.DistTestCases.backend_feature.values():
            if "gloo" in backends:
                backends.add("ranvier")
    module = types.ModuleType("pytorch_suite_text")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # its classes are pickled by this name
    exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


suite = load()


class PyTorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
    """Each rank is forked from a server that has imported torch already: it starts in milliseconds and not in seconds."""

    def setUp(self) -> None:
        super().setUp()
        context = torch.multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])

        def process(kwargs: dict[str, Any], **others: Any) -> Any:
            # The server has the environment of its own start, and each test has a folder of its own there.
            return context.Process(kwargs=kwargs | {"environment": dict(os.environ)}, **others)

        self._start_processes(process)

    def tearDown(self) -> None:
        processes = self.processes
        super().tearDown()
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()

    @classmethod
    def _run(cls, *arguments: Any, environment: dict[str, str], **others: Any) -> None:
        os.environ.update(environment)
        torch.set_num_threads(1)
        super()._run(*arguments, **others)
