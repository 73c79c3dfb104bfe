"""JSON Schemas of the records, for readers in other languages."""

from __future__ import annotations

import json

from bridge.records.archive import ArchivedRun, ArchiveHead
from bridge.records.base import Record
from bridge.records.bus import Beacon, BusRecord
from bridge.records.claim import Claim
from bridge.records.derived import Derived
from bridge.records.jobspec import JobSpec
from bridge.records.logs import LogHead
from bridge.records.manifest import Manifest
from bridge.records.request import Request
from bridge.records.run import RunRecord
from bridge.records.verdict import Verdict

TOP_LEVEL: tuple[type[Record], ...] = (
    ArchiveHead,
    ArchivedRun,
    Beacon,
    BusRecord,
    Claim,
    Derived,
    JobSpec,
    LogHead,
    Manifest,
    Request,
    RunRecord,
    Verdict,
)


def generate() -> dict[str, str]:
    """Return one schema a record that is stored on its own."""
    return {f"bridge/records/schemas/{_file(record.__name__)}": _schema(record) for record in TOP_LEVEL}


def _file(name: str) -> str:
    words = "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
    return f"{words}.schema.json"


def _schema(record: type[Record]) -> str:
    schema = record.model_json_schema()
    return (
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2, sort_keys=True)
        + "\n"
    )
