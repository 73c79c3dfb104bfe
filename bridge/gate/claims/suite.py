"""The claim of a test suite: outcomes counted from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate.claims import Draft
from bridge.gate.interface import Evidence, Report


def drafts(report: Report, _evidence: Evidence) -> Iterator[Draft]:
    """Yield the claim."""
    tests = report.body["rows"]["tests"]
    counts = Counter(test["outcome"] for test in tests)
    parts = [f"{counts[name]} {name}" for name in ("failed", "error", "skipped") if counts[name]]
    yield Draft(
        id="tests",
        metric="tests_passed",
        role="primary",
        value=float(counts["passed"]),
        unit="tests",
        n=len(tests),
        wording=f"{counts['passed']} of {len(tests)} tests passed" + (f" ({', '.join(parts)})" if parts else ""),
        detail=dict(sorted(counts.items())),
    )
