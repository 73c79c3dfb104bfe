"""What a report says, recomputed from its raw rows by `recompute` of its kind.

Knows which findings stop which claim, not what the findings mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Literal

from bridge.gate.interface import Evidence, Report
from bridge.gate.stats.ratio import Ratio
from bridge.records import ClaimResult, Finding

Role = Literal["primary", "secondary", "informational"]
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class ClaimDraft:
    """A recomputed claim before findings are held against it.

    Attributes:
        stated_as: the metric under which a report states it, where that is not its id.
        arms: candidate first, then baseline; as a report's own claim must name them.
        stated: what a report must state under this metric where that is not `value`: the plain number of this run,
            before loops were left out and earlier attempts pooled.
        stops: what stops it by itself, e.g. an interval that contains no effect.
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
    stated_as: str | None = None
    stated: float | None = None
    arms: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """Name under which a report states the claim."""
        return self.stated_as or self.id

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
    """Return the claims of a well-formed report, recomputed once."""
    recompute = import_module(f"bridge.gate.kinds.{report.kind}").recompute
    return evidence.derived(("drafts", report.path), lambda: tuple(recompute(report, evidence)))


def results(evidence: Evidence, scopes: Iterable[tuple[Finding, tuple[str, ...]]]) -> tuple[ClaimResult, ...]:
    """Return every claim with what stops it from being quoted."""
    blocking = [(finding, only) for finding, only in scopes if finding.severity == "not_citable"]
    cap = evidence.profile["citable_at_most"] != "evidence"
    wanted = evidence.spec.primary_claim if evidence.spec is not None else None
    out: list[ClaimResult] = []
    for report in evidence.reports:
        if report.value is None:
            continue
        try:
            recomputed = claim_drafts(report, evidence)
        except Exception:  # noqa: BLE001, S112  the G4-CLAIM rule has already said that it cannot be recomputed
            continue
        for draft in recomputed:
            why = [
                f"{finding.code}: {finding.message}"
                for finding, only in blocking
                if finding.report in {None, report.path} and (not only or draft.id in only)
            ]
            if cap:
                why.append(
                    f"profile {evidence.profile['name']}: never better than {evidence.profile['citable_at_most']}"
                )
            out.append(_result(draft, wanted, (*dict.fromkeys(why), *draft.stops)))
    return tuple(out)


def _result(draft: ClaimDraft, wanted: str | None, why: tuple[str, ...]) -> ClaimResult:
    role = draft.role
    if wanted is not None and role != "informational":
        role = "primary" if draft.id == wanted else "secondary"
    if role == "informational":
        why = (*why, "informational: not a claim of this preset")
    return ClaimResult(
        id=draft.id,
        metric=draft.metric,
        role=role,
        value=draft.value,
        interval=draft.interval,
        confidence=draft.confidence,
        unit=draft.unit,
        n=draft.n,
        baseline=draft.baseline,
        wording=draft.wording,
        citable=not why,
        why=why,
        detail=draft.detail,
    )
