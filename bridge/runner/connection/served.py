"""Which buses a runner has served, with their records: beside its key, as nobody can read it back from a bus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from bridge.bus.sides.runner import RunnerBus
from bridge.errors import BusMissingError
from bridge.records.bus import BusRecord
from bridge.system.durable import write_atomically

_FOLDER: Final = "served"


def has_served(identity: Path, bus_id: str) -> bool:
    """Return whether a runner of this identity served a bus before."""
    return _path(identity, bus_id).exists()


def note_served(identity: Path, route: str, record: BusRecord) -> None:
    """Write down that a runner of this identity serves a bus.

    Raises:
        OSError: the disk did not take it.
    """
    value = {"route": route, "record": record.canonical().decode()}
    path, data = _path(identity, record.bus_id), json.dumps(value).encode()
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def put_served_record_back(identity: Path, bus: RunnerBus) -> bool:
    """Write the record of the bus that this runner served at this route, which carries none now; return whether it did.

    Raises:
        InfrastructureError: the bus does not answer, or carries the root of a bus.
    """
    record = served_record(identity, bus.route)
    if record is None:
        return False
    try:
        bus.identity()
    except BusMissingError:
        bus.create(record)
    return True


def served_record(identity: Path, route: str) -> BusRecord | None:
    """Return the record of the one bus that this runner served at a route; None where it served none, or several."""
    records = []
    for path in sorted((identity / _FOLDER).glob("*.json")):
        try:
            value = json.loads(path.read_bytes())
            if value["route"] == route:
                records.append(BusRecord.parse(value["record"].encode()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return records[0] if len(records) == 1 else None


def _path(identity: Path, bus_id: str) -> Path:
    return identity / _FOLDER / f"{bus_id}.json"
