"""Needles in long contexts: its claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bridge.gate.claims import ClaimDraft, generation, latency, speed
from bridge.gate.facts.samples import Arm, arms_of
from bridge.gate.interface import Evidence, Report
from bridge.gate.stats.binomial import paired_difference_lower, preserved, rate_lower
from bridge.launches.figures import outward
from bridge.launches.wording import best_of


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield recall first, then what it cost."""
    arms = arms_of(report, evidence)
    judged = arms.candidate or arms.baseline
    if judged is not None:
        yield from _recall(judged, evidence)
    if arms.candidate is not None and arms.baseline is not None:
        yield from _preserved(arms.candidate, arms.baseline, evidence)
    for draft in speed.speedups(report, evidence):
        yield replace(draft, role="secondary")
    yield from generation.acceptance(report, evidence)
    yield from generation.identity(report, evidence)
    yield from generation.memory(report, evidence)
    yield from latency.latencies(report, evidence)


def _recall(arm: Arm, evidence: Evidence) -> Iterator[ClaimDraft]:
    found = generation.answers(arm)
    if not found:
        return
    right, n = sum(found.values()), len(found)
    confidence = float(evidence.profile["recall_confidence"])
    low = rate_lower(right, n, evidence.confidence(confidence))
    least, _ = outward(low * 100.0, 100.0, 1)
    shown = f"{right} of {n} needles found, at least {least:.1f} % ({confidence * 100:.0f} % one-sided)"
    shown += best_of(evidence.looks)
    yield ClaimDraft(
        id="recall",
        role="primary",
        value=right / n,
        interval=(low, 1.0),
        confidence=confidence,
        unit="share",
        n=n,
        arms=(arm.name,),
        wording=shown,
        detail={"right": right},
    )


def _preserved(ours: Arm, theirs: Arm, evidence: Evidence) -> Iterator[ClaimDraft]:
    gained, lost, n = generation.paired_answers(ours, theirs)
    if not n:
        return
    confidence, margin = (float(evidence.profile[name]) for name in ("recall_confidence", "recall_margin"))
    low = paired_difference_lower(gained, lost, n, evidence.confidence(confidence))
    least, _ = outward(low * 100.0, 100.0, 1)
    found = generation.native_right(ours, theirs)
    kept = preserved(found, n, low, margin)
    said = f"preserved within {margin * 100:.0f} points" if kept else "not shown to be preserved"
    yield ClaimDraft(
        id="recall_preserved",
        role="secondary",
        value=(gained - lost) / n,
        interval=(low, 1.0),
        confidence=confidence,
        unit="share",
        n=n,
        baseline=theirs.name,
        arms=(ours.name, theirs.name),
        wording=(
            f"recall {said}: difference at least {least:+.1f} points ({confidence * 100:.0f} % one-sided), "
            f"{n} paired needles, {found} of them found by {theirs.name}{best_of(evidence.looks)}"
        ),
        detail={"gained": gained, "lost": lost, "reference": found, "preserved": kept},
    )
