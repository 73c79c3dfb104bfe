"""The shapes of `data` in the `--json` document, one a command; their schemas are generated from here.

Tests validate what the commands print against them; a key is added, never renamed or removed, within ``kakeya-mac/1``.
`explain` prints a JobSpec, whose schema is with the records; `report` prints reports, whose schemas are with the gate.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import TypeAdapter

from bridge.client.document import parts, quoting
from bridge.client.document.comparison import CompareData, SweepData
from bridge.client.document.envelope import Part
from bridge.records.bus import Beacon
from bridge.records.verdict import ClaimResult, Verdict


class RunnerRow(Beacon):
    """One runner of `runners`: its beacon, and how old it is by the reader's clock."""

    age_s: float
    live: bool


class RuleRow(Part):
    """One rule of `gate rules`."""

    code: str
    layer: str
    premise: str
    severity: Literal["reject", "violation", "note"]
    kinds: list[str]
    message: str
    why: str
    remedy: str


class ExplainData(Part):
    """What `gate explain` prints of a word, of every word where `what` is None; `claims` are those of `run`."""

    what: str | None
    text: str
    run: str | None
    claims: list[ClaimResult]


class JudgedRow(Part):
    """One path of `gate check`."""

    path: str
    problems: list[str]
    verdict: Verdict


DATA: Final[dict[str, Any]] = {
    "ls": list[parts.RunRow],
    "runners": list[RunnerRow],
    "presets": list[parts.PresetRow],
    "wait": list[parts.WaitRow],
    "doctor": list[parts.DoctorRow],
    "gc": list[parts.RemovalRow],
    "verify": quoting.VerifyData,
    "quote": quoting.QuoteData,
    "compare": CompareData | SweepData,
    "config": parts.ConfigData,
    "open": parts.WrittenData,
    "init": parts.InitData,
    "version": parts.VersionData,
    "agent install": list[parts.AgentFileRow],
    "agent uninstall": list[parts.AgentFileRow],
    "gate rules": list[RuleRow],
    "gate explain": ExplainData,
    "gate check": list[JudgedRow],
    "run": parts.DryRunData | SweepData | quoting.StandingData,
}
"""What each command prints below `data`."""


def schemas() -> dict[str, dict[str, Any]]:
    """Return every JSON Schema by file name: the envelope's, and one a command's data."""
    from bridge.client.document.envelope import Envelope
    from bridge.client.document.event import RunEvent

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    files = {"envelope.schema.json": {**dialect, **Envelope.model_json_schema(mode="serialization")}}
    files["event.schema.json"] = {**dialect, **RunEvent.model_json_schema(mode="serialization")}
    for command, shape in DATA.items():
        name = f"data-{command.replace(' ', '-')}.schema.json"
        files[name] = {**dialect, **TypeAdapter(shape).json_schema(mode="serialization")}
    return files
