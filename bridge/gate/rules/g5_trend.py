"""The baseline did not get slower or faster while it was measured.

A trend that is significant at 1 % and above 5 % end to end means that the machine changed; balance does not repair a
machine that throttles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Arms, arms_of
from bridge.gate.stats.trend import Trend, line


@report_rule(
    "G5-TREND",
    severity="not_citable",
    kinds=kinds.INTERLEAVED,
    remedy="Let the machine cool down and repeat; pool both.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    trend = baseline_trend(arms_of(report, evidence))
    if trend is None:
        return
    alpha, most = float(evidence.profile["trend_alpha"]), float(evidence.profile["trend_max"])
    if trend.p_value < alpha and abs(trend.slope) > math.log1p(most):
        yield Violation(
            f"the baseline's seconds per token changed by {math.expm1(trend.slope) * 100:+.1f} % end to end "
            f"(p = {trend.p_value:.1e})",
            "/arms",
        )


def baseline_trend(arms: Arms) -> Trend | None:
    """Return the line through log seconds per token of baseline and control, in running order from 0 to 1."""
    placed = sorted(
        (s["launch"], s["order_index"], s["stages"]["decode_s"] / (s["output_tokens"] - 1))
        for arm in arms.reference
        for s in arm.measured
        if s["output_tokens"] > 1 and s["stages"]["decode_s"] > 0
    )
    if len(placed) < 6:
        return None
    span = len(placed) - 1
    return line([index / span for index in range(len(placed))], [math.log(seconds) for *_, seconds in placed])
