"""Request code, measured from outside: its claims and its rules.

Not decode time: who is asked can hold the first token back until the others are ready. The time from the ask to the
last token is the host's to take from beginning to end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bridge.gate.claims import ClaimDraft, generation
from bridge.gate.claims.speed import baseline_name, earlier_arms, effect, noise_floor, shown_ratio, time_ratio
from bridge.gate.facts import peer_isolation
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import REQUEST_CODE
from bridge.gate.rule import report_rule


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield total time of native decoding over the peer's, then identity."""
    arms = arms_of(report, evidence)
    earlier = earlier_arms(report, evidence)
    ratio, stated = time_ratio(arms, "total_s", earlier), time_ratio(arms, "total_s")
    if ratio is None or stated is None or arms.candidate is None:  # G4-STAGES says where a time is not positive
        return
    said, baseline = effect(ratio), baseline_name(arms)
    shown = shown_ratio(ratio)
    shown += f", {1 + len(earlier)} attempts pooled" if earlier else ""
    yield replace(
        ClaimDraft.of_ratio(
            "total_speedup", "primary", ratio, f"request code, prompt to last token, {said}: {shown}, vs {baseline}"
        ),
        stated=stated.value,
        baseline=baseline,
        arms=(arms.candidate.name, *(arm.name for arm in arms.reference)),
        detail={
            "effect": said,
            "attempts": 1 + len(earlier),
            "noise_floor": noise_floor(arms, evidence.profile, "total_s"),
            "summary": f"{shown}, vs {baseline}",
        },
    )
    yield from generation.identity(report, evidence)


@report_rule(
    "G2-PEER",
    "code",
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
