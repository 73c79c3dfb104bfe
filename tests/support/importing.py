"""Let the workers of a run import the tests' files between them: each its own part first, then what is left.

Pytest rewrites the assertions of a file when it is first imported, and keeps what it made beside it. In a fresh clone
nothing is kept yet, and workers that go through the files in one order all rewrite each of them, side by side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

import pytest


def files_below(places: Iterable[str]) -> list[Path]:
    """Return the files of tests at and below these places, each a path or the id of a test."""
    files: set[Path] = set()
    for place in places:
        path = Path(place.partition("::")[0]).absolute()
        files.update(path.rglob("test_*.py") if path.is_dir() else [path])
    return sorted(files)


def part_of(files: Sequence[Path], worker: str, workers: int) -> Sequence[Path]:
    """Return what a worker imports first.

    Args:
        files: all of them.
        worker: its name, "gw" and a number from 0.
        workers: how many there are.
    """
    return files[int(worker.removeprefix("gw")) :: workers]


def import_first(files: Iterable[Path], root: Path) -> None:
    """Import files below a root by their dotted names; what cannot be imported is reported when it is collected."""
    for file in files:
        name = ".".join(file.relative_to(root).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):
            import_module(name)
