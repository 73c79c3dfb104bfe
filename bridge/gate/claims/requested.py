"""The claims of request code that was measured from outside: total time, and whose tokens.

Not decode time: who is asked can hold the first token back until the others are ready. The time from the ask to the
last token is the host's to take from beginning to end.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import Draft, generation
from bridge.gate.claims.speed import CONFIDENCE, baseline_name, control_ratio, effect, paired_times
from bridge.gate.interface import Evidence, Report
from bridge.gate.sampled import arms_of


def drafts(report: Report, evidence: Evidence) -> Iterator[Draft]:
    """Yield total time of native decoding over the peer's, then identity."""
    arms = arms_of(report, evidence)
    earlier = tuple(
        arms_of(other, evidence)
        for reports in evidence.earlier.values()
        for other in reports
        if other.value is not None and other.path == report.path and other.kind == report.kind
    )
    pooled, alone = paired_times(arms, "total_s", earlier), paired_times(arms, "total_s")
    if pooled is None or alone is None or arms.candidate is None:
        return
    try:
        ratio, stated = pooled.ratio(), alone.ratio().value
    except ValueError:  # times that are not positive; G4-STAGES says so
        return
    low, high = ratio.interval(CONFIDENCE)
    said, baseline = effect(ratio, evidence.profile), baseline_name(arms)
    shown = f"{ratio.value:.2f}x [{low:.2f}, {high:.2f}] 95 %, {ratio.n} prompts"
    shown += f", {1 + len(earlier)} attempts pooled" if earlier else ""
    control = control_ratio(arms, "total_s")
    floor = None if control is None else control.half_width(float(evidence.profile["control_confidence"]))
    yield Draft(
        id="total_speedup",
        metric="total_speedup",
        role="primary",
        value=ratio.value,
        stated=stated,
        interval=(low, high),
        confidence=CONFIDENCE,
        unit="ratio",
        n=ratio.n,
        baseline=baseline,
        arms=(arms.candidate.name, *(arm.name for arm in arms.reference)),
        wording=f"request code, prompt to last token, {said}: {shown}, vs {baseline}",
        detail={
            "effect": said,
            "attempts": 1 + len(earlier),
            "noise_floor": floor,
            "summary": f"{shown}, vs {baseline}",
        },
    )
    yield from generation.identity(report, evidence)
