"""Acceptance of drafts: its claims and its rules."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft, generation
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import ACCEPTANCE
from bridge.gate.rule import report_rule


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the claims."""
    yield from generation.acceptance(report, evidence, role="primary")
    yield from generation.identity(report, evidence)


@report_rule(
    "G4-POSITIONS", "outputs", kinds=(ACCEPTANCE,), remedy="Count positions from the steps of the measured samples."
)
def recount_positions(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Acceptance by position is what the steps give.

    `reached` counts the drafts whose earlier tokens were all accepted; anyone can count again.
    """
    said = (report.body.get("rows") or {}).get("by_position")
    candidate = arms_of(report, evidence).candidate
    if said is None or candidate is None:
        return
    reached, accepted = [0] * len(said), [0] * len(said)
    for sample in candidate.measured:
        for taken, offered in zip(sample["accepted_per_step"] or (), sample["drafted_per_step"] or (), strict=False):
            for place in range(min(taken + 1, offered, len(said))):
                reached[place] += 1
                accepted[place] += place < taken
    for place, row in enumerate(said):
        wanted = {"position": place + 1, "reached": reached[place], "accepted": accepted[place]}
        if row != wanted:
            yield Violation(f"got {row}, the steps give {wanted}", f"/rows/by_position/{place}")
