"""The claims of a code throughput report."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import Draft, generation, speed
from bridge.gate.interface import Evidence, Report


def drafts(report: Report, evidence: Evidence) -> Iterator[Draft]:
    """Yield speed first, then what explains it."""
    yield from speed.drafts(report, evidence)
    yield from generation.acceptance(report, evidence)
    yield from generation.identity(report, evidence)
    yield from generation.memory(report, evidence)
    yield from generation.throughput(report, evidence)
