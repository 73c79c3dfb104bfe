"""The shapes of `data` in the `--json` document, one a command; their schemas are generated from here.

Tests validate what the commands print against them; a key is added, never renamed or removed, within ``kakeya-mac/1``.
`explain` prints a JobSpec, whose schema is with the records; `report` prints reports, whose schemas are with the gate.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import TypeAdapter

from bridge.client.document.comparison import CompareData, SweepData
from bridge.client.document.envelope import Part
from bridge.client.document.parts import RemovalRow, RunRow
from bridge.client.document.quoting import QuoteData, StandingRow
from bridge.records.bus import Beacon
from bridge.records.verdict import ClaimResult, Verdict


class RunnerRow(Beacon):
    """One runner of `runners`: its beacon, and how old it is by the reader's clock."""

    age_s: float
    live: bool


class PresetRow(Part):
    """One preset of `presets`.

    Attributes:
        name: what it is asked for by; ``NAME@RUNNER`` where hosts differ under one name.
        offered: whether a live runner offers it, or this machine has its packages where the bus is its own.
        definition: the whole of it where its host alone has it; None for an installed one.
    """

    name: str
    status: Literal["ready", "planned"]
    description: str
    code: Literal["host", "request"]
    offered: bool
    definition: dict[str, Any] | None


class WaitRow(Part):
    """One run of `wait` for several."""

    id: str
    reason: str
    exit_code: int


class DoctorRow(Part):
    """One finding of `doctor`."""

    check: str
    level: Literal["ok", "warn", "fail"]
    text: str
    remedy: str | None


class CheckRow(Part):
    """One thing that `verify` looked at; ``ok`` where it did not fail, the level ``warn`` where it was not checked."""

    name: str
    ok: bool
    level: Literal["ok", "warn", "fail"]
    text: str


class StandingData(Part):
    """What `run --profile standing` prints; `set` is None where nothing was sent."""

    set: str | None
    preset: str
    runs: list[str]
    standing: list[StandingRow]


class VerifyData(Part):
    """What `verify` found."""

    source: str
    id: str | None
    ok: bool
    signed: bool
    answer: Literal["verified", "first use", "unsigned", "untrusted", "altered"]
    quotation: Literal["quotable", "measured", "refused"] | None
    checks: list[CheckRow]
    standing: list[StandingRow]


class PlaceRow(Part):
    """One place where a bus may be configured."""

    source: str
    where: str
    used: bool


class ConfigData(Part):
    """What `config` prints."""

    route: str | None
    bus_id: str | None
    embedded: bool
    source: str
    branch_template: str | None
    runs: str
    looked_at: list[PlaceRow]


class InitData(Part):
    """What `init` wrote; principal, signer and public_key are None while requests go unsigned."""

    path: str
    route: str
    bus_id: str
    principal: str | None
    signer: str | None
    public_key: str | None
    owner_key: str | None
    first_use: bool


class VersionData(Part):
    """What `version` prints."""

    kakeya: str
    gate: str
    gate_digest: str
    envelope: str
    request: int


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
    """What `gate explain` prints of a rule or of a claim; `claims` are those of `run`."""

    what: str
    text: str
    run: str | None
    claims: list[ClaimResult]


class JudgedRow(Part):
    """One path of `gate check`."""

    path: str
    problems: list[str]
    verdict: Verdict


class DryRunData(Part):
    """What `run --dry-run` would send."""

    request: dict[str, Any]
    live: str | None


class WrittenData(Part):
    """What `open --html` or `open FILE` wrote: a page, or the folder of a result that was packed."""

    path: str


class AgentFileRow(Part):
    """A file of an agent's program that `agent install` or `agent uninstall` looked at."""

    path: str
    change: Literal["unchanged", "written", "removed"]


DATA: Final[dict[str, Any]] = {
    "ls": list[RunRow],
    "runners": list[RunnerRow],
    "presets": list[PresetRow],
    "wait": list[WaitRow],
    "doctor": list[DoctorRow],
    "gc": list[RemovalRow],
    "verify": VerifyData,
    "quote": QuoteData,
    "compare": CompareData | SweepData,
    "config": ConfigData,
    "open": WrittenData,
    "init": InitData,
    "version": VersionData,
    "agent install": list[AgentFileRow],
    "agent uninstall": list[AgentFileRow],
    "gate rules": list[RuleRow],
    "gate explain": ExplainData,
    "gate check": list[JudgedRow],
    "run": DryRunData | SweepData | StandingData,
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
