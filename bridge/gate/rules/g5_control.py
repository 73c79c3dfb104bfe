"""The baseline measured twice agrees with itself: the 99 % interval of A over A' contains 1.

If identical work differs, so may anything else; the interval's half-width is the noise floor of the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.claims.speed import control_ratio
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G5-CONTROL",
    severity="not_citable",
    kinds=kinds.INTERLEAVED,
    remedy="Repeat on a quiet machine; pool both attempts.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence)
    for stage, claims in (("decode_s", ("decode_speedup",)), ("prefill_s", ("prefill_speedup", "total_speedup"))):
        ratio = control_ratio(arms, stage)
        if ratio is None:
            continue
        low, high = ratio.interval(float(evidence.profile["control_confidence"]))
        if not low <= 1.0 <= high:
            yield Violation(
                f"{stage}: baseline over control is {ratio.value:.3f} [{low:.3f}, {high:.3f}] 99 %, expected 1 inside",
                "/arms",
                claims=claims,
            )
