"""Identical work took about the same time, decode and prefill looked at separately.

The seed's oracle times for identical work ranged from 2.8 to 10.7 s; a mean over them means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of, stage_means
from bridge.gate.stats.spread import largest_ratio, robust_log_spread


@report_rule(
    "G5-SPREAD",
    severity="not_citable",
    kinds=kinds.INTERLEAVED,
    remedy="Repeat on a quiet machine; pool both attempts.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence)
    if arms.baseline is None or arms.control is None:
        return
    most_mad, most_ratio = float(evidence.profile["spread_mad_max"]), float(evidence.profile["spread_ratio_max"])
    for stage, claims in (("decode_s", ()), ("prefill_s", ("prefill_speedup", "total_speedup"))):
        first, second = stage_means(arms.baseline, stage), stage_means(arms.control, stage)
        common = [p for p in first if p in second and first[p] > 0 and second[p] > 0]
        if not common:
            continue
        pair = [first[p] for p in common], [second[p] for p in common]
        mad, ratio = robust_log_spread(*pair), largest_ratio(*pair)
        if mad > most_mad:
            yield Violation(
                f"{stage}: robust spread of log(A/A') is {mad:.3f}, at most {most_mad}", "/arms", claims=claims
            )
        if ratio > most_ratio:
            yield Violation(
                f"{stage}: identical work differs {ratio:.2f}-fold, at most {most_ratio}", "/arms", claims=claims
            )
