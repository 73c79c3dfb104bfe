"""How many of some hundred ways out of the sandbox reach the host, as each kind of run?"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.studies.sandbox.escapes.situations import SITUATIONS
from benchmarks.studies.study import Entry, Row, Study, rows_of


def run(situation: str) -> list[Row]:
    """Try every probe in one situation; what reached the host is named.

    Raises:
        RuntimeError: a probe is broken.
    """
    outcomes, files = SITUATIONS[situation]()
    broken = {name: outcome for name, outcome in outcomes.items() if outcome and outcome.startswith("broken probe")}
    if broken:
        raise RuntimeError(f"broken probes: {broken}")
    reached = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    return [{"situation": situation, "probes": len(outcomes), "kernel_files": files, "reached": reached}]


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many probes were tried in each situation, and what reached the host."""
    rows = rows_of(entries)
    tried = ", ".join(f"{row['situation']} {row['probes']}" for row in rows)
    reached = [f"{row['situation']}: {probe}" for row in rows for probe in row["reached"]]
    return [f"{len(reached)} reach the host; probes: {tried}", *reached]


STUDY = Study(
    "escapes",
    "Does a way out of the sandbox reach the host, as any kind of run?",
    lambda: list(SITUATIONS),
    run,
    "three minutes",
    summary,
)
