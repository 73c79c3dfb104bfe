"""Quantisation errors are given once per arm, layer and side, for every quantised arm, over the same values.

An error averaged over some of the layers is an error of the layers one likes: the layers are those that keep a cache of
their own in the model's folder, as the runner read it, and each gives as many values a position as it keeps. An arm
named after its codes stores at least that many bits a value, and its scales; codes of so few bits cannot be exact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Arms, arms_of
from bridge.gate.shapes import shape_of
from bridge.records import CacheShape

_CODES = re.compile(r"affine([0-9]{1,2})(/[0-9]+)?")
_OFFSET_SQ_MAX: Final = 1e6  # values may lie this far, in squares of their range, from zero: their error looks smaller


@report_rule(
    "G4-ERRORS", kinds=(kinds.KV_QUANTISATION,), remedy="Sum squared errors over every layer and side, per arm."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    rows = report.body["rows"]["errors"]
    arms = arms_of(report, evidence)
    for one, count in Counter((row["arm"], row["layer"], row["side"]) for row in rows).items():
        if count > 1:
            yield Violation(f"{one} occurs {count} times", "/rows/errors")
    named = {row["arm"] for row in rows}
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
    layers = {name: sorted((row["layer"], row["side"]) for row in rows if row["arm"] == name) for name in named}
    if len({tuple(found) for found in layers.values()}) > 1:
        yield Violation("arms have errors of different layers", "/rows/errors")
    for name in named:
        covered = {row["layer"] for row in rows if row["arm"] == name}
        if covered != set(range(max(covered) + 1)):
            yield Violation(f"arm {name!r}: layers {sorted(covered)} are not 0, 1, … without gaps", "/rows/errors")
    yield from _codes(rows)
    shape = shape_of(report, evidence)
    if shape is not None and shape.caches is not None:
        yield from _layers(rows, shape.caches, arms)


def _layers(rows: Sequence[Mapping[str, Any]], caches: tuple[CacheShape, ...], arms: Arms) -> Iterator[Violation]:
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


def _codes(rows: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
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
