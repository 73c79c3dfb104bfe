"""A cost is repeated often enough and its repeats agree.

A ratio of two noisy medians is a noisy number; the spread of the repeats decides whether it may be quoted. No clock
gives every repeat the same time, and no machine computes a forward in less than its multiplications take.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.rules.g5_plausible import forward_rate, most_flops


@report_rule(
    "G5-COSTS",
    severity="not_citable",
    kinds=(kinds.VERIFY_COST,),
    remedy="Raise --repeats; measure on a quiet machine.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    least, most = int(evidence.profile["cost_repeats_min"]), float(evidence.profile["cost_spread_mad_max"])
    for index, row in enumerate(report.body["rows"]["verify"]):
        seconds, where = row["seconds"], f"/rows/verify/{index}"
        if len(seconds) < least:
            yield Violation(f"{len(seconds)} repeats, at least {least} are asked", where)
        middle = statistics.median(seconds)
        spread = 1.4826 * statistics.median(abs(math.log(value / middle)) for value in seconds)
        if spread > most:
            yield Violation(f"robust spread of the repeats is {spread:.3f}, at most {most}", where)
        low, high = min(seconds), max(seconds)
        if high / low > float(evidence.profile["cost_ratio_max"]):
            yield Violation(f"identical work took {low:.2e} to {high:.2e} s", where)
        if len(seconds) > 1 and low == high:
            yield Violation(f"{len(seconds)} repeats took {low!r} s each: no clock says that", where, severity="reject")
        rate = forward_rate(report, evidence, row["rows"], low)
        if rate > most_flops(report, evidence):
            yield Violation(f"a forward in {low:.2e} s is beyond this machine", where, severity="reject")
