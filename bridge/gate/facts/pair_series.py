"""The launches of two programs that the runner started by turns, by the name of their command."""

from __future__ import annotations

from bridge.gate.facts.launch_series import Series, shares, worked
from bridge.gate.interface import Evidence
from bridge.records.run import RunRecord
from bridge.run.stop_rule import finished


def series_named(command: str, evidence: Evidence, record: RunRecord | None) -> Series | None:
    """Return the launches of a command of this run's job spec, as a record of it has them; None without any."""
    if record is None or evidence.spec is None:
        return None
    plan = next((one.launches for one in evidence.spec.commands if one.name == command), None)
    records = tuple(one for one in record.launches if one.command == command)
    if plan is None or not records:
        return None
    return Series(plan, records, tuple(finished(plan, records)))


def processor_shares(series: Series) -> tuple[float, float] | None:
    """Return how much of its time each side was on a processor; None where nothing saw it.

    Of processes that the runner's program started, wait4 collected it. A program that takes turns itself might say
    anything of them; its sides are read around the stretches that each worked alone.
    """
    if series.plan.solo_s > 0.0:
        return worked(series)
    turns = [turn for record in series.counted for turn in record.turns]
    return shares(series, turns, lambda turn: turn.cpu_s)
