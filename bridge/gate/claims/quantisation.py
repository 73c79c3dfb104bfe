"""The claims of a quantisation study: error and bits from raw sums, recall of every arm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.gate.claims import Draft
from bridge.gate.claims.recall import answers
from bridge.gate.interface import Evidence, Report
from bridge.gate.sampled import arms_of
from bridge.gate.stats.binomial import paired_difference_lower, rate_lower


def drafts(report: Report, evidence: Evidence) -> Iterator[Draft]:
    """Yield per quantised arm its error, its bits and its recall against the baseline's."""
    arms = arms_of(report, evidence)
    confidence, margin = float(evidence.profile["recall_confidence"]), float(evidence.profile["recall_margin"])
    errors: list[dict[str, Any]] = report.body["rows"]["errors"]
    baseline = {} if arms.baseline is None else answers(arms.baseline)
    for arm in arms.all:
        found = answers(arm)
        if found:
            right, n = sum(found.values()), len(found)
            low = rate_lower(right, n, confidence)
            wording = f"{arm.name}: {right} of {n} needles found, at least {low * 100:.1f} % (95 % one-sided)"
            if arm.role == "candidate" and baseline:
                common = [prompt for prompt in found if prompt in baseline]
                gained = sum(found[p] and not baseline[p] for p in common)
                lost = sum(baseline[p] and not found[p] for p in common)
                kept = paired_difference_lower(gained, lost, len(common), confidence) > -margin if common else False
                wording += f", {'preserved' if kept else 'not shown to be preserved'} within {margin * 100:.0f} points"
            yield Draft(
                id=f"recall_{arm.name}",
                metric=f"recall_{arm.name}",
                role="primary" if arm.role == "candidate" else "secondary",
                value=right / n,
                interval=(low, 1.0),
                confidence=confidence,
                unit="share",
                n=n,
                arms=(arm.name,),
                wording=wording,
            )
        mine = [row for row in errors if row["arm"] == arm.name]
        if mine:
            yield from _error(arm.name, mine)


def _error(name: str, rows: list[dict[str, Any]]) -> Iterator[Draft]:
    relative = sum(row["error_sq"] for row in rows) / sum(row["reference_sq"] for row in rows)
    count = sum(row["values"] for row in rows)
    bits = sum(row["bits"] * row["values"] for row in rows) / count
    yield Draft(
        id=f"error_{name}",
        metric=f"error_{name}",
        role="secondary",
        value=relative,
        unit="share",
        n=len(rows),
        arms=(name,),
        wording=f"{name}: relative squared error {relative:.2e} at {bits:.2f} bits per value",
        detail={"bits_per_value": bits},
    )
