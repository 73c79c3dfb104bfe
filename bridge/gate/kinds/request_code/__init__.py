"""Request code, measured from outside: its claims and its rules.

Not decode time: who is asked can hold the first token back until the others are ready. The time from the ask to the
last token is the host's to take from beginning to end.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft, generation
from bridge.gate.claims.speed import CONFIDENCE, baseline_name, control_ratio, earlier_arms, effect, paired_times
from bridge.gate.facts import peer_isolation
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import REQUEST_CODE
from bridge.gate.rule import report_rule


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield total time of native decoding over the peer's, then identity."""
    arms = arms_of(report, evidence)
    earlier = earlier_arms(report, evidence)
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
    yield ClaimDraft(
        id="total_speedup",
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


@report_rule(
    "G2-PEER",
    kinds=(REQUEST_CODE,),
    remedy="Use the preset k3-request-code on a Linux host whose policy names sandbox.uid and sandbox.peer_uid.",
)
def require_peer_isolation(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Code nobody trusts was measured from outside: out of reach, on prompts drawn afterwards, every token checked.

    Such code can time itself, print tokens it has never computed, or keep the machine busy while the baseline runs. So
    host code asks it over a pipe, as another user in another sandbox; prompts follow from a nonce the runner drew; all
    of its processes stand still while the host measures itself; and each answer is compared with native decoding.
    """
    if evidence.record is None or evidence.spec is None:
        return
    yield from peer_isolation.problems(report, evidence)
