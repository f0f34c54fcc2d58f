#!/usr/bin/env python3
"""Runs tests side by side, and what failed there once more, alone.
`run_tests.py build/core.log ctest --preset dev -j 3`, or with `python -m pytest -n 3 tests/python` behind the log.

Most of these tests are processes that wait for each other. Where other jobs, or the tests beside them, take the processors away
for seconds, now and then one fails that passes on every quiet machine, and with it all the others that passed. So up to two may
fail once, if they pass alone; the log and the last line name them, since each is a defect of the test at least.
What crashes, is ended by ctest at its limit, or is reported by a sanitizer has failed, however it would go the second time.
"""

import pathlib
import re
import subprocess
import sys

MOST = 2
NEVER_FORGIVEN = re.compile(
    r"ThreadSanitizer|AddressSanitizer|LeakSanitizer|runtime error:|Segmentation fault|SIGSEGV|SIGABRT|SEGFAULT"
    r"|Subprocess aborted|\(Timeout\)|worker '?gw\d+'? crashed|Fatal Python error"
)
FAILED = {
    "ctest": re.compile(r"^\s+\d+ - (\S+) \(\w[\w ]*\)", re.MULTILINE),
    "pytest": re.compile(r"^FAILED (\S+)", re.MULTILINE),
}


def alone(kind: str, failed: list[str]) -> list[str]:
    """By name: what ctest keeps of the last run is of another one where two run in one folder."""
    if kind == "ctest":
        return ["-R", f"^({'|'.join(failed)})$", "-j", "1"]
    return ["--last-failed", "--last-failed-no-failures=none", "-n", "0"]


def run(command: list[str], log: pathlib.Path, mode: str) -> tuple[int, str]:
    """Shows what is printed and appends it to `log`."""
    text = []
    with log.open(mode) as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                                  errors="replace") as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            file.write(line)
            text.append(line)
    return process.returncode, "".join(text)


def main() -> int:
    log, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    kind = "ctest" if command[0] == "ctest" else "pytest"
    log.parent.mkdir(parents=True, exist_ok=True)
    code, printed = run(command, log, "w")
    if code == 0:
        return 0
    failed = FAILED[kind].findall(printed)
    if kind == "pytest" and code != 1 or not 0 < len(failed) <= MOST:  # 1: tests failed, and nothing else did
        return code
    if why := NEVER_FORGIVEN.search(printed):
        print(f"{why[0]}: not tried again, since it may have been a race", flush=True)
        return code
    code, printed = run([*command, *alone(kind, failed)], log, "a")
    verdict = "passed only alone, at a second try" if code == 0 else "failed beside others, and alone"
    with log.open("a") as file:
        for test in failed:
            line = f"{test} {verdict}"
            print(line, flush=True)
            file.write(line + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
