"""Buffer sums and the allocator agree, repeats of a point agree, and the peak is no less than the rest.

What the buffers sum up to is what the allocator gained within 2 %; a repeat holds the same bytes and emits the same
tokens. What an arm holds before its prompt does not grow with the context: bytes set aside beforehand count as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge.gate import kinds
from bridge.gate.claims.memory import held
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G7-BUFFERS", kinds=(kinds.BOUNDED_KV,), remedy="Sum all buffers of the sequence: cache, drafter, latents."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    tolerance = float(evidence.profile["memory_allocator_tolerance"])
    seen: dict[tuple[object, ...], tuple[object, ...]] = {}
    tokens: dict[int, str] = {}
    idles: dict[tuple[object, ...], Any] = {}
    for index, point in enumerate(report.body["rows"]["points"]):
        where, total = f"/rows/points/{index}", held(point)
        active, idle = point["allocator_active_bytes"], point["allocator_idle_bytes"]
        if active is None or idle is None:
            yield Violation("the allocator has no counter here", where, severity="not_citable")
        elif abs(active - idle - total) > tolerance * total:
            yield Violation(f"buffers sum to {total}, the allocator gained {active - idle}", where)
        if point["kv_bytes_peak"] < point["kv_bytes"]:
            yield Violation("the peak is below what was held", where)
        names = ("kv_bytes", "kv_bytes_peak", "drafter_bytes", "latent_bytes", "decode_steps")
        facts = tuple(point[name] for name in names)
        key = (point["arm"], point["context_tokens"])
        if seen.setdefault(key, facts) != facts:
            yield Violation(f"repeats of {key} differ: {facts} and {seen[key]}", where)
        # Before a point each process holds the same model, but for a few bytes that its heap rounds differently.
        before = idles.setdefault(key, idle)
        if None not in (before, idle) and abs(before - idle) > tolerance * total:
            yield Violation(f"repeats of {key} begin with {idle} and {before} bytes", where)
        if tokens.setdefault(point["context_tokens"], point["token_digest"]) != point["token_digest"]:
            yield Violation("other tokens than elsewhere at this context", where, severity="not_citable")
    yield from _before(report.body["rows"]["points"], tolerance)


def _before(points: Sequence[Mapping[str, Any]], tolerance: float) -> Iterator[Violation]:
    """Yield arms that begin with more bytes before a longer context."""
    for arm in sorted({point["arm"] for point in points}):
        mine = [p for p in points if p["arm"] == arm and p["allocator_idle_bytes"] is not None]
        if not mine:
            continue
        first, last = (pick(mine, key=lambda p: int(p["context_tokens"])) for pick in (min, max))
        grown = last["allocator_idle_bytes"] - first["allocator_idle_bytes"]
        if grown > tolerance * (first["allocator_idle_bytes"] + held(last)):
            yield Violation(
                f"arm {arm!r} begins the longest context with {grown} bytes more than the shortest", "/rows"
            )
