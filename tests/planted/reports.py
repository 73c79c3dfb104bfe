"""The reports of trials: the one being written, and what the committed ones say of each fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.planted.tree import ROOT

FOLDER = ROOT / "docs" / "evidence"
NEWEST = FOLDER / "planted-faults.json"


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


def finders(folder: Path = FOLDER) -> dict[str, tuple[str, ...]]:
    """Return by fault the tests that found it, as the reports of a folder say."""
    found: dict[str, set[str]] = {}
    for file in sorted(folder.glob("planted-faults*.json")):
        for row in json.loads(file.read_text())["trials"]:
            if row["detected"]:
                found.setdefault(row["fault"], set()).add(row["by"])
    return {fault: tuple(sorted(tests)) for fault, tests in found.items()}
