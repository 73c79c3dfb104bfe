"""The runner's times are in order and agree with each other.

A wall clock and a steady clock saw the same run; where they differ, one of the numbers was changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.moments import seconds
from bridge.gate.rule import rule
from bridge.limits import CLOCK_SKEW_MAX_S
from bridge.records import RunRecord


@rule("G2-TIMES", remedy="Keep run.json as the runner wrote it; check the host's time synchronisation.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.record is None or evidence.record.started is None:
        return Skip("no RunRecord, or the run never started")
    return _order(evidence.record, float(evidence.profile["clock_tolerance_s"]))


def _order(record: RunRecord, slack_s: float) -> Iterator[Violation]:
    created, claimed = seconds(record.created), seconds(record.claimed)
    started, ended = seconds(record.started or record.claimed), seconds(record.ended)
    if claimed < created - CLOCK_SKEW_MAX_S:  # the requester's clock may be ahead by that much
        yield Violation(f"claimed {record.claimed}, before it was created {record.created}", "claimed")
    if abs(record.queue_s - max(0.0, claimed - created)) > 1e-3:
        yield Violation(
            f"queue_s is {record.queue_s:.3f}, created and claimed are {claimed - created:.3f} s apart", "queue_s"
        )
    if started < claimed - slack_s or ended < started:
        yield Violation(
            f"claimed {record.claimed}, started {record.started}, ended {record.ended}: not in order", "started"
        )
    if ended - started < record.wall_s - slack_s:
        yield Violation(
            f"{record.wall_s:.3f} s of running do not fit between {record.started} and {record.ended}", "wall_s"
        )
    last_s = max((command.ended_s for command in record.commands), default=record.wall_s)
    apart = abs(record.wall_s - last_s)
    if apart > 0.05 + 0.002 * last_s:
        yield Violation(
            f"wall_s is {record.wall_s:.3f}, the last command ended at {last_s:.3f} s",
            "wall_s",
            severity="reject" if apart > 1.0 + 0.02 * last_s else "not_citable",
        )
    last = max((mark.t_s for mark in record.sample_marks), default=0.0)
    if record.commands and last > max(command.ended_s for command in record.commands) + slack_s:
        yield Violation(f"a sample was marked at {last:.3f} s, after the last command ended", "sample_marks")
