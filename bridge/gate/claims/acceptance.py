"""The claims of an acceptance report: length first, then rate, identity."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import Draft, generation
from bridge.gate.interface import Evidence, Report


def drafts(report: Report, evidence: Evidence) -> Iterator[Draft]:
    """Yield the claims."""
    yield from generation.acceptance(report, evidence, role="primary")
    yield from generation.identity(report, evidence)
