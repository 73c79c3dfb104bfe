"""How many of some hundred ways out of the sandbox reach the host, as each kind of run?"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.studies.sandbox.escapes.situations import NOT_STARTED, SITUATIONS
from benchmarks.studies.study import Entry, Row, Study, rows_of


def run(situation: str) -> list[Row]:
    """Try every probe in one situation; what reached the host is named. A run that is not started says why.

    Raises:
        RuntimeError: a probe is broken.
    """
    if situation in NOT_STARTED:
        refusal = NOT_STARTED[situation]()
        began = {"begin where it should be refused": "it began"} if refusal is None else {}
        return [{"situation": situation, "probes": 0, "kernel_files": 0, "reached": began, "refused": refusal}]
    outcomes, files = SITUATIONS[situation]()
    broken = {name: outcome for name, outcome in outcomes.items() if outcome and outcome.startswith("broken probe")}
    if broken:
        raise RuntimeError(f"broken probes: {broken}")
    reached = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    return [{"situation": situation, "probes": len(outcomes), "kernel_files": files, "reached": reached}]


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many probes were tried in each situation, and what reached the host."""
    rows = rows_of(entries)
    tried = ", ".join(f"{row['situation']} {row['probes']}" for row in rows if row["probes"])
    refused = [f"{row['situation']}: refused: {row['refused']}" for row in rows if row.get("refused")]
    reached = [f"{row['situation']}: {probe}" for row in rows for probe in row["reached"]]
    return [f"{len(reached)} reach the host; probes: {tried}", *reached, *refused]


STUDY = Study(
    "escapes",
    "Does a way out of the sandbox reach the host, as any kind of run?",
    lambda: [*SITUATIONS, *NOT_STARTED],
    run,
    "seven minutes",
    summary,
)
