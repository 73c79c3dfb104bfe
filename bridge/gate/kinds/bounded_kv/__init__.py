"""Bytes of bounded caches: its claims and its rules."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from bridge.gate.claims import ClaimDraft
from bridge.gate.declared.row_views import StatedPoint
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import BOUNDED_KV
from bridge.gate.rule import report_rule
from bridge.gate.stats.trend import line
from bridge.launches.figures import outward

Point = StatedPoint
_SPAN_MIN: Final = 4
_HAS_PAGES: Final = re.compile(r"\+(pages|stream)")


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the saving at the longest context, then flatness of every candidate."""
    points: list[Point] = report.body["rows"]["points"]
    native = [point for point in points if point["role"] == "baseline"]
    by_arm = _by_arm(points)
    names = list(dict.fromkeys(point["arm"] for point in points if point["role"] == "candidate"))
    for index, name in enumerate(names):
        mine = by_arm[name]
        yield from _saving(name, mine, native, primary=index == 0)
        yield from _flat(name, mine, float(evidence.profile["memory_flat_max"]))


def _by_arm(points: Sequence[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point["arm"], []).append(point)
    return found


def held(point: Point) -> int:
    """Return everything a sequence holds: cache, drafter's context, latents."""
    return int(point["kv_bytes"] + point["drafter_bytes"] + point["latent_bytes"])


def _saving(name: str, mine: Sequence[Point], native: Sequence[Point], *, primary: bool) -> Iterator[ClaimDraft]:
    common = {p["context_tokens"] for p in mine} & {p["context_tokens"] for p in native}
    if not common:
        return
    longest = max(common)
    ours = statistics.median(held(p) for p in mine if p["context_tokens"] == longest)
    theirs = statistics.median(held(p) for p in native if p["context_tokens"] == longest)
    suffix = "" if primary else f"_{name}"
    yield ClaimDraft(
        id=f"kv_saving{suffix}",
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


def _flat(name: str, mine: Sequence[Point], most: float) -> Iterator[ClaimDraft]:
    by_context: dict[int, list[int]] = {}
    for point in mine:
        by_context.setdefault(point["context_tokens"], []).append(held(point))
    if len(by_context) < 3:
        return
    # Repeats of a context are copies of one number: only contexts are points.
    trend = line(list(by_context), [statistics.median(found) for found in by_context.values()])
    longest = max(by_context)
    growth = trend.upper(0.95) * longest / statistics.median(held(p) for p in mine)
    said = "flat" if growth <= most else "not flat"
    _, percent = outward(0.0, growth * 100.0, 1)
    yield ClaimDraft(
        id=f"flat_{name}",
        role="secondary",
        value=growth,
        unit="share",
        n=len(by_context),
        arms=(name,),
        wording=(
            f"{name} is {said}: at most {percent:.1f} % growth up to {longest} tokens "
            f"(95 % upper bound over {len(by_context)} contexts)"
        ),
        detail={"flat": growth <= most},
    )


@report_rule(
    "G7-DESIGN", "memory", kinds=(BOUNDED_KV,), remedy="Measure every arm in processes of its own, at >= 4 contexts."
)
def require_memory_design(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A memory study has a process per arm, several contexts, and the native cache of the same model beside it.

    Two arms in one process share an allocator; one context shows no growth; a cache measured before the first decode
    step still holds its prefill. The seed's "16.9 times smaller" was a formula.
    """
    points = report.body["rows"]["points"]
    least = int(evidence.profile["memory_contexts_min"])
    roles: dict[str, set[str]] = {}
    owners: dict[int, set[str]] = {}
    contexts: dict[str, set[int]] = {}
    for point in points:
        roles.setdefault(point["arm"], set()).add(point["role"])
        owners.setdefault(point["process"], set()).add(point["arm"])
        contexts.setdefault(point["arm"], set()).add(point["context_tokens"])
    if any(len(found) > 1 for found in roles.values()) or sum("baseline" in found for found in roles.values()) != 1:
        yield Violation(f"roles {roles}: expected one baseline, and one role per arm", "/rows/points")
    for process, arms in owners.items():
        if len(arms) > 1:
            yield Violation(f"process {process} measured {sorted(arms)}", "/rows/points")
    for arm, found in contexts.items():
        if len(found) < least:
            yield Violation(f"arm {arm!r} has {len(found)} contexts, at least {least} are asked", severity="violation")
        elif max(found) < _SPAN_MIN * min(found):
            yield Violation(
                f"arm {arm!r} has contexts of {min(found)} to {max(found)} tokens: growth shows where the longest is "
                f"{_SPAN_MIN} times the shortest or more",
                severity="violation",
            )
    if len({frozenset(found) for found in contexts.values()}) > 1:
        yield Violation("arms were measured at different contexts", "/rows/points")
    for message in _point_order(points):
        yield Violation(message, "/rows/points")


def _point_order(points: Sequence[Point]) -> Iterator[str]:
    """Yield what is wrong with how often and in which order points are listed."""
    repeats: dict[tuple[str, int], list[int]] = {}
    for point in points:
        repeats.setdefault((point["arm"], point["context_tokens"]), []).append(point["repeat"])
    for (arm, context), found in sorted(repeats.items()):
        if found != list(range(len(found))):
            yield f"arm {arm!r} at {context} tokens has the repeats {found}"
    for key, count in Counter((p["arm"], p["context_tokens"], p["repeat"]) for p in points).items():
        if count > 1:
            yield f"{key} occurs {count} times"
    if len(set(Counter((p["arm"], p["context_tokens"]) for p in points).values())) > 1:
        yield "points were not repeated equally often"
    places = [(p["role"] != "baseline", p["arm"], p["context_tokens"], p["repeat"]) for p in points]
    if places != sorted(places):
        yield "points are not in order of arm, context and repeat"


@report_rule(
    "G7-BUFFERS", "memory", kinds=(BOUNDED_KV,), remedy="Sum all buffers of the sequence: cache, drafter, latents."
)
def compare_buffers(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Buffer sums and the allocator agree, repeats of a point agree, and the peak is no less than the rest.

    What the buffers sum up to is what the allocator gained within 2 %, but for pages in the host's memory: those it
    does not count, and only a layout with pages has any. A repeat holds the same bytes and emits the same tokens. What
    an arm holds before its prompt does not grow with the context: bytes set aside beforehand count as well.
    """
    tolerance = float(evidence.profile["memory_allocator_tolerance"])
    seen: dict[tuple[object, ...], tuple[object, ...]] = {}
    tokens: dict[int, str] = {}
    idles: dict[tuple[object, ...], Any] = {}
    for index, point in enumerate(report.body["rows"]["points"]):
        where, total = f"/rows/points/{index}", held(point)
        active, idle = point["allocator_active_bytes"], point["allocator_idle_bytes"]
        if active is None or idle is None:
            yield Violation("the allocator has no counter here", where, severity="violation")
        elif abs(active - idle - (total - point["host_bytes"])) > tolerance * total:
            said = f"buffers sum to {total}, {point['host_bytes']} of them the host's"
            yield Violation(f"{said}, the allocator gained {active - idle}", where)
        if point["host_bytes"] > (point["kv_bytes"] if _HAS_PAGES.search(point["arm"]) else 0):
            yield Violation(f"{point['arm']} keeps {point['host_bytes']} bytes in the host's memory", where)
        if point["kv_bytes_peak"] < point["kv_bytes"]:
            yield Violation("the peak is below what was held", where)
        names = ("kv_bytes", "kv_bytes_peak", "host_bytes", "drafter_bytes", "latent_bytes", "decode_steps")
        facts = tuple(cast("Mapping[str, int]", point)[name] for name in names)
        key = (point["arm"], point["context_tokens"])
        if seen.setdefault(key, facts) != facts:
            yield Violation(f"repeats of {key} differ: {facts} and {seen[key]}", where)
        # Before a point each process holds the same model, but for a few bytes that its heap rounds differently.
        before = idles.setdefault(key, idle)
        if before is not None and idle is not None and abs(before - idle) > tolerance * total:
            yield Violation(f"repeats of {key} begin with {idle} and {before} bytes", where)
        if tokens.setdefault(point["context_tokens"], point["token_digest"]) != point["token_digest"]:
            yield Violation("other tokens than elsewhere at this context", where, severity="violation")
    yield from _idle_growth(report.body["rows"]["points"], tolerance)


def _idle_growth(points: Sequence[Point], tolerance: float) -> Iterator[Violation]:
    """Yield arms that begin with more bytes before a longer context."""
    for arm, found in sorted(_by_arm(points).items()):
        read = [(p["context_tokens"], p["allocator_idle_bytes"], p) for p in found]
        mine = [(context, idle, point) for context, idle, point in read if idle is not None]
        if not mine:
            continue
        (_, before, _), (_, after, last) = (pick(mine, key=lambda one: one[0]) for pick in (min, max))
        grown = after - before
        if grown > tolerance * (before + held(last)):
            yield Violation(
                f"arm {arm!r} begins the longest context with {grown} bytes more than the shortest", "/rows"
            )
