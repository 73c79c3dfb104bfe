"""Which gate judges: package version and sha256 over its sources, schemas and profiles.

Reads this package's own files and those of the statistics of launches, so that two installations with the same digest
judge alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from bridge.records.verdict import GateIdentity
from bridge.version import VERSION

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_SUFFIXES: Final = (".py", ".json", ".toml")


@cache
def identity() -> GateIdentity:
    """Return version and digest; a changed rule, schema or threshold changes the digest."""
    from importlib.resources import files

    digest = hashlib.sha256()
    sources = [*_sources(files("bridge.gate"), ""), *_sources(files("bridge.launches"), "../launches/")]
    for name, data in sorted(sources):
        digest.update(f"{len(name)}:{name}:{len(data)}:".encode())
        digest.update(data)
    return GateIdentity(version=VERSION, digest=digest.hexdigest())


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        name = prefix + item.name
        if item.is_dir() and item.name != "__pycache__":
            yield from _sources(item, name + "/")
        elif item.name.endswith(_SUFFIXES):
            yield name, item.read_bytes()
