"""Files of users: whole, or as they were."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
from collections.abc import Iterator


def check_writable(path: pathlib.Path, what: str) -> None:
    """Raises the OSError that `write_whole` would, before there is anything to lose. Makes the folder."""
    with _explained(path, what):
        target = _target(path)
        if _is_special(target):
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with _part_beside(target):
            pass


def write_whole(path: pathlib.Path, what: str, text: str) -> None:
    """Puts a file with `text` in the place of `path`; pipes and devices are written to. `what` it is, in errors."""
    with _explained(path, what):
        target = _target(path)
        if _is_special(target):
            target.write_text(text, encoding="utf-8")
            return
        with _part_beside(target) as part:
            part.write_text(text, encoding="utf-8")
            part.replace(target)


def _target(path: pathlib.Path) -> pathlib.Path:
    target = path.resolve()  # what a link names is replaced, not the link
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return target


def _is_special(target: pathlib.Path) -> bool:
    return target.exists() and not target.is_file()


@contextlib.contextmanager
def _part_beside(target: pathlib.Path) -> Iterator[pathlib.Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".ranvier.{secrets.token_hex(8)}")
    part.touch(exist_ok=False)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _explained(path: pathlib.Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot write the {what} {path} ({error.strerror}); make room and its folder writable, or name another file",
        ) from error
