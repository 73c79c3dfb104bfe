"""A result tree as bytes: what a bus carries, a clone stores and a reader checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.errors import IntegrityError


@dataclass(frozen=True)
class Tree:
    """Files of a result tree by relative POSIX path, `manifest.json` included."""

    files: Mapping[str, bytes] = field(default_factory=dict)


def check_path(name: str) -> None:
    """Refuse a path that could lead outside of its folder or into a repository's own files.

    Raises:
        IntegrityError: absolute, empty, ``.``, ``..``, hidden, or with a backslash or NUL.
    """
    parts = name.split("/")
    if not name or any(part in {"", ".", ".."} or part.startswith(".") for part in parts) or {"\\", "\0"} & set(name):
        raise IntegrityError(f"the result holds a file named {name[:120]!r}, which is not a plain relative path")
