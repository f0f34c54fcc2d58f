"""Runs tests of the suite over one backend and writes what became of each: worker.py RESULTS [TEST…]."""

from __future__ import annotations

import json
import os
import sys
import time
import unittest
from pathlib import Path

# One test may take this long; torch's own limit of minutes is for its slow builds.
SECONDS_A_TEST = 60


class Recorder(unittest.TestResult):
    """The outcome of each test: passed, skipped or failed, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.started = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.started = time.monotonic()

    def record(self, test: unittest.TestCase, status: str, why: str = "") -> None:
        name = test.id().split(".")[-1]
        self.outcomes[name] = (status, why)
        if os.environ.get("SUITE_VERBOSE"):
            print(f"{time.monotonic() - self.started:6.1f} s {status} {name}", file=sys.stderr, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.record(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.record(test, "skipped", reason)

    def addFailure(self, test, error) -> None:  # type: ignore[no-untyped-def]
        self.record(test, "failed", self._exc_info_to_string(error, test))

    addError = addFailure


def main() -> None:
    results, names = Path(sys.argv[1]), sys.argv[2:]
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(SECONDS_A_TEST)
    import suite

    names = names or unittest.TestLoader().getTestCaseNames(suite.PyTorchSuite)
    recorder = Recorder()
    unittest.TestSuite(suite.PyTorchSuite(name) for name in names).run(recorder)
    if wrong := set(names) ^ set(recorder.outcomes):  # setUpClass, say, fails under a name of its own
        told = {name: recorder.outcomes.get(name, "not run") for name in sorted(wrong)}
        raise RuntimeError(f"the suite did not run as it was asked to: {told}")
    results.write_text(json.dumps(recorder.outcomes))


if __name__ == "__main__":
    main()
