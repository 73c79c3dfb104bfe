"""The claims of a needle recall report: recall of the candidate, and whether it is preserved."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import Draft, generation, speed
from bridge.gate.interface import Evidence, Report
from bridge.gate.sampled import Arm, arms_of, by_prompt
from bridge.gate.stats.binomial import paired_difference_lower, rate_lower


def drafts(report: Report, evidence: Evidence) -> Iterator[Draft]:
    """Yield recall first, then what it cost."""
    arms = arms_of(report, evidence)
    confidence = float(evidence.profile["recall_confidence"])
    judged = arms.candidate or arms.baseline
    if judged is not None:
        yield from _recall(judged, confidence)
    if arms.candidate is not None and arms.baseline is not None:
        yield from _preserved(arms.candidate, arms.baseline, confidence, float(evidence.profile["recall_margin"]))
    for draft in speed.drafts(report, evidence):
        yield Draft(**{**draft.__dict__, "role": "secondary"})
    yield from generation.acceptance(report, evidence)
    yield from generation.identity(report, evidence)
    yield from generation.memory(report, evidence)


def answers(arm: Arm) -> dict[str, bool]:
    """Return by prompt whether every repeat was answered correctly, prompts with a known answer only."""
    return {
        prompt: all(bool(sample["correct"]) for sample in samples)
        for prompt, samples in by_prompt(arm.measured).items()
        if samples[0]["expected"] is not None
    }


def _recall(arm: Arm, confidence: float) -> Iterator[Draft]:
    found = answers(arm)
    if not found:
        return
    right, n = sum(found.values()), len(found)
    low = rate_lower(right, n, confidence)
    shown = f"{right} of {n} needles found, at least {low * 100:.1f} % ({confidence * 100:.0f} % one-sided)"
    yield Draft(
        id="recall",
        metric="recall",
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


def _preserved(ours: Arm, theirs: Arm, confidence: float, margin: float) -> Iterator[Draft]:
    first, second = answers(ours), answers(theirs)
    common = [prompt for prompt in first if prompt in second]
    if not common:
        return
    gained = sum(first[p] and not second[p] for p in common)
    lost = sum(second[p] and not first[p] for p in common)
    low = paired_difference_lower(gained, lost, len(common), confidence)
    kept = low > -margin
    said = f"preserved within {margin * 100:.0f} points" if kept else "not shown to be preserved"
    yield Draft(
        id="recall_preserved",
        metric="recall_preserved",
        role="secondary",
        value=(gained - lost) / len(common),
        interval=(low, 1.0),
        confidence=confidence,
        unit="share",
        n=len(common),
        baseline=theirs.name,
        arms=(ours.name, theirs.name),
        wording=f"recall {said}: difference at least {low * 100:+.1f} points, {len(common)} paired needles",
        detail={"gained": gained, "lost": lost, "preserved": kept},
    )
