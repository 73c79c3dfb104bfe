"""Pages made from the committed reports of studies."""

from __future__ import annotations

from benchmarks.studies.statistics.page import page


def generate() -> dict[str, str]:
    """Return the pages by path."""
    return {"docs/evidence/simulation.md": page()}
