"""Quantised caches: its claims and its rules."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from bridge.gate.claims import ClaimDraft
from bridge.gate.claims.generation import answers, native_right, paired_answers
from bridge.gate.claims.speed import shown_ratio
from bridge.gate.declared.row_views import StatedError
from bridge.gate.facts.model_sizes import shape_of
from bridge.gate.facts.samples import Arm, Arms, arms_of, by_prompt
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import KV_QUANTISATION
from bridge.gate.rule import report_rule
from bridge.gate.stats.binomial import paired_difference_lower, preserved, rate_lower
from bridge.gate.stats.ratio import paired_ratio
from bridge.launches.figures import outward
from bridge.launches.wording import best_of
from bridge.records.run import CacheShape

_CODES = re.compile(r"(?:affine|d4x|e8x)([0-9]{1,2})(/[0-9]+)?")
_OFFSET_SQ_MAX: Final = 1e6  # values may lie this far, in squares of their range, from zero: their error looks smaller


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield per quantised arm its error, its bits and its recall against the baseline's."""
    arms = arms_of(report, evidence)
    confidence, margin = float(evidence.profile["recall_confidence"]), float(evidence.profile["recall_margin"])
    errors = report.body["rows"]["errors"]
    for arm in arms.all:
        found = answers(arm)
        if found:
            right, n = sum(found.values()), len(found)
            low = rate_lower(right, n, evidence.confidence(confidence))
            least, _ = outward(low * 100.0, 100.0, 1)
            wording = f"{arm.name}: {right} of {n} needles found, at least {least:.1f} % (95 % one-sided)"
            if arm.role == "candidate" and arms.baseline is not None and answers(arms.baseline):
                gained, lost, common = paired_answers(arm, arms.baseline)
                corrected = evidence.confidence(confidence)
                bound = paired_difference_lower(gained, lost, common, corrected) if common else -1.0
                kept = preserved(native_right(arm, arms.baseline), common, bound, margin)
                wording += f", {'preserved' if kept else 'not shown to be preserved'} within {margin * 100:.0f} points"
            yield ClaimDraft(
                id=f"recall_{arm.name}",
                role="primary" if arm.role == "candidate" else "secondary",
                value=right / n,
                interval=(low, 1.0),
                confidence=confidence,
                unit="share",
                n=n,
                arms=(arm.name,),
                wording=f"{wording}{best_of(evidence.looks)}",
            )
        if arm.role == "candidate" and arms.baseline is not None:
            yield from _cost(arm, arms.baseline)
        mine = [row for row in errors if row["arm"] == arm.name]
        if mine:
            shape = shape_of(report, evidence)
            yield from _error(arm.name, mine, counted=shape is not None and shape.caches is not None)


def _cost(arm: Arm, native: Arm) -> Iterator[ClaimDraft]:
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
        shown = f"{arm.name}: decode time of a token, native over quantised {shown_ratio(ratio)}"
        yield _informing(f"decode_speedup_{arm.name}", ratio.value, "ratio", (arm, native), shown)


def _token_times(arm: Arm) -> dict[str, float]:
    """Return decode seconds per token after the first by prompt: lossy answers may differ in length."""
    return {
        prompt: sum(s["stages"]["decode_s"] for s in samples) / sum(s["output_tokens"] - 1 for s in samples)
        for prompt, samples in by_prompt(arm.measured).items()
        if all(s["output_tokens"] > 1 and s["stages"]["decode_s"] > 0 for s in samples)
    }


def _informing(name: str, value: float, unit: str, arms: tuple[Arm, Arm], wording: str) -> ClaimDraft:
    ours, native = arms
    return ClaimDraft(
        id=name,
        role="secondary",
        value=value,
        unit=unit,
        n=len(ours.measured),
        baseline=native.name,
        arms=(ours.name, native.name),
        wording=wording,
    )


def _error(name: str, rows: list[StatedError], *, counted: bool) -> Iterator[ClaimDraft]:
    """Yield the error over the layers that the rows have: of those one likes, where nobody counted the model's."""
    layers = len({row["layer"] for row in rows})
    relative = sum(row["error_sq"] for row in rows) / sum(row["reference_sq"] for row in rows)
    count = sum(row["values"] for row in rows)
    bits = sum(row["bits"] * row["values"] for row in rows) / count
    yield ClaimDraft(
        id=f"error_{name}",
        role="secondary",
        value=relative,
        unit="share",
        n=len(rows),
        arms=(name,),
        wording=f"{name}: relative squared error {relative:.2e} at {bits:.2f} bits per value, over {layers} layers",
        stops={} if counted else {"inputs": "nobody counted the layers of this model that keep a cache"},
        detail={"bits_per_value": bits},
    )


@report_rule(
    "G4-ERRORS", "outputs", kinds=(KV_QUANTISATION,), remedy="Sum squared errors over every layer and side, per arm."
)
def require_complete_errors(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Quantisation errors are given once per arm, layer and side, for every quantised arm, over the same values.

    An error averaged over some of the layers is an error of the layers one likes: the layers are those that keep a
    cache of their own in the model's folder, as the runner read it, and each gives as many values a position as it
    keeps. An arm named after its codes stores at least that many bits a value, and its scales; codes of so few bits
    cannot be exact.
    """
    rows = report.body["rows"]["errors"]
    arms = arms_of(report, evidence)
    for one, count in Counter((row["arm"], row["layer"], row["side"]) for row in rows).items():
        if count > 1:
            yield Violation(f"{one} occurs {count} times", "/rows/errors")
    by_arm = _by_arm(rows)
    named = set(by_arm)
    sides = Counter((row["arm"], row["layer"]) for row in rows)
    for place, count in sides.items():
        if count != 2:
            yield Violation(f"{place} has {count} of its two sides", "/rows/errors")
    wanted = {arm.name for arm in arms.all if arm.role == "candidate"}
    if named != wanted:
        yield Violation(f"errors of {sorted(named)}, quantised arms are {sorted(wanted)}", "/rows/errors")
    # The reference does not depend on the scheme: every arm is compared with the same values.
    reference: dict[tuple[int, str], tuple[int, float]] = {}
    for index, row in enumerate(rows):
        key = (row["layer"], row["side"])
        if reference.setdefault(key, (row["values"], row["reference_sq"])) != (row["values"], row["reference_sq"]):
            yield Violation(f"layer {key[0]} {key[1]}: another reference than elsewhere", f"/rows/errors/{index}")
    layers = {name: sorted((row["layer"], row["side"]) for row in mine) for name, mine in by_arm.items()}
    if len({tuple(found) for found in layers.values()}) > 1:
        yield Violation("arms have errors of different layers", "/rows/errors")
    for name, mine in by_arm.items():
        covered = {row["layer"] for row in mine}
        if covered != set(range(max(covered) + 1)):
            yield Violation(f"arm {name!r}: layers {sorted(covered)} are not 0, 1, … without gaps", "/rows/errors")
    yield from _code_limits(rows)
    shape = shape_of(report, evidence)
    if shape is not None and shape.caches is not None:
        yield from _layer_coverage(rows, shape.caches, arms)


def _by_arm(rows: Sequence[StatedError]) -> dict[str, list[StatedError]]:
    arms: dict[str, list[StatedError]] = {}
    for row in rows:
        arms.setdefault(row["arm"], []).append(row)
    return arms


def _layer_coverage(rows: Sequence[StatedError], caches: tuple[CacheShape, ...], arms: Arms) -> Iterator[Violation]:
    """Yield layers that are not the model's, and values that are not so many a position."""
    # Rows count the layers that keep a cache of their own, in order.
    widths = {(index, side): getattr(one, side) for index, one in enumerate(caches) for side in ("keys", "values")}
    covered = {(row["layer"], row["side"]) for row in rows}
    if covered != set(widths):
        layers = len({layer for layer, _ in covered})
        yield Violation(f"errors of {layers} layers, the model has {len(caches)} caches", "/rows/errors")
        return
    positions = {row["values"] / widths[row["layer"], row["side"]] for row in rows}
    asked = sum({sample["prompt_id"]: sample["prompt_tokens"] for arm in arms.all for sample in arm.measured}.values())
    if len(positions) != 1 or not all(count.is_integer() and 0 < count <= asked for count in positions):
        yield Violation(
            f"values of {sorted(positions)[:4]} positions by layer, expected the same whole number, at most {asked}",
            "/rows/errors",
        )


def _code_limits(rows: Sequence[StatedError]) -> Iterator[Violation]:
    """Yield what codes of an arm's bits cannot do: take less room, or lose next to nothing."""
    for index, row in enumerate(rows):
        match = _CODES.fullmatch(row["arm"])
        if match is None:
            continue
        codes, where = int(match[1]), f"/rows/errors/{index}"
        if row["bits"] <= codes:
            yield Violation(f"{row['arm']} at {row['bits']} bits a value: its codes alone are {codes}", where)
        if row["error_sq"] < row["reference_sq"] * 4.0**-codes / _OFFSET_SQ_MAX:
            yield Violation(f"an error of {row['error_sq']:.1e} is below what {codes} bits can keep", where)
