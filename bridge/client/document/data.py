"""The shapes of `data` in the `--json` document, one a command; their schemas are generated from here.

Tests validate what the commands print against them; a key is added, never renamed or removed, within ``kakeya-mac/1``.
`explain` prints a JobSpec, whose schema is with the records; `report` prints reports, whose schemas are with the gate.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import RootModel

from bridge.client.document.comparison import CompareData, SweepData
from bridge.client.document.envelope import Part
from bridge.records.bus import Beacon
from bridge.records.verdict import ClaimResult, Verdict


class RunRow(Part):
    """One run of `ls`; None where it is not known without the result."""

    id: str
    short: str
    state: Literal["unknown", "queued", "claimed", "started", "judging", "published"]
    preset: str | None
    profile: str | None
    reason: str | None
    verdict: str | None
    runner: str | None
    created: str | None
    age_s: float
    fetched: bool
    took_s: float | None
    options: str | None
    asked_by: str | None
    metric: str | None


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


class RemovalRow(Part):
    """One thing that `gc` removed, or would."""

    kind: Literal["result", "request", "ref"]
    name: str


class CheckRow(Part):
    """One thing that `verify` looked at; ``ok`` where it did not fail, the level ``warn`` where it was not checked."""

    name: str
    ok: bool
    level: Literal["ok", "warn", "fail"]
    text: str


class StandingEnd(Part):
    """A ratio at one load; `load` is None where sittings do not differ by it. `next_sitting` is a prediction."""

    load: float | None
    value: float
    interval: tuple[float, float]
    next_sitting: tuple[float, float]


class SittingRow(Part):
    """One sitting of a standing claim, as the mean of its launches."""

    id: str
    attempt: int
    log_ratio: float
    load: float | None


class StandingRow(Part):
    """What a set of sittings says of one ratio; `why` is empty where it may be quoted."""

    claim: str
    quotation: Literal["quotable", "measured", "refused"]
    wording: str
    why: list[str]
    looks: int
    span_s: float | None
    ends: list[StandingEnd]
    sittings: list[SittingRow]


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


class RefusedRow(Part):
    """A claim that may not be quoted."""

    claim: str
    why: str


class QuoteData(Part):
    """What `quote` prints."""

    quotation: Literal["quotable", "measured", "refused"]
    lines: list[str]
    refused: list[RefusedRow]
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


class RunRows(RootModel[list[RunRow]]):
    """`ls`."""


class RunnerRows(RootModel[list[RunnerRow]]):
    """`runners`."""


class PresetRows(RootModel[list[PresetRow]]):
    """`presets`."""


class WaitRows(RootModel[list[WaitRow]]):
    """`wait` for several runs."""


class DoctorRows(RootModel[list[DoctorRow]]):
    """`doctor`."""


class RemovalRows(RootModel[list[RemovalRow]]):
    """`gc`."""


class AgentFileRows(RootModel[list[AgentFileRow]]):
    """`agent install` and `agent uninstall`."""


class RuleRows(RootModel[list[RuleRow]]):
    """`gate rules`."""


class JudgedRows(RootModel[list[JudgedRow]]):
    """`gate check`."""


class ComparedData(RootModel[CompareData | SweepData]):
    """`compare` of two runs, or of a sweep."""


class RunData(RootModel[DryRunData | SweepData | StandingData]):
    """`run --dry-run`, a sweep, or the sittings of a standing claim."""


DATA: Final[dict[str, Any]] = {
    "ls": RunRows,
    "runners": RunnerRows,
    "presets": PresetRows,
    "wait": WaitRows,
    "doctor": DoctorRows,
    "gc": RemovalRows,
    "verify": VerifyData,
    "quote": QuoteData,
    "compare": ComparedData,
    "config": ConfigData,
    "open": WrittenData,
    "init": InitData,
    "version": VersionData,
    "agent install": AgentFileRows,
    "agent uninstall": AgentFileRows,
    "gate rules": RuleRows,
    "gate explain": ExplainData,
    "gate check": JudgedRows,
    "run": RunData,
}


def schemas() -> dict[str, dict[str, Any]]:
    """Return every JSON Schema by file name: the envelope's, and one a command's data."""
    from bridge.client.document.envelope import Envelope
    from bridge.client.document.event import RunEvent

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    files = {"envelope.schema.json": {**dialect, **Envelope.model_json_schema(mode="serialization")}}
    files["event.schema.json"] = {**dialect, **RunEvent.model_json_schema(mode="serialization")}
    for command, model in DATA.items():
        name = f"data-{command.replace(' ', '-')}.schema.json"
        files[name] = {**dialect, **model.model_json_schema(mode="serialization")}
    return files
