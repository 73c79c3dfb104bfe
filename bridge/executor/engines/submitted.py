"""What a runner notes of a run's job, so that a later process of it finds the job again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pydantic

from bridge.records.base import Count, Moment, Record, Text
from bridge.strictjson import StrictJsonError
from bridge.system.durable import write_atomically

SUBMITTED: Final = "submitted.json"


class Submitted(Record):
    """What is known of a run's job, beside its folder's other files.

    Attributes:
        count: how often the run was submitted; a later one never runs what an earlier one began.
        job: the engine's id; None while only its name is known.
        since: when it was submitted.
    """

    schema_version: int = 1
    name: Text
    count: Count
    job: Text | None = None
    since: Moment


def load_submitted(handle: Path) -> Submitted | None:
    """Return what is known of a run's job; None where nothing was submitted."""
    try:
        return Submitted.parse((handle / SUBMITTED).read_bytes())
    except (OSError, StrictJsonError, pydantic.ValidationError):
        return None


def save_submitted(handle: Path, submitted: Submitted) -> None:
    """Write it down, durably.

    Raises:
        OSError: the disk did not take it.
    """
    write_atomically(handle / SUBMITTED, submitted.canonical(), mode=0o600)
