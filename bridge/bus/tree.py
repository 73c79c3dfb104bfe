"""A result tree as bytes: what a bus carries, a clone stores and a reader checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.errors import IntegrityError
from bridge.limits import RESULT_PATH_MAX_CHARS, RESULT_PATH_MAX_PARTS


@dataclass(frozen=True)
class Tree:
    """Files of a result tree by relative POSIX path, `manifest.json` included."""

    files: Mapping[str, bytes] = field(default_factory=dict)


def check_path(name: str) -> None:
    """Refuse a path that could lead outside of its folder or into a repository's own files.

    Raises:
        IntegrityError: absolute, empty, ``.``, ``..``, hidden, with a backslash or what cannot be printed, too long, or
            too deep.
    """
    parts = name.split("/")
    hidden = any(not part or part.startswith(".") for part in parts)
    bounded = len(name) <= RESULT_PATH_MAX_CHARS and len(parts) <= RESULT_PATH_MAX_PARTS
    if hidden or "\\" in name or not name.isprintable() or not bounded:
        raise IntegrityError(f"the result holds a file named {name[:120]!r}, which is not a plain relative path")
