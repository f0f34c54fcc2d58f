"""The three parts of the package: the core, which knows no torch; the library compiled for one minor version of torch;
and this Python code, which chooses that library. Another torch needs only the second part anew:
`python -m ranvier rebuild`."""

from __future__ import annotations

from pathlib import Path

from ranvier._build import TORCH_VERSION

PACKAGE = Path(__file__).parent
CORE = "libranvier_core.so"
LIBRARY = "libranvier_torch.so"


def library_for(torch: str) -> Path:
    """The library for this version of torch. Raises RuntimeError that says how to get it, if there is none.

    c10d's C++ classes change with minor versions: under another one calls would end in the wrong functions. A rebuilt one
    comes first: somebody wanted it.
    """
    packaged, rebuilt = PACKAGE / LIBRARY, folder_for(torch) / LIBRARY
    is_of_package = minor(torch) == minor(TORCH_VERSION)
    if rebuilt.exists() and not _is_left_over(rebuilt, packaged):
        return rebuilt
    if is_of_package:
        return packaged
    raise RuntimeError(
        f"ranvier was built for torch {minor(TORCH_VERSION)}, this is {minor(torch)}: run 'python -m ranvier rebuild', "
        "which compiles the part that differs"
    )


def _is_left_over(rebuilt: Path, packaged: Path) -> bool:
    """Whether the package was installed anew since: that removes only what it had brought itself."""
    return packaged.exists() and rebuilt.stat().st_mtime < packaged.stat().st_mtime


def folder_for(torch: str) -> Path:
    return PACKAGE / "native" / f"torch-{minor(torch)}"


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
