"""What a running runner knows of its queue, for its owner's eyes: a small file that each change replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pydantic

from bridge.errors import BusMovedError
from bridge.records.base import Moment, Record, RunId, Text
from bridge.strictjson import StrictJsonError
from bridge.system.durable import write_atomically

_MAX_BYTES = 1 << 20
SHOWN_MAX_COUNT = 200


class Waiting(Record):
    """One request that is not taken yet.

    Attributes:
        why: why not, in words; empty where nobody has looked at it yet.
    """

    id: RunId
    why: Text = ""


class QueueView(Record):
    """The queue as it was seen last.

    Attributes:
        time: when.
        requests: oldest first, the first two hundred.
        more: how many others wait.
        not_taking: why the runner takes nothing because of its policy file; empty where it does not.
        moved: that the bus is at another remote, and what this host does about it; empty where it is here.
    """

    schema_version: Literal[1] = 1
    time: Moment
    requests: tuple[Waiting, ...]
    more: int = 0
    not_taking: Text = ""
    moved: Text = ""


def write_queue(path: Path, view: QueueView) -> None:
    """Replace the file; what a crash takes away, the next step writes again.

    Raises:
        OSError: the disk did not take it.
    """
    write_atomically(path, view.model_dump_json().encode(), durable=False)


def write_moved(path: Path, error: BusMovedError, moment: str) -> None:
    """Say beside the queue as it was seen last that the bus is at another remote, where what waits is taken.

    Raises:
        OSError: the disk did not take it.
    """
    seen = read_queue(path) or QueueView(time=moment, requests=())
    waiting = tuple(Waiting(id=one.id, why=f"it waits where the bus is: {error.moved_to}") for one in seen.requests)
    write_queue(path, seen.evolve(time=moment, requests=waiting, not_taking="", moved=error.line))


def read_queue(path: Path) -> QueueView | None:
    """Return the queue as it was seen last, None where no runner has written it."""
    try:
        return QueueView.parse(path.read_bytes(), max_bytes=_MAX_BYTES)
    except (OSError, StrictJsonError, pydantic.ValidationError):
        return None
