"""Registering the backend, loading its library, its settings."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import _ranvier_autoload
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from ranvier import _build, _library, _parts, _register, settings


def test_torch_knows_the_backend():
    assert "ranvier" in dist.Backend.backend_list
    assert dist.Backend.backend_capability["ranvier"] == (["cpu", "cuda"] if torch.backends.cuda.is_built() else ["cpu"])


def test_registering_twice_does_no_harm():
    _register.register()
    _ranvier_autoload.register()
    assert dist.Backend.backend_list.count("ranvier") == 1


def test_importing_ranvier_loads_no_library():
    program = "import ranvier, sys; sys.exit('libranvier_torch' in open('/proc/self/maps').read())"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_another_minor_version_of_torch_is_refused_in_one_sentence():
    built = ".".join(_build.TORCH_VERSION.split(".")[:2])
    with pytest.raises(RuntimeError) as caught:
        _parts.library_for("9.14.1+cpu")
    assert str(caught.value) == (
        f"ranvier was built for torch {built}, this is 9.14: run 'python -m ranvier rebuild', "
        "which compiles the part that differs"
    )


def test_another_patch_version_of_torch_is_accepted():
    assert _parts.library_for(_build.TORCH_VERSION + ".post1+cu130").parent == _parts.PACKAGE


def test_a_rebuilt_part_serves_its_own_version(monkeypatch, tmp_path):
    monkeypatch.setattr(_parts, "PACKAGE", tmp_path)
    library = tmp_path / "native" / "torch-9.14" / _parts.LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    assert _parts.library_for("9.14.1+cpu") == library
    with pytest.raises(RuntimeError, match="this is 9.15"):
        _parts.library_for("9.15.0")


def test_a_rebuilt_part_comes_before_the_packaged_one_until_that_is_installed_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(_parts, "PACKAGE", tmp_path)
    packaged, rebuilt = tmp_path / _parts.LIBRARY, _parts.folder_for(_build.TORCH_VERSION) / _parts.LIBRARY
    rebuilt.parent.mkdir(parents=True)
    for library, seconds in ((packaged, 100), (rebuilt, 200)):
        library.touch()
        os.utime(library, (seconds, seconds))
    assert _parts.library_for(_build.TORCH_VERSION) == rebuilt
    os.utime(packaged, (300, 300))
    assert _parts.library_for(_build.TORCH_VERSION) == packaged


def test_the_core_knows_no_torch():
    needed = subprocess.run(["readelf", "--dynamic", _parts.PACKAGE / _parts.CORE], capture_output=True, text=True).stdout
    assert "NEEDED" in needed and "torch" not in needed and "libc10" not in needed, needed


def test_the_part_for_torch_knows_no_python():
    """One library serves every Python that this torch is made for."""
    library = _parts.library_for(torch.__version__)

    def said_by(*command):
        done = subprocess.run([*command, library], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return done.stdout

    needed = re.findall(r"NEEDED.*\[(.+)\]", said_by("readelf", "--dynamic", "--wide"))
    assert any(name.startswith("libtorch_cpu.so") for name in needed), needed
    assert not [name for name in needed if "python" in name], needed
    undefined = {line.split()[-1] for line in said_by("nm", "--dynamic", "--undefined-only").splitlines()}
    assert any("c10d" in symbol for symbol in undefined)
    # Python's own begin so; THP and pybind11 are names of torch's Python layer.
    assert not [symbol for symbol in undefined if re.match(r"_?Py[A-Z_]|.*(THP|pybind11)", symbol)], undefined


def test_another_torch_stops_the_group_before_the_library_is_loaded(tmp_path):
    program = (
        "import torch; torch.__version__ = '9.14.1'; import ranvier, torch.distributed as dist\n"
        "try: dist.init_process_group('ranvier', store=dist.HashStore(), rank=0, world_size=1)\n"
        "except RuntimeError as error: print(error)\n"
        "print('libranvier_torch' in open('/proc/self/maps').read())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "ranvier was built for torch" in done.stdout and done.stdout.endswith("False\n"), done


BREAKAGES = {
    "half of an upgrade": lambda package: (package / "_build.py").unlink(),
    "a damaged file": lambda package: (package / "__init__.py").write_text("def register(:\n"),
    "an error while it registers": lambda package: (package / "_functions.py").write_text("extend = lambda dist: 1 / 0\n"),
    "unreadable files": lambda package: (package / "settings.py").write_text("raise OSError('no such disk')\n"),
}


@pytest.mark.parametrize(("breakage", "strict"), [*((each, False) for each in BREAKAGES), ("a damaged file", True)])
def test_a_broken_copy_does_not_break_import_torch(breakage, strict, tmp_path):
    package = tmp_path / "ranvier"
    package.mkdir()
    for file in _parts.PACKAGE.glob("*.py"):
        shutil.copy(file, package)
    shutil.copy(_ranvier_autoload.__file__, tmp_path)
    information = tmp_path / "ranvier-9.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ranvier\nVersion: 9\n")
    (information / "entry_points.txt").write_text("[torch.backends]\nranvier = _ranvier_autoload:register\n")
    BREAKAGES[breakage](package)
    command = [sys.executable, *(["-W", "error"] if strict else []), "-c", "import torch; print('there')"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}  # found before the copy that is installed
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "there\n"), done
    assert "the ranvier backend was not registered" in done.stderr, done
    assert ("RuntimeWarning" in done.stderr) == (not strict), done


def test_a_store_written_in_python_serves():
    class Dictionary(dist.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value

        def get(self, key):
            return self.values[key]

        def wait(self, keys, timeout=None):
            assert all(key in self.values for key in keys)

        def add(self, key, delta):
            self.values[key] = str(int(self.values.get(key, "0")) + delta)
            return int(self.values[key])

    backend = _library.connect(Dictionary(), 0, 1, timedelta(seconds=10))
    assert (backend.name(), backend.rank(), backend.size()) == ("ranvier", 0, 1)
    backend.shutdown()


def test_the_environment_and_the_timeout_become_settings(monkeypatch):
    monkeypatch.setenv("RANVIER_TRANSPORT", "tcp")
    chosen = settings.for_group(timedelta(seconds=1.5), settings.Options())
    assert chosen == {"RANVIER_TRANSPORT": "tcp", "timeout_ms": "1500", "join_timeout_ms": "1500"}
    assert settings.for_group(timedelta(minutes=30), settings.Options())["join_timeout_ms"] == "1800000"  # torch's default


@pytest.mark.parametrize(("members", "told"), [([], None), ([3, 5], "3,5")])
def test_a_group_is_told_its_ranks_in_the_world(monkeypatch, members, told):
    given = []
    backend = SimpleNamespace(check_settings=lambda chosen: None, attach=lambda group, chosen: given.append(chosen))
    monkeypatch.setattr(_library, "load", lambda: backend)
    monkeypatch.setattr(dist.ProcessGroup, "_get_backend", lambda *_: None)
    made = {"store": dist.HashStore(), "group_rank": 0, "group_size": 2, "timeout": timedelta(seconds=1)}
    _register._create(SimpleNamespace(**made, group_id="told", global_ranks_in_group=members), None)
    _register.made_with.pop("told")
    assert [chosen.get("world_ranks") for chosen in given] == [told]


def test_options_go_before_the_environment(monkeypatch):
    monkeypatch.setenv("RANVIER_TRANSPORT", "tcp")
    monkeypatch.setenv("RANVIER_ALGORITHM", "ring")
    options = settings.Options(transport="shm", dead_after=timedelta(seconds=1.5))
    chosen = settings.for_group(timedelta(seconds=1), options)
    assert chosen["RANVIER_TRANSPORT"] == "shm" and chosen["RANVIER_DEAD_AFTER_MS"] == "1500"
    assert chosen["RANVIER_ALGORITHM"] == "ring"


GIVEN = {
    "transport": "tcp",
    "node": "a",
    "algorithm": "ring",
    "tuning": Path("tuning.toml"),
    "measure": False,
    "learn": True,
    "topology": "torus:2x4",
    "interface": "127.0.0.1",
    "sockets": 4,
    "ports": "20000-20100",
    "key": "job.key",
    "certificate": Path("rank.pem"),
    "private_key": "rank.key",
    "authority": "ca.pem",
    "insecure": True,
    "encrypt_everywhere": False,
    "link_rate": "200Mbit",
    "dead_after": timedelta(seconds=2),
}


def test_every_setting_has_an_option():
    given = settings.Options(**GIVEN).settings()
    assert set(given) == set(settings.SETTINGS)
    words = "tcp a ring tuning.toml 0 1 torus:2x4 127.0.0.1 4 20000-20100 job.key rank.pem rank.key ca.pem 1 0 200Mbit 2000"
    assert list(given.values()) == words.split()


@pytest.mark.parametrize(
    ("option", "value", "error", "words"),
    [
        ("transport", 3, TypeError, "a str, and not the int 3"),
        ("measure", 0, TypeError, "a bool, and not the int 0"),
        ("sockets", True, TypeError, "an int, and not the bool True"),
        ("sockets", 17, ValueError, "from 1 to 16, and not 17"),
        ("key", b"key", TypeError, "a str or PathLike"),
        ("dead_after", 3.0, TypeError, "a timedelta"),
        *(
            ("dead_after", timedelta(milliseconds=each), ValueError, "from 100 milliseconds to a day, and not")
            for each in (-1000, 0, 1, 99, 86_400_001)
        ),
    ],
)
def test_an_option_of_another_type_is_refused_where_it_is_written(option, value, error, words):
    with pytest.raises(error, match=words) as caught:
        settings.Options(**{option: value})
    assert f"({option}=…)" in str(caught.value)


@pytest.mark.parametrize("ports", ["x", "", "0", "20000-", "2-1", "1-65536", "1-2-3", "²"])
def test_ports_that_are_none_are_refused_in_the_words_of_options(ports):
    with pytest.raises(ValueError, match=rf"ranvier.Options\(ports=…\) is a range of ports such as '20000-20100', and not '{ports}'"):
        _library.connect(dist.HashStore(), 0, 1, timedelta(seconds=10), settings.Options(ports=ports))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("dead_after", each) for each in (timedelta(milliseconds=100), timedelta(days=1))),
        *(("ports", each) for each in ("1", "20000", "20000-20000", "1-65535")),
    ],
)
def test_what_an_option_takes_the_library_takes(option, value):
    _library.load().check_settings(settings.for_group(timedelta(seconds=1), settings.Options(**{option: value})))


def test_a_certificate_without_its_other_files_is_refused_by_the_names_of_options(monkeypatch):
    some = settings.Options(certificate="rank.pem")
    words = r"\(certificate=…\) goes with private_key=… and authority=….* RANVIER_PRIVATE_KEY and RANVIER_AUTHORITY"
    with pytest.raises(ValueError, match=words):
        _library.connect(dist.HashStore(), 0, 1, timedelta(seconds=10), some)
    monkeypatch.setenv("RANVIER_AUTHORITY", "ca.pem")
    with pytest.raises(ValueError, match="goes with private_key=…: name these"):
        settings.for_group(timedelta(seconds=1), some)
    monkeypatch.setenv("RANVIER_PRIVATE_KEY", "rank.key")
    assert settings.for_group(timedelta(seconds=1), some)["RANVIER_CERTIFICATE"] == "rank.pem"


def test_options_of_a_block_serve_groups_that_have_none(monkeypatch):
    monkeypatch.setenv("RANVIER_TRANSPORT", "tcp")
    with settings.Options(transport="shm", algorithm="ring"), settings.Options(sockets=2):
        options = settings.combined(settings.Options(algorithm="torus:2x4"))
    chosen = settings.for_group(timedelta(seconds=1), options)
    assert [chosen[f"RANVIER_{name}"] for name in ("TRANSPORT", "ALGORITHM", "SOCKETS")] == ["shm", "torus:2x4", "2"]
    assert settings.combined() == settings.Options()


@pytest.mark.parametrize("backend", ["ranvier", "cpu:ranvier"])
def test_options_of_another_backend_are_refused_where_ranvier_is_alone(backend):
    with pytest.raises(TypeError, match=r"are a ranvier\.Options, and not a ProcessGroupGloo\._Options"):
        dist.init_process_group(
            backend, store=dist.HashStore(), rank=0, world_size=1, pg_options=dist.ProcessGroupGloo._Options()
        )
    assert not dist.is_initialized()


def test_options_of_another_devices_backend_are_its_own():
    assert _register._is_anothers(dist._Backend.Options("nccl"))
    assert not _register._is_anothers({"transport": "tcp"})


@pytest.mark.parametrize("group", ["torch.backends", "torch.distributed.backends"])
def test_entry_points_import_nothing_but_this_package(group):
    program = (
        "import os, sys; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'\n"
        "import torch, torch.distributed, importlib.metadata as metadata\n"
        f"point, = metadata.entry_points(group={group!r}, name='ranvier')\n"
        "before = set(sys.modules)\n"
        "point.load()()\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - sys.stdlib_module_names), 'ranvier' in torch.distributed.Backend.backend_list)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "['_ranvier_autoload', 'ranvier'] True\n", done


@pytest.mark.skipif(torch.__version__ < "2.14", reason="torch looks backends up by themselves from 2.14 on")
def test_torch_finds_the_backend_when_a_group_asks_for_it(tmp_path):
    program = (
        "import torch, torch.distributed as dist\n"
        f"dist.init_process_group('ranvier', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
        "total = torch.ones(3)\n"
        "dist.all_reduce(total)\n"
        "print(total.tolist(), dist.get_backend())\n"
        "dist.destroy_process_group()"
    )
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout == "[1.0, 1.0, 1.0] ranvier\n", done


def test_a_misspelt_setting_gets_a_warning_and_others_variables_do_not(monkeypatch):
    monkeypatch.setenv("RANVIER_TRANPORT", "tcp")
    with pytest.warns(UserWarning, match="RANVIER_TRANPORT is no setting of ranvier; did you mean RANVIER_TRANSPORT?"):
        settings.warn_of_misspellings()
    monkeypatch.delenv("RANVIER_TRANPORT")
    monkeypatch.setenv("RANVIER_CHECKOUT", "/somewhere")
    monkeypatch.setenv("RANVIER_PORT", "tcp://10.0.0.1:80")  # as Kubernetes does for a service of that name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings.warn_of_misspellings()


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("RANVIER_TRANSPORT", "tpc", "tcp"),
        ("RANVIER_ALGORITHM", "rign", "ring"),
        ("RANVIER_SOCKETS", "0", "from 1 to 16"),
        ("RANVIER_PORTS", "20000-", "20000-20100"),
        ("RANVIER_KEY", "missing.key", "ranvier key new"),
        ("RANVIER_INSECURE", "yes", "1 for yes"),
        ("RANVIER_LINK_RATE", "fast", "200Mbit"),
        ("RANVIER_DEAD_AFTER_MS", "3s", "milliseconds"),
    ],
)
def test_a_wrong_value_is_named_with_its_remedy(monkeypatch, variable, value, word):
    monkeypatch.setenv(variable, value)
    with pytest.raises((dist.DistBackendError, ValueError)) as caught:
        backend = _library.connect(dist.HashStore(), 0, 1, timedelta(seconds=10))
        backend.allreduce([torch.ones(1)]).wait()
    assert f"'{value}'" in str(caught.value) and word in str(caught.value).split("\n")[0]


@pytest.mark.parametrize("kind", ["hash", "file", "tcp"])
def test_ranks_that_do_not_come_are_named(kind, tmp_path):
    store = {
        "hash": dist.HashStore,
        "file": lambda: dist.FileStore(str(tmp_path / "store"), 2),
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, is_master=True),
    }[kind]()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        _library.connect(store, 0, 2, timedelta(seconds=0.5))
