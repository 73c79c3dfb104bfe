"""JSON Schemas of the records, for readers in other languages."""

from __future__ import annotations

import json

from bridge import records

TOP_LEVEL = (
    "ArchiveHead",
    "ArchivedRun",
    "Beacon",
    "BusRecord",
    "Claim",
    "JobSpec",
    "LogHead",
    "Manifest",
    "Request",
    "RunRecord",
    "Verdict",
)


def generate() -> dict[str, str]:
    """Return one schema a record that is stored on its own."""
    return {f"bridge/records/schemas/{_file(name)}": _schema(name) for name in TOP_LEVEL}


def _file(name: str) -> str:
    words = "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
    return f"{words}.schema.json"


def _schema(name: str) -> str:
    schema = getattr(records, name).model_json_schema()
    return (
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2, sort_keys=True)
        + "\n"
    )
