"""The report of trials: the one being written, and what the committed one says of each fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.planted.tree import ROOT

NEWEST = ROOT / "docs" / "evidence" / "planted-faults.json"


def load(file: Path) -> dict[str, Any]:
    """Return the report to go on with, a new one where none was begun; each of its rows names its commit."""
    if not file.exists():
        return {"command": "python -m tests.planted", "clean": {}, "trials": []}
    report: dict[str, Any] = json.loads(file.read_text())
    return report


def save(file: Path, report: dict[str, Any]) -> None:
    """Write a report, room by room."""
    report["trials"].sort(key=lambda row: (row["room"], row["fault"]))
    file.write_text(json.dumps(report, indent=1) + "\n")


def finders(file: Path = NEWEST) -> dict[str, tuple[str, ...]]:
    """Return by fault the test that found it, as a report says; the last row of a fault counts."""
    rows = {row["fault"]: row for row in load(file)["trials"]}
    return {fault: (row["by"],) for fault, row in rows.items() if row["detected"]}
