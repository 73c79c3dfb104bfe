"""Checkpoints that survive being killed while they are written, and the training log beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` to `path` through a temporary file and a rename."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    torch.save(state, temporary)
    os.replace(temporary, path)  # noqa: PTH105 - the atomic call is the point


def load(path: Path) -> dict[str, Any] | None:
    """Return the state at `path`, or None when there is none."""
    import torch

    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


class CurveLog:
    """The training curve as JSON lines in the work folder; lines past the resumed step are dropped."""

    def __init__(self, path: Path, resume_step: int) -> None:
        """Open the log, keeping only what happened before `resume_step`."""
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            kept = [json.loads(line) for line in path.read_text().splitlines() if line]
            self.rows = [row for row in kept if row["step"] < resume_step]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def append(self, row: dict[str, Any]) -> None:
        """Add one row."""
        self.rows.append(row)
        with self.path.open("a") as handle:
            handle.write(json.dumps(row) + "\n")
