"""A result tree as bytes: what a bus carries, a clone stores and a reader checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tree:
    """Files of a result tree by relative POSIX path, `manifest.json` included."""

    files: Mapping[str, bytes] = field(default_factory=dict)
