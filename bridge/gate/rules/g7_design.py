"""A memory study has a process per arm, several contexts, and the native cache of the same model beside it.

Two arms in one process share an allocator; one context shows no growth; a cache measured before the first decode step
still holds its prefill. The seed's "16.9 times smaller" was a formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule

_SPAN_MIN: Final = 4


@report_rule(
    "G7-DESIGN", kinds=(kinds.BOUNDED_KV,), remedy="Measure every arm in processes of its own, at >= 4 contexts."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
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
            yield Violation(
                f"arm {arm!r} has {len(found)} contexts, at least {least} are asked", severity="not_citable"
            )
        elif max(found) < _SPAN_MIN * min(found):
            yield Violation(
                f"arm {arm!r} has contexts of {min(found)} to {max(found)} tokens: growth shows where the longest is "
                f"{_SPAN_MIN} times the shortest or more",
                severity="not_citable",
            )
    if len({frozenset(found) for found in contexts.values()}) > 1:
        yield Violation("arms were measured at different contexts", "/rows/points")
    for message in _repeats(points):
        yield Violation(message, "/rows/points")


def _repeats(points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with how often and in which order points are listed."""
    for arm, context in sorted({(point["arm"], point["context_tokens"]) for point in points}):
        found = [p["repeat"] for p in points if (p["arm"], p["context_tokens"]) == (arm, context)]
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
