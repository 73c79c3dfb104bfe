"""Rules on times: of the record, of the report, of the stages of a sample."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report, Skip, Violation
from bridge.gate.report_kinds import SAMPLED
from bridge.gate.rule import report_rule, rule
from bridge.limits import CLOCK_SKEW_MAX_S
from bridge.records.run import RunRecord
from bridge.records.verdict import Severity


@rule("G2-TIMES", "bound", remedy="Keep run.json as the runner wrote it; check the host's time synchronisation.")
def compare_clocks(evidence: Evidence) -> Iterator[Violation] | Skip:
    """The runner's times are in order and agree with each other.

    A wall clock and a steady clock saw the same run; where two steady ones differ, one of the numbers was changed. A
    wall clock that was set back meanwhile takes `times`: when something happened is not known, what happened is.
    """
    if evidence.record is None or evidence.record.started is None:
        return Skip("no RunRecord, or the run never started")
    return _record_times(evidence.record, float(evidence.profile["clock_tolerance_s"]))


def _record_times(record: RunRecord, slack_s: float) -> Iterator[Violation]:
    created, claimed = epoch_seconds(record.created), epoch_seconds(record.claimed)
    started, ended = epoch_seconds(record.started or record.claimed), epoch_seconds(record.ended)
    if claimed < created - CLOCK_SKEW_MAX_S:  # the requester's clock may be ahead by that much
        yield Violation(f"claimed {record.claimed}, before it was created {record.created}", "claimed")
    if abs(record.queue_s - max(0.0, claimed - created)) > 1e-3:
        yield Violation(
            f"queue_s is {record.queue_s:.3f}, created and claimed are {claimed - created:.3f} s apart", "queue_s"
        )
    if started < claimed - slack_s or ended < started:
        yield _set_back(
            f"claimed {record.claimed}, started {record.started}, ended {record.ended}: not in order", "started"
        )
    if ended - started < record.wall_s - slack_s:
        yield _set_back(
            f"{record.wall_s:.3f} s of running do not fit between {record.started} and {record.ended}", "wall_s"
        )
    last_s = max((command.ended_s for command in record.commands), default=record.wall_s)
    apart = abs(record.wall_s - last_s)
    if apart > 0.05 + 0.002 * last_s:
        yield Violation(
            f"wall_s is {record.wall_s:.3f}, the last command ended at {last_s:.3f} s",
            "wall_s",
            severity="reject" if apart > 1.0 + 0.02 * last_s else "violation",
            premise="times",
        )
    last = max((mark.t_s for mark in record.sample_marks), default=0.0)
    if record.commands and last > max(command.ended_s for command in record.commands) + slack_s:
        yield Violation(f"a sample was marked at {last:.3f} s, after the last command ended", "sample_marks")


def _set_back(said: str, where: str) -> Violation:
    return Violation(f"{said}; was the clock set back?", where, severity="violation", premise="times")


def _set_back_s(record: RunRecord | None, slack_s: float) -> float:
    """Return by how much the runner's wall clock was set back while it ran, 0 where it kept step."""
    if record is None or record.started is None:
        return 0.0
    lost_s = record.wall_s - (epoch_seconds(record.ended) - epoch_seconds(record.started))
    return lost_s if lost_s > slack_s else 0.0


@report_rule(
    "G4-WINDOW",
    "times",
    remedy="Take started_at, ended_at and wall_s around the measured work, with the engine's builder.",
)
def compare_report_times(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The report's times lie inside the runner's, and its own times agree with each other.

    A report that began before its run, or lasted longer, measured something else. Two clocks that are apart by as much
    as the runner saw the machine sleep, or its own wall clock set back, contradict nobody, and time nothing.
    """
    value = report.body
    slack_s = float(evidence.profile["clock_tolerance_s"])
    try:
        started, ended = epoch_seconds(value["started_at"]), epoch_seconds(value["ended_at"])
    except ValueError as error:
        yield Violation(f"not a time: {error}", "/started_at")
        return
    back_s = _set_back_s(evidence.record, slack_s)
    if ended < started:
        yield Violation(
            f"ended {value['ended_at']} before it started {value['started_at']}",
            "/ended_at",
            severity=_severity(started - ended > back_s),
        )
    span_s, wall_s = max(0.0, ended - started), value["wall_s"]
    launches = {sample["launch"] for arm in value["arms"] for sample in arm["samples"]}
    slept_s = _slept_s(evidence.record) + back_s
    launches |= {point["process"] for point in (value.get("rows") or {}).get("points", ())}
    # Between launches nothing is measured: the parts' times are summed, the whole is longer by the gaps.
    apart = max(0.0, wall_s - span_s) if len(launches) > 1 else abs(span_s - wall_s)
    if apart > 0.05 + 0.005 * span_s:
        yield Violation(
            f"wall_s is {wall_s:.3f}, started_at and ended_at are {span_s:.3f} s apart",
            "/wall_s",
            severity=_clock_severity(apart - slept_s, span_s),
        )
    record = evidence.record
    if record is None or record.started is None:
        return
    outside_s = max(epoch_seconds(record.started) - started, ended - epoch_seconds(record.ended))
    if outside_s > slack_s:
        yield Violation(
            f"{value['started_at']} … {value['ended_at']} is not inside the run {record.started} … {record.ended}",
            "/started_at",
            severity=_severity(outside_s > slack_s + back_s),
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
            severity=_clock_severity(marked_s - wall_s, marked_s),
        )


def _slept_s(record: RunRecord | None) -> float:
    """Return how long the runner saw the machine sleep: one clock went on meanwhile, the other stood still."""
    telemetry = None if record is None else record.telemetry
    return 0.0 if telemetry is None else telemetry.slept_s or 0.0


def _severity(contradicts: bool) -> Severity:
    return "reject" if contradicts else "violation"


def _clock_severity(apart_s: float, span_s: float) -> Severity:
    """Return what a difference of two clocks means: a busy machine separates two readings, by no more than a second."""
    return _severity(apart_s > 1.0 + 0.02 * span_s)


@report_rule("G4-STAGES", "times", kinds=SAMPLED, remedy="Take all stages of a sample from the same clock marks.")
def sum_stages(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A sample's stages took time, their parts add up, and all of them fit into the report's wall time.

    Decode time is cut out of the whole by two marks; what is taken from one stage must appear in another.
    """
    tolerance = float(evidence.profile["stages_tolerance"])
    total_s = 0.0
    for arm, sample in arms_of(report, evidence).rows:
        stages = sample["stages"]
        total_s += stages["total_s"]
        inner = [value for value in (stages["draft_s"], stages["verify_s"], stages["other_s"]) if value is not None]
        if len(inner) == 3:
            if abs(sum(inner) - stages["decode_s"]) > 1e-5 + tolerance * stages["decode_s"]:
                yield Violation(
                    f"draft, verify and other are {sum(inner):.6f} s, decode_s is {stages['decode_s']:.6f}",
                    arm.pointer(sample),
                )
        elif inner:
            yield Violation("some of draft_s, verify_s and other_s are absent", arm.pointer(sample))
        if not (stages["prefill_s"] > 0 and (stages["decode_s"] > 0 or sample["output_tokens"] == 1)):
            yield Violation("a stage took no time", arm.pointer(sample))
    if total_s > report.body["wall_s"] * 1.001 + 0.01:
        yield Violation(f"samples took {total_s:.3f} s, the report {report.body['wall_s']:.3f} s", "/wall_s")


def epoch_seconds(moment: str) -> float:
    """Return seconds since the epoch of an RFC 3339 UTC time.

    Raises:
        ValueError: not such a time.
    """
    return dt.datetime.fromisoformat(moment).timestamp()
