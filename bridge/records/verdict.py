"""The gate's verdict: which premises hold, what each claim may be called, and what was found."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from bridge.records.base import Count, Record, RunId, Sha256, Text

Premise = Literal["bound", "code", "inputs", "outputs", "times", "ratio", "memory", "attempts", "machine"]
Decision = Literal["evidence", "valid", "recorded", "rejected"]
ClaimDecision = Literal["evidence", "valid", "nothing"]
Severity = Literal["reject", "violation", "note"]


class Finding(Record):
    """One rule's word on one thing.

    Attributes:
        code: stable, e.g. ``G4-DECODE-SUM``.
        severity: ``reject`` ends at rejected, ``violation`` takes the premise from the claims it concerns, ``note``
            informs.
        premise: what falls; None for a note.
        report: path of the report concerned, or None for the run.
        where: JSON pointer or sample id, empty when it concerns the whole.
        arms: whose claims it concerns, empty for those of every arm.
        message: what was got and what was expected.
        remedy: what to do.
    """

    code: Annotated[str, Field(pattern="^G[0-9](-[A-Z0-9]+)+$")]
    severity: Severity
    premise: Premise | None
    report: Text | None
    where: Text
    arms: tuple[Text, ...] = ()
    message: str
    remedy: str


class PremiseResult(Record):
    """One premise of one claim.

    Attributes:
        held: whether no rule violates it.
        seen_by: who saw it.
        rules: the rules that looked.
        why: what took it, ``CODE: message`` each; empty where it holds.
    """

    premise: Premise
    held: bool
    seen_by: Text
    rules: tuple[Text, ...]
    why: tuple[str, ...] = ()


class ClaimResult(Record):
    """A claim as the gate recomputed it.

    Attributes:
        kind: what sort of claim it is, which fixes its least premises.
        interval: lower and upper bound at `confidence`, or None when the metric has none.
        n: independent units behind it.
        decision: ``evidence`` may be quoted; ``valid`` lacks the premises named in `missing`; ``nothing`` lacks even
            what makes it this run's word.
        premises: what it rests on, held or not.
        wording: the only sentence that may be used for it.
        role: ``primary`` decides the class of its report.
    """

    id: Text
    metric: Text
    kind: Text
    role: Literal["primary", "secondary"]
    value: float | None
    interval: tuple[float, float] | None
    confidence: float | None
    unit: Text
    n: Count
    baseline: Text | None
    wording: Text
    decision: ClaimDecision
    premises: tuple[PremiseResult, ...]
    detail: dict[str, Any]

    @property
    def citable(self) -> bool:
        """Whether it may be quoted."""
        return self.decision == "evidence"

    @property
    def missing(self) -> tuple[Premise, ...]:
        """The premises that do not hold."""
        return tuple(result.premise for result in self.premises if not result.held)

    @property
    def why(self) -> tuple[str, ...]:
        """What stops it from being quoted, each reason with its premise and rule."""
        return tuple(
            f"{result.premise}: {reason}" for result in self.premises if not result.held for reason in result.why
        )


class GateIdentity(Record):
    """Which gate judged: package version and sha256 over its sources, schemas and profiles."""

    version: Text
    digest: Sha256


class Verdict(Record):
    """`verdict.json`.

    Attributes:
        decision: the class of the primary claim; ``recorded`` where it is nothing, ``rejected`` where the run is not
            bound to its files or a recomputation contradicts a report.
        headline: one sentence: what may be quoted, or what stopped it.
        rules_run, rules_skipped: how many rules looked, and why the others did not.
        principal, signer, trust_class: who asked and whose code it was, as the host says; None outside a run.
    """

    schema_version: Literal[2] = 2
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


class StoredVerdict(Record):
    """What any gate's `verdict.json` has in common: who judged, and what it said in its own words.

    Readers judge again with the gate they have; this is what they compare with.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())

    id: RunId
    decision: Literal["evidence", "valid", "recorded", "rejected", "valid_not_citable"]
    headline: str
    gate: GateIdentity
