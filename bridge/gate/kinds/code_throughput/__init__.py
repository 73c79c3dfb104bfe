"""Decoding speed on code prompts: its claims."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft, generation, latency, speed
from bridge.gate.interface import Evidence, Report


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield speed first, then what explains it."""
    yield from speed.speedups(report, evidence)
    yield from generation.acceptance(report, evidence)
    yield from generation.identity(report, evidence)
    yield from generation.memory(report, evidence)
    yield from generation.throughput(report, evidence)
    yield from latency.latencies(report, evidence)
