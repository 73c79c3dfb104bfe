"""Request code, measured from outside: its claims and its rules.

Not decode time: who is asked can hold the first token back until the others are ready. The time from the ask to the
last token is the host's to take from beginning to end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from bridge.gate.claims import CONFIDENCE, ClaimDraft, generation
from bridge.gate.claims.speed import baseline_name, earlier_arms, noise_floor, stops_of, time_ratio
from bridge.gate.facts import peer_isolation
from bridge.gate.facts.launch_series import load_of
from bridge.gate.facts.samples import Arm, Arms, Sample, arms_of, by_prompt
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import REQUEST_CODE
from bridge.gate.rule import report_rule
from bridge.launches import wording
from bridge.launches.attempts import ShownInterval
from bridge.launches.estimate import Launch
from bridge.launches.sittings import pool


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield total time of native decoding over the peer's, then identity.

    A launch is one process of each side, and one unit: times of its prompts share a memory layout, threads and the
    minute. A single launch says nothing of another, so the interval of its prompts carries no claim.
    """
    arms = arms_of(report, evidence)
    earlier = earlier_arms(report, evidence)
    ratio = time_ratio(arms, "total_s", earlier)
    if ratio is None or arms.candidate is None:  # G4-STAGES says where a time is not positive
        return
    launches = [_launches(sitting) for sitting in (arms, *earlier)]
    pooled = pool(launches)
    looks = evidence.looks
    if pooled is None:
        bounds, n = ShownInterval(ratio.value, *ratio.interval(CONFIDENCE)), ratio.n
        logs: tuple[float, ...] = tuple(launch.log_ratio for launch in launches[0])
        sittings, units = 1, False
    else:
        bounds, n = ShownInterval.of(pooled, looks), pooled.launches
        logs = tuple(launch.log_ratio for sitting in launches for launch in sitting)
        sittings, units = pooled.sittings, pooled.unit == "sitting"
    words = wording.RatioWords(bounds, logs, sittings, load_of(evidence), units, looks)
    baseline = baseline_name(report)
    yield ClaimDraft(
        id="total_speedup",
        role="primary",
        value=bounds.value,
        interval=words.interval,
        confidence=None if words.interval is None else CONFIDENCE,
        unit="ratio",
        n=n,
        wording=f"{words.place}: request code, prompt to last token, {words.said}, vs {baseline}",
        baseline=baseline,
        arms=(arms.candidate.name, *(arm.name for arm in arms.reference)),
        stops={"ratio": "one launch of each side says nothing of another"} if pooled is None else stops_of(words),
        detail={
            "effect": words.effect,
            "over": "prompts" if pooled is None else "launches",
            "attempts": 1 + len(earlier),
            "looks": looks,
            "noise_floor": noise_floor(arms, evidence.profile, "total_s"),
            "summary": f"{words.number}, {words.place}, vs {baseline}",
        },
    )
    yield from generation.identity(report, evidence)


def _launches(arms: Arms) -> list[Launch]:
    """Return for each launch the logarithm of the baseline's total time over the peer's, on the prompts of both."""
    if arms.candidate is None:
        return []
    candidate, *references = (_totals(arm) for arm in (arms.candidate, *arms.reference))
    found = []
    for number, ours in sorted(candidate.items()):
        theirs = [launches.get(number, {}) for launches in references]
        common = [prompt for prompt in ours if all(prompt in side for side in theirs)]
        mine = math.fsum(ours[prompt] for prompt in common)
        native = math.fsum(side[prompt] for side in theirs for prompt in common) / len(theirs)
        if mine > 0.0 and native > 0.0:
            found.append(Launch(math.log(native / mine)))
    return found


def _totals(arm: Arm) -> dict[int, dict[str, float]]:
    """Return by launch the seconds from prompt to last token of each prompt, repeats averaged."""
    launches: dict[int, list[Sample]] = {}
    for sample in arm.measured:
        launches.setdefault(sample["launch"], []).append(sample)
    return {
        number: {
            prompt: sum(s["stages"]["total_s"] for s in samples) / len(samples)
            for prompt, samples in by_prompt(measured).items()
        }
        for number, measured in launches.items()
    }


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
