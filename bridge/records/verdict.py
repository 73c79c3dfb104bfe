"""The gate's verdict: findings, and whether a number may be quoted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from bridge.records.base import Count, Record, RunId, Sha256, Text

Decision = Literal["evidence", "valid_not_citable", "rejected"]
Severity = Literal["reject", "not_citable", "note"]


class Finding(Record):
    """One rule's word on one thing.

    Attributes:
        code: stable, e.g. ``G4-DECODE-SUM``.
        severity: ``reject`` ends at rejected, ``not_citable`` caps the decision, ``note`` informs.
        report: path of the report concerned, or None for the run.
        where: JSON pointer or sample id, empty when it concerns the whole.
        message: what was got and what was expected.
        remedy: what to do.
    """

    code: Annotated[str, Field(pattern="^G[0-9](-[A-Z0-9]+)+$")]
    severity: Severity
    report: Text | None
    where: Text
    message: str
    remedy: str


class ClaimResult(Record):
    """A claim as the gate recomputed it.

    Attributes:
        interval: lower and upper bound at `confidence`, or None when the metric has none.
        n: independent units behind it.
        citable: whether it may be quoted.
        why: what stops it from being quoted, empty when nothing does.
        wording: the only sentence that may be used for it.
        role: ``primary``, ``secondary`` or ``informational``.
    """

    id: Text
    metric: Text
    role: Literal["primary", "secondary", "informational"]
    value: float | None
    interval: tuple[float, float] | None
    confidence: float | None
    unit: Text
    n: Count
    baseline: Text | None
    wording: Text
    citable: bool
    why: tuple[str, ...]
    detail: dict[str, Any]


class GateIdentity(Record):
    """Which gate judged: package version and sha256 over its sources, schemas and profiles."""

    version: Text
    digest: Sha256


class Verdict(Record):
    """`verdict.json`.

    Attributes:
        headline: one sentence: what may be quoted, or what stopped it.
        rules_run, rules_skipped: how many rules looked, and why the others did not.
        principal, signer, trust_class: who asked and whose code it was, as the host says; None outside a run.
    """

    schema_version: Literal[1] = 1
    id: RunId
    decision: Decision
    headline: str
    why: tuple[str, ...]
    profile: Text
    gate: GateIdentity
    findings: tuple[Finding, ...]
    claims: tuple[ClaimResult, ...]
    reports: tuple[Text, ...]
    rules_run: Count
    rules_skipped: dict[str, str]
    principal: Text | None = None
    signer: Text | None = None
    trust_class: Literal["host", "trusted", "untrusted"] | None = None
