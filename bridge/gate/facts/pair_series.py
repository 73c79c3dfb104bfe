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
    """Return for what share of its time each side was on a processor, 1 at most; None where nothing saw it.

    Whoever was on several at once did not sleep, and whoever is on one all the time does not sleep beside it. Of
    processes that the runner's program started, wait4 collected it. A program that takes turns itself might say
    anything of them; its sides are read around the stretches that each worked alone.
    """
    turns = [turn for record in series.counted for turn in record.turns]
    on_all = worked(series) if series.plan.solo_s > 0.0 else shares(series, turns, lambda turn: turn.cpu_s)
    return None if on_all is None else (min(1.0, on_all[0]), min(1.0, on_all[1]))
