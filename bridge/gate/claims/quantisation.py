"""The claims of a quantisation study: recall of every arm, error and bits from raw sums; bytes and times inform."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from bridge.gate.claims import Draft
from bridge.gate.claims.recall import answers
from bridge.gate.interface import Evidence, Report
from bridge.gate.sampled import Arm, arms_of, by_prompt
from bridge.gate.stats.binomial import paired_difference_lower, rate_lower
from bridge.gate.stats.ratio import paired_ratio


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
        if arm.role == "candidate" and arms.baseline is not None:
            yield from _cost(arm, arms.baseline)
        mine = [row for row in errors if row["arm"] == arm.name]
        if mine:
            yield from _error(arm.name, mine)


def _cost(arm: Arm, native: Arm) -> Iterator[Draft]:
    """Yield bytes and decode time of a quantised cache beside the native one: interleaved, so they only inform."""
    ours, theirs = (statistics.median_low(s["memory"]["kv_bytes"] for s in side.measured) for side in (arm, native))
    yield _informing(
        f"kv_bytes_{arm.name}",
        float(ours),
        "bytes",
        (arm, native),
        f"{arm.name} holds {ours / 1e6:.2f} MB after decoding, median, the native cache {theirs / 1e6:.2f} MB",
    )
    times = [_token_times(side) for side in (native, arm)]
    common = [prompt for prompt in times[0] if prompt in times[1]]
    if len(common) > 1:
        ratio = paired_ratio([times[0][p] for p in common], [times[1][p] for p in common])
        low, high = ratio.interval(0.95)
        shown = f"{ratio.value:.2f}x [{low:.2f}, {high:.2f}] 95 %, {ratio.n} prompts"
        shown = f"{arm.name}: decode time of a token, native over quantised {shown}"
        yield _informing(f"decode_speedup_{arm.name}", ratio.value, "ratio", (arm, native), shown)


def _token_times(arm: Arm) -> dict[str, float]:
    """Return decode seconds per token after the first by prompt: lossy answers may differ in length."""
    return {
        prompt: sum(s["stages"]["decode_s"] for s in samples) / sum(s["output_tokens"] - 1 for s in samples)
        for prompt, samples in by_prompt(arm.measured).items()
        if all(s["output_tokens"] > 1 and s["stages"]["decode_s"] > 0 for s in samples)
    }


def _informing(name: str, value: float, unit: str, arms: tuple[Arm, Arm], wording: str) -> Draft:
    ours, native = arms
    return Draft(
        id=name,
        metric=name,
        role="informational",
        value=value,
        unit=unit,
        n=len(ours.measured),
        baseline=native.name,
        arms=(ours.name, native.name),
        wording=wording,
    )


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
