"""A memory study measures a process per arm, several contexts, after decoding, against the native cache of the same model.

Two arms in one process share an allocator; one context shows no growth; a cache measured before the first decode step still
holds its prefill. The seed's "16.9 times smaller" was a formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


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
    if len({frozenset(found) for found in contexts.values()}) > 1:
        yield Violation("arms were measured at different contexts", "/rows/points")
    for arm in roles:
        repeats = sorted({p["repeat"] for p in points if p["arm"] == arm})
        if repeats != list(range(len(repeats))):
            yield Violation(f"arm {arm!r} has the repeats {repeats}", "/rows/points")
    keys = Counter((p["arm"], p["context_tokens"], p["repeat"]) for p in points)
    for key, count in keys.items():
        if count > 1:
            yield Violation(f"{key} occurs {count} times", "/rows/points")
    if len({count for count in Counter((p["arm"], p["context_tokens"]) for p in points).values()}) > 1:
        yield Violation("points were not repeated equally often", "/rows/points")
    places = [(p["role"] != "baseline", p["arm"], p["context_tokens"], p["repeat"]) for p in points]
    if places != sorted(places):
        yield Violation("points are not in order of arm, context and repeat", "/rows/points")
