"""What a report says, recomputed from its raw rows by `recompute` of its kind.

Knows which findings take which premise from which claim, not what the findings mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import Any, Final, Literal

from pydantic import ValidationError

from bridge.gate.declared.kind import Kind, Metric, kinds
from bridge.gate.declared.premises import COMPUTED, PREMISES, VALID
from bridge.gate.declared.workload import kind_of
from bridge.gate.interface import Evidence, Report
from bridge.gate.rule import RegisteredRule
from bridge.gate.stats.ratio import Ratio
from bridge.records.verdict import ClaimDecision, ClaimResult, Finding, Premise, PremiseResult
from bridge.records.workload import KIND as WORKLOAD
from bridge.records.workload import WorkloadDefinition

Role = Literal["primary", "secondary"]
CONFIDENCE: Final = 0.95
CLAIMS_MAX_COUNT: Final = 500
"""Of one report; a result has room for no verdict that says of a hundred thousand rows what each is worth."""
WHY_MAX_CHARS: Final = 1 << 20
"""Of all claims together: each repeats what was found. Beyond it each premise has the beginning of its first reason."""
_WHY_SHORT_CHARS: Final = 200


@dataclass(frozen=True)
class ClaimDraft:
    """A recomputed claim before findings are held against it.

    Attributes:
        metric_name: what its metric is called where that is not its id.
        arms: candidate first, then baseline.
        stops: premises it lacks by itself, each with the reason.
    """

    id: str
    role: Role
    value: float | None
    unit: str
    n: int
    wording: str
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    baseline: str | None = None
    metric_name: str | None = None
    arms: tuple[str, ...] = ()
    stops: Mapping[Premise, str] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """What its metric is called."""
        return self.metric_name or self.id

    @classmethod
    def of_ratio(cls, name: str, role: Role, ratio: Ratio, wording: str) -> ClaimDraft:
        """Return the claim of a ratio with its interval."""
        return cls(
            id=name,
            role=role,
            value=ratio.value,
            interval=ratio.interval(CONFIDENCE),
            confidence=CONFIDENCE,
            unit="ratio",
            n=ratio.n,
            wording=wording,
        )


def claim_drafts(report: Report, evidence: Evidence) -> tuple[ClaimDraft, ...]:
    """Return the claims of a well-formed report, recomputed once.

    Raises:
        ValueError: one of them fits into no verdict: a number that is not finite, a text with a control character or
            without end, a metric that its kind does not declare; or all of them do not. What else is wrong with a
            report may raise anything; who asks is a rule, or takes none.
    """
    place = "bridge.gate.claims.workload" if report.kind == WORKLOAD else f"bridge.gate.kinds.{report.kind}"
    recompute = import_module(place).recompute
    kind = kind_declared(report, evidence)
    return evidence.derived(("drafts", report.path), lambda: _all_that_fit(recompute(report, evidence), kind))


def _all_that_fit(drafts: Iterable[ClaimDraft], kind: Kind) -> tuple[ClaimDraft, ...]:
    """Return drafts as they are.

    Raises:
        ValueError: a verdict cannot hold one of them, or so many.
    """
    fitting = tuple(_that_fits(draft, kind) for draft in islice(drafts, CLAIMS_MAX_COUNT + 1))
    if len(fitting) > CLAIMS_MAX_COUNT:
        raise ValueError(f"more than {CLAIMS_MAX_COUNT} claims follow from its rows, which no verdict can hold")
    return fitting


def _that_fits(draft: ClaimDraft, kind: Kind) -> ClaimDraft:
    """Return a draft as it is.

    Raises:
        ValueError: a verdict cannot hold it, or nothing says what it rests on.
    """
    try:
        kind.metric(draft.id)
    except KeyError:
        raise ValueError(f"{draft.id!r} is no metric of the kind {kind.name}") from None
    try:
        _of_draft(draft).canonical()
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}, got {first['input']!r:.80}"
        raise ValueError(f"a claim that no verdict can hold: {said}") from error
    return draft


def _of_draft(draft: ClaimDraft) -> ClaimResult:
    """Return what a draft says before anything is known of its premises."""
    return ClaimResult(
        id=draft.id,
        metric=draft.metric,
        kind="",
        role=draft.role,
        value=draft.value,
        interval=draft.interval,
        confidence=draft.confidence,
        unit=draft.unit,
        n=draft.n,
        baseline=draft.baseline,
        wording=draft.wording,
        decision="nothing",
        premises=(),
        detail=draft.detail,
    )


def kind_declared(report: Report, evidence: Evidence) -> Kind:
    """Return what is declared of a report: of an owner's own program, what the job spec says.

    Raises:
        KeyError: nothing is.
    """
    if report.kind == WORKLOAD and evidence.spec is not None and evidence.spec.workload is not None:
        return kind_of(evidence.spec.workload)
    return kinds()[str(report.kind)]


@dataclass(frozen=True)
class Held:
    """A finding, and the claims it is held against where those are not all that need its premise."""

    finding: Finding
    claims: tuple[str, ...]

    def concerns(self, draft: ClaimDraft, report: Report) -> bool:
        """Whether it takes its premise from this claim."""
        finding = self.finding
        return (
            finding.severity != "note"
            and finding.report in {None, report.path}
            and (not self.claims or draft.id in self.claims)
            and (not finding.arms or not draft.arms or not set(draft.arms).isdisjoint(finding.arms))
        )


def results(evidence: Evidence, found: Sequence[Held], looked: Sequence[RegisteredRule]) -> tuple[ClaimResult, ...]:
    """Return every claim with the premises it rests on.

    Args:
        evidence: its well-formed reports are what is claimed of.
        found: every finding.
        looked: the rules that had something to look at.
    """
    wanted = evidence.spec.primary_claim if evidence.spec is not None else None
    out: list[ClaimResult] = []
    akin: set[str] = set()
    for report in evidence.reports:
        if report.value is None:
            continue
        try:
            recomputed = claim_drafts(report, evidence)
        except Exception:  # noqa: BLE001, S112  the G4-CLAIM rule has already said that it cannot be recomputed
            continue
        for draft in recomputed:
            fallen = _fallen(draft, report, found)
            out.append(_result(draft, report, evidence, fallen, looked))
        akin |= _akin(wanted, recomputed, kind_declared(report, evidence))
    out = _briefly(out)
    if wanted is None:
        return tuple(out)
    if any(claim.id == wanted for claim in out):
        return tuple(claim.evolve(role="primary" if claim.id == wanted else "secondary") for claim in out)
    return tuple(claim if claim.id in akin else claim.evolve(role="secondary") for claim in out)


def _briefly(claims: list[ClaimResult]) -> list[ClaimResult]:
    """Return claims with as much of their reasons as a verdict has room for."""
    if sum(len(reason) for claim in claims for result in claim.premises for reason in result.why) <= WHY_MAX_CHARS:
        return claims
    return [claim.evolve(premises=tuple(map(_brief, claim.premises))) for claim in claims]


def _brief(result: PremiseResult) -> PremiseResult:
    """Return a premise with the beginning of the first reason that took it."""
    if not result.why:
        return result
    more = f", and {len(result.why) - 1} more" if len(result.why) > 1 else ""
    return result.evolve(why=(f"{result.why[0][:_WHY_SHORT_CHARS]}{more}",))


def _akin(wanted: str | None, drafts: Sequence[ClaimDraft], kind: Kind) -> set[str]:
    """Return the claims of the metric that a preset fixed beforehand: a parameter may name other arms than its own."""
    try:
        pattern = None if wanted is None else kind.metric(wanted).pattern
    except KeyError:
        return set()
    return {draft.id for draft in drafts if kind.metric(draft.id).pattern == pattern}


def _fallen(draft: ClaimDraft, report: Report, found: Sequence[Held]) -> dict[Premise, list[str]]:
    """Return what takes each premise from a claim, as `CODE: message`."""
    fallen: dict[Premise, list[str]] = {}
    for one in found:
        if one.finding.premise is not None and one.concerns(draft, report):
            fallen.setdefault(one.finding.premise, []).append(f"{one.finding.code}: {one.finding.message}")
    for premise, reason in draft.stops.items():
        fallen.setdefault(premise, []).append(reason)
    return fallen


def _result(
    draft: ClaimDraft,
    report: Report,
    evidence: Evidence,
    fallen: Mapping[Premise, list[str]],
    looked: Sequence[RegisteredRule],
) -> ClaimResult:
    metric = kind_declared(report, evidence).metric(draft.id)
    missing = [premise for premise in metric.needs if premise in fallen]
    decision: ClaimDecision = "evidence" if not missing else "valid" if VALID.isdisjoint(fallen) else "nothing"
    return _of_draft(draft).evolve(
        kind=metric.kind,
        wording=_worded(draft, metric, evidence, fallen),
        decision=decision,
        premises=tuple(
            PremiseResult(
                premise=premise,
                held=premise not in fallen,
                seen_by=_seen_by(premise, evidence),
                rules=tuple(
                    rule.code for rule in looked if rule.premise == premise and rule.looks_at(str(report.kind))
                ),
                why=tuple(dict.fromkeys(fallen.get(premise, ()))),
            )
            for premise in metric.needs
        ),
        detail=_detail(draft, metric, evidence, fallen),
    )


def _seen_by(premise: Premise, evidence: Evidence) -> str:
    who = PREMISES[premise].seen_by
    if who == COMPUTED:
        return who
    if evidence.record is None:
        return "nobody"
    return f"{who}, unattested" if evidence.authority == "unattested" else who


def _whose(
    draft: ClaimDraft, metric: Metric, definition: WorkloadDefinition, fallen: Mapping[Premise, list[str]]
) -> str:
    """Return whose word a number of an owner's own program is."""
    if definition.servers is not None:
        return "seen by the runner"
    confirmed = "outputs" in metric.needs and "outputs" not in fallen
    said = "recomputed from what" if confirmed else "reported by"
    over = f" over {draft.n} seeds" if draft.detail.get("over") == "seeds" else ""
    over += f" of {draft.detail['runs']} runs" if draft.detail.get("runs", 1) > 1 else ""
    return f"{said} {definition.label}{' kept' if confirmed else ''}{over}"


def _detail(
    draft: ClaimDraft, metric: Metric, evidence: Evidence, fallen: Mapping[Premise, list[str]]
) -> dict[str, Any]:
    """Return what a claim says of itself; the short line of an owner's own program names whose word it is, too."""
    if metric.kind != "reported" or evidence.spec is None or evidence.spec.workload is None:
        return draft.detail
    whose = _whose(draft, metric, evidence.spec.workload, fallen)
    return {**draft.detail, "summary": f"{draft.detail['summary']}, {whose}"}


def _worded(draft: ClaimDraft, metric: Metric, evidence: Evidence, fallen: Mapping[Premise, list[str]]) -> str:
    """Return the wording of a claim; a number that nobody but its program knows says whose word it is."""
    wording = draft.wording
    if metric.kind != "reported":
        return wording
    if evidence.spec is not None and evidence.spec.workload is not None:
        return f"{wording}, {_whose(draft, metric, evidence.spec.workload, fallen)}"
    if evidence.spec is None:
        return f"{wording}, reported by its program"
    # A command that computes tokens again says nothing of what else a report states: such a metric needs no outputs.
    if "outputs" in metric.needs and "outputs" not in fallen:
        return f"{wording}, recomputed"
    return f"{wording}, reported by {'the host' if evidence.spec.code == 'host' else 'the request'}'s program"
