"""The report's times lie inside the runner's, and its own times agree with each other.

A report that began before its run, or lasted longer, measured something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.moments import seconds
from bridge.gate.rule import report_rule
from bridge.records import Severity


@report_rule(
    "G4-WINDOW", remedy="Take started_at, ended_at and wall_s around the measured work, with the engine's builder."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    value = report.body
    slack_s = float(evidence.profile["clock_tolerance_s"])
    try:
        started, ended = seconds(value["started_at"]), seconds(value["ended_at"])
    except ValueError as error:
        yield Violation(f"not a time: {error}", "/started_at")
        return
    if ended < started:
        yield Violation(f"ended {value['ended_at']} before it started {value['started_at']}", "/ended_at")
    span_s, wall_s = ended - started, value["wall_s"]
    launches = {sample["launch"] for arm in value["arms"] for sample in arm["samples"]}
    launches |= {point["process"] for point in (value.get("rows") or {}).get("points", ())}
    # Between launches nothing is measured: the parts' times are summed, the whole is longer by the gaps.
    apart = max(0.0, wall_s - span_s) if len(launches) > 1 else abs(span_s - wall_s)
    if apart > 0.05 + 0.005 * span_s:
        yield Violation(
            f"wall_s is {wall_s:.3f}, started_at and ended_at are {span_s:.3f} s apart",
            "/wall_s",
            severity=_weight(apart, span_s),
        )
    record = evidence.record
    if record is None or record.started is None:
        return
    if started < seconds(record.started) - slack_s or ended > seconds(record.ended) + slack_s:
        yield Violation(
            f"{value['started_at']} … {value['ended_at']} is not inside the run {record.started} … {record.ended}",
            "/started_at",
        )
    commands_s = sum(command.ended_s - command.started_s for command in record.commands)
    if wall_s > min(record.wall_s, commands_s) + 0.05:
        yield Violation(f"wall_s is {wall_s:.3f}, the runner saw commands of {commands_s:.3f} s", "/wall_s")
    seen: dict[str, list[float]] = {}
    for mark in record.sample_marks:
        seen.setdefault(mark.sample.split("/", 1)[0], []).append(mark.t_s)
    marked_s = sum(max(times) - min(times) for times in seen.values())
    if wall_s < marked_s - 0.05:
        yield Violation(
            f"wall_s is {wall_s:.3f}, the samples' marks span {marked_s:.3f} s",
            "/wall_s",
            severity=_weight(marked_s - wall_s, marked_s),
        )


def _weight(apart_s: float, span_s: float) -> Severity:
    """Return what a difference of two clocks means: a busy machine separates two readings, by no more than a second."""
    return "reject" if apart_s > 1.0 + 0.02 * span_s else "not_citable"
