"""The rule on sample marks: what the runner's clock saw of every sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bridge.gate.facts.launch_series import series_of
from bridge.gate.facts.samples import Arm, Sample, arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import MARKED
from bridge.gate.rule import report_rule
from bridge.records.run import RunRecord, SampleMark

EVENTS = ("start", "first_token", "end")
GROSS_SHARE, GROSS_S = 0.5, 1.0  # a runner may be held back for a second, not for half of what it watched
Marked = dict[str, dict[str, SampleMark]]


@report_rule(
    "G4-MARKS", "times", kinds=MARKED, remedy="Write the marks as the samples happen; measure on a quiet machine."
)
def compare_sample_marks(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """What the runner's clock saw of every sample is what the report says.

    The workload announces start, first token and end of every sample on a pipe, and the runner stamps each line. Summed
    decode time agrees within 2 %, at most 5 % of samples differ by more than 5 ms, the digests are those of the tokens,
    and the samples follow each other as their order says. A timer that was patched gives another time than the
    runner's.

    Where the runner itself measured that others kept the machine busy, its stamps may be late: times that differ then
    say that nothing may be quoted, and contradict nobody, up to half of the time and a second. Order, count and digests
    of the marks do not depend on load.
    """
    if evidence.record is None or series_of(report, evidence) is not None:  # turns are stamped instead: G4-TURNS
        return
    arms = arms_of(report, evidence).all
    rows = {sample["id"]: (arm, sample) for arm in arms for sample in arm.samples}
    marked, problems = _collect(evidence.record, set(rows))
    for message in problems:
        yield Violation(message, "sample_marks")
    missing = [name for name in rows if set(marked.get(name, {})) != set(EVENTS)]
    for name in missing[:4]:
        yield Violation(f"sample {name!r} has the marks {sorted(marked.get(name, {}))}", "sample_marks")
    if missing or problems:
        return
    yield from _mark_order(evidence.record, rows)
    busy = _others_share(evidence.record) > float(evidence.profile["marks_busy_share"])
    for violation in _stage_times(rows, marked, evidence.profile):
        # Waiting for a core explains late stamps, not that most of a time is missing.
        yield replace(violation, severity="violation") if busy and not violation.detail.get("gross") else violation
    for name, (arm, sample) in rows.items():
        if marked[name]["end"].token_digest != sample["token_digest"]:
            said = "the tokens are not the ones whose digest the runner received"
            yield Violation(said, arm.pointer(sample), premise="outputs", arms=(arm.name,))


def _others_share(record: RunRecord) -> float:
    """Return the mean share of the machine that others used while it ran, 0 where the runner could not see it."""
    samples = record.telemetry.samples if record.telemetry else ()
    shares = [sample.other_cpu_share for sample in samples if sample.other_cpu_share is not None]
    return sum(shares) / len(shares) if shares else 0.0


def _collect(record: RunRecord, known: set[str]) -> tuple[Marked, list[str]]:
    marked: Marked = {}
    problems: list[str] = []
    for mark in record.sample_marks:
        if mark.sample not in known:
            problems.append(f"sample {mark.sample!r} was announced and is not in the report")
        elif mark.event in marked.setdefault(mark.sample, {}):
            problems.append(f"sample {mark.sample!r} has two {mark.event} marks")
        elif (mark.event == "end") != (mark.token_digest is not None):
            problems.append(f"sample {mark.sample!r}: a token digest belongs to its end mark")
        marked.setdefault(mark.sample, {})[mark.event] = mark
    return marked, problems[:4]


def _mark_order(record: RunRecord, rows: Mapping[str, tuple[Arm, Sample]]) -> Iterator[Violation]:
    """Yield marks that are not in the order of launches and order indices, or go back in time."""
    wanted = [
        (name, event)
        for name, (_, s) in sorted(rows.items(), key=lambda item: (item[1][1]["launch"], item[1][1]["order_index"]))
        for event in EVENTS
    ]
    got = [(mark.sample, mark.event) for mark in record.sample_marks]
    if got != wanted:
        place = next(index for index, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b)
        yield Violation(f"mark {place} is {got[place]}, the report's order says {wanted[place]}", "sample_marks")
        return
    times = [mark.t_s for mark in record.sample_marks]
    back = next((index for index in range(1, len(times)) if times[index] < times[index - 1]), None)
    if back is not None:
        yield Violation(
            f"mark {back} came at {times[back]:.6f} s, after one at {times[back - 1]:.6f} s", "sample_marks"
        )
    spans: dict[int, list[float]] = {}
    for mark in record.sample_marks:
        spans.setdefault(rows[mark.sample][1]["launch"], []).append(mark.t_s)
    for launch, seen in spans.items():
        homes = [c for c in record.commands if c.started_s - 0.01 <= min(seen) and max(seen) <= c.ended_s + 0.5]
        if not homes:
            yield Violation(f"launch {launch} was not inside one command", "sample_marks")


def _stage_times(
    rows: Mapping[str, tuple[Arm, Sample]], marked: Marked, profile: Mapping[str, Any]
) -> Iterator[Violation]:
    near, far = float(profile["marks_sample_tolerance_s"]), float(profile["marks_outlier_max_s"])
    sums: dict[str, list[float]] = {}
    beyond = 0
    for name, (arm, sample) in rows.items():
        seen, stages = marked[name], sample["stages"]
        pairs = (
            ("decode", stages["decode_s"], seen["end"].t_s - seen["first_token"].t_s),
            ("prefill", stages["prefill_s"], seen["first_token"].t_s - seen["start"].t_s),
        )
        for stage, said, saw in pairs:
            total = sums.setdefault(f"{stage} of {arm.name}", [0.0, 0.0, 0.0])
            total[0] += said
            total[1] += saw
            total[2] += 1
            if abs(said - saw) > far + 0.1 * said:
                yield Violation(
                    f"{stage}: the report says {said:.4f} s, the runner saw {saw:.4f} s",
                    arm.pointer(sample),
                    severity="violation",
                    arms=(arm.name,),
                )
        beyond += abs(pairs[0][1] - pairs[0][2]) > near
    yield from _stage_sums(sums, profile)
    if beyond > float(profile["marks_outlier_share_max"]) * len(rows):
        yield Violation(
            f"{beyond} of {len(rows)} samples differ by more than {near * 1000:.0f} ms from what the runner saw",
            severity="violation",
        )


def _stage_sums(sums: Mapping[str, list[float]], profile: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield sums that differ: a little makes a number not citable, more than a late runner explains refuses the run."""
    near, late = float(profile["marks_sample_tolerance_s"]), float(profile["marks_late_s"])
    for name, (said, saw, count) in sums.items():
        share = abs(said - saw) / max(said, saw, 1e-9)
        # A prefill is short: its marks may each be late by a fifth of what a single mark may.
        slack = near * count * 0.2 if name.startswith("prefill") else 1e-3
        if abs(said - saw) > 0.05 * max(said, saw) + late * count:
            yield Violation(
                f"{name}: the report sums to {said:.4f} s, the runner saw {saw:.4f} s ({share * 100:.1f} %)",
                detail={"gross": abs(said - saw) > GROSS_S + GROSS_SHARE * max(said, saw)},
            )
        elif abs(said - saw) > float(profile["marks_sum_tolerance"]) * max(said, saw) + slack:
            yield Violation(
                f"{name}: the report sums to {said:.4f} s, the runner saw {saw:.4f} s ({share * 100:.1f} %)",
                severity="violation",
            )
