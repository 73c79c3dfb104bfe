"""Acceptance of drafts: its claims and its rules."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft, generation
from bridge.gate.interface import Evidence, Report


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the claims."""
    yield from generation.acceptance(report, evidence, role="primary")
    yield from generation.identity(report, evidence)
