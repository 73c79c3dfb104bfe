"""The claims of a bounded-KV study: bytes against the native cache of the same model, and whether they stay flat."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge.gate.claims import Draft
from bridge.gate.interface import Evidence, Report
from bridge.gate.stats.trend import line

Point = Mapping[str, Any]


def drafts(report: Report, evidence: Evidence) -> Iterator[Draft]:
    """Yield the saving at the longest context, then flatness of every candidate."""
    points: list[Point] = report.body["rows"]["points"]
    native = [point for point in points if point["role"] == "baseline"]
    names = list(dict.fromkeys(point["arm"] for point in points if point["role"] == "candidate"))
    for index, name in enumerate(names):
        mine = [point for point in points if point["arm"] == name]
        yield from _saving(name, mine, native, primary=index == 0)
        yield from _flat(name, mine, float(evidence.profile["memory_flat_max"]))


def held(point: Point) -> int:
    """Return everything a sequence holds: cache, drafter's context, latents."""
    return int(point["kv_bytes"] + point["drafter_bytes"] + point["latent_bytes"])


def _saving(name: str, mine: Sequence[Point], native: Sequence[Point], *, primary: bool) -> Iterator[Draft]:
    common = {p["context_tokens"] for p in mine} & {p["context_tokens"] for p in native}
    if not common:
        return
    longest = max(common)
    ours = statistics.median(held(p) for p in mine if p["context_tokens"] == longest)
    theirs = statistics.median(held(p) for p in native if p["context_tokens"] == longest)
    suffix = "" if primary else f"_{name}"
    yield Draft(
        id=f"kv_saving{suffix}",
        metric=f"kv_saving{suffix}",
        role="primary" if primary else "secondary",
        value=theirs / ours,
        unit="ratio",
        n=len({p["process"] for p in mine}),
        baseline=native[0]["arm"],
        arms=(name, native[0]["arm"]),
        wording=(
            f"{name} holds {ours / 1e6:.2f} MB at {longest} tokens, the native cache of the same model "
            f"{theirs / 1e6:.2f} MB ({theirs / ours:.2f} times)"
        ),
    )


def _flat(name: str, mine: Sequence[Point], most: float) -> Iterator[Draft]:
    if len({p["context_tokens"] for p in mine}) < 3:
        return
    trend = line([p["context_tokens"] for p in mine], [held(p) for p in mine])
    longest = max(p["context_tokens"] for p in mine)
    growth = trend.upper(0.95) * longest / statistics.median(held(p) for p in mine)
    said = "flat" if growth <= most else "not flat"
    yield Draft(
        id=f"flat_{name}",
        metric=f"flat_{name}",
        role="secondary",
        value=growth,
        unit="share",
        n=len(mine),
        arms=(name,),
        wording=f"{name} is {said}: at most {growth * 100:.1f} % growth up to {longest} tokens (95 % upper bound)",
        detail={"flat": growth <= most},
    )
