"""Old files of a runner's state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridge.runner.host import StateFolder


def old_files(state: StateFolder, before_unix_s: float) -> Iterator[Path]:
    """Yield stored reports of earlier attempts that are older than a moment; the journal is never one of them."""
    for path in sorted(state.reports.glob("*.json.gz")):
        if path.stat().st_mtime < before_unix_s:
            yield path
