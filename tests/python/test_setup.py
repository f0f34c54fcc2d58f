"""scripts/setup.sh on machines that lack something. Nothing is installed: all programs that it finds stand in for others."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "scripts" / "setup.sh"
LACKING = {"libzstd-dev", "ninja-build"}
HARMLESS = ("bash", "cat", "cmp", "cp", "dirname", "env", "grep", "true")


@pytest.fixture
def machine(tmp_path):
    """Runs setup.sh where nothing is on PATH but what `programs` say, each a line of sh; its virtual environment is there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in HARMLESS:
        (programs / name).symlink_to(shutil.which(name))
    venv = tmp_path / "venv"
    venv.mkdir()
    shutil.copy(ROOT / "requirements.txt", venv / ".requirements")
    asked = tmp_path / "asked"
    usual = {
        "dpkg-query": f'case "$3" in {"|".join(sorted(LACKING))}) exit 1;; esac; echo "install ok installed"',
        "python3": "exit 0",
        "apt-get": f'echo "$DEBIAN_FRONTEND: $*" >> {asked}',
        "id": "echo 1000",
        "sudo": "exit 1",
    }

    def run(*words: str, **changed: str | None):
        for name, line in (usual | {name.replace("_", "-"): line for name, line in changed.items()}).items():
            if line is not None:
                (programs / name).write_text(f"#!/bin/sh\n{line}\n")
                (programs / name).chmod(0o755)
        done = subprocess.run(
            ["/bin/bash", SETUP, venv, *words], env={"PATH": str(programs)}, capture_output=True, text=True, timeout=60
        )
        return done, asked.read_text().splitlines() if asked.exists() else []

    return run


def test_the_packages_that_all_need_are_named_to_who_may_not_install(machine):
    done, asked = machine()
    assert (done.returncode, asked) == (1, []), done
    sentence = "setup: these Debian packages are missing, and only root may install them: sudo apt-get install "
    assert done.stderr.startswith(sentence) and done.stderr.count("\n") == 1, done.stderr
    assert set(done.stderr.removeprefix(sentence).split()) == LACKING, done.stderr


def test_those_of_one_target_are_named_too(machine):
    lacking = 'case "$3" in clang-14) exit 1;; esac; echo "install ok installed"'
    done, _ = machine("clang-14", "libclang-rt-14-dev", dpkg_query=lacking)
    assert done.returncode == 1 and done.stderr.endswith("sudo apt-get install clang-14\n"), done


def test_a_python_that_cannot_make_environments_is_noticed(machine):
    done, _ = machine(dpkg_query='echo "install ok installed"', python3="exit 1")
    assert done.returncode == 1 and done.stderr.endswith("sudo apt-get install python3-venv\n"), done


ROOTS = {"root": {"id": "echo 0"}, "somebody with sudo that asks no password": {"sudo": 'shift; exec "$@"'}}


@pytest.mark.parametrize("who", ROOTS.values(), ids=ROOTS)
def test_who_may_install_gets_just_what_is_missing(machine, who):
    done, asked = machine(**who)
    assert done.returncode == 0, done
    update, install = (line.split() for line in asked)
    assert update[1] == "update" and install[:2] == ["noninteractive:", "install"], asked
    assert {word for word in install[2:] if not word.startswith("-")} == LACKING, asked


def test_a_system_without_apt_is_told_the_names(machine):
    for user in ("0", "1000"):
        done, _ = machine(id=f"echo {user}", apt_get=None)
        assert done.returncode == 1 and done.stderr.startswith("setup: no apt-get here; install the equivalents of: "), done
    assert set(done.stderr.split(": ")[2].split()) == LACKING


def test_a_failed_installation_is_one_sentence(machine):
    done, _ = machine(id="echo 0", apt_get='[ "$1" = update ]')
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("setup: apt-get could not install: "), done
    done, _ = machine(id="echo 0", apt_get="exit 100")
    assert done.returncode == 1 and done.stderr.endswith("setup: apt-get update failed; is the network up?\n"), done


def test_where_nothing_is_missing_nothing_is_done(machine):
    done, asked = machine(dpkg_query='echo "install ok installed"')
    assert (done.returncode, done.stdout, done.stderr, asked) == (0, "", "", []), done
