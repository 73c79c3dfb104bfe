"""Speed of distributed decoding: its claims."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft, generation, speed
from bridge.gate.interface import Evidence, Report


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield speed first, then identity, acceptance and calls."""
    yield from speed.speedups(report, evidence)
    yield from generation.identity(report, evidence)
    yield from generation.acceptance(report, evidence)
    yield from generation.call_times(report)
