"""The committed report of a study: one JSON line a case, appended when the case is done."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "evidence" / "studies"
_TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/kakeya-[a-z-]+-[a-z0-9_]{8}")
"""A study's own folder, which a report names as ``${WORK}``."""


class Report:
    """The cases of one study that are done."""

    def __init__(self, path: Path) -> None:
        """Open a report, whether or not its file is there.

        Args:
            path: the JSON Lines file.
        """
        self.path = path

    def entries(self) -> list[dict[str, Any]]:
        """Return what was appended, oldest first; a last line that was cut off by a kill is none."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def done(self, cases: Sequence[str]) -> list[str]:
        """Return which of these cases have an entry."""
        there = {entry["case"] for entry in self.entries()}
        return [case for case in cases if case in there]

    def append(self, entry: dict[str, Any]) -> None:
        """Add one case durably; a line that was cut off goes first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(_TEMPORARY.sub("${WORK}", json.dumps(entry, sort_keys=True)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def report_of(study: str, folder: Path = FOLDER) -> Report:
    """Return the report of a study."""
    return Report(folder / f"{study}.jsonl")
