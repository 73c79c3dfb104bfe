"""Rules on the launches of a run: how many there are, when they ended, and what was timed beside their turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Final

from bridge.gate.claims.latency import LATENCIES
from bridge.gate.facts.accelerators import accelerator_of, seen_of
from bridge.gate.facts.launch_series import Series, decoded_early, incomparable, series_of, solo_ratios, worked
from bridge.gate.facts.samples import StageName, arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import OWN_BASELINE, PAIRED, UNSEEN
from bridge.gate.rule import report_rule
from bridge.launches.checks import (
    DECODING_MOST,
    EQUAL_TIMES_MOST,
    PREFILL_MOST,
    SOLO_UNKNOWN,
    at_least,
    is_clock,
    mean_interval,
    solo_disagrees,
    solo_unknown,
)
from bridge.launches.estimate import rotations
from bridge.launches.loads import whole_loads
from bridge.launches.stopping import BLOCKS, MODELS, PROCESS_PAIRS, decide, seconds_needed, stopping_point
from bridge.launches.wording import too_few
from bridge.records.request import SweepPlace

STUDIED: Final = (MODELS, BLOCKS, PROCESS_PAIRS)
SLEPT_MOST_S: Final = 0.1
WORKED_LEAST: Final = 0.5
LONGEST_MOST: Final = 3.0
"""How many times as long as the median of them a launch may last."""


@report_rule(
    "G5-LAUNCHES",
    "ratio",
    severity="violation",
    kinds=PAIRED,
    remedy="Give the run the minutes it names; unchanged rule.",
)
def require_launches(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Enough launches ran, and they ended when the rule over launches says so.

    A launch is a process and the unit of every ratio: what is timed inside one shares its memory layout and its minute.
    Error rates were simulated for this rule; a run that ends when its author likes the number has others: a program may
    spend the time of the launches to come in one. How wide the interval came out decides nothing.
    """
    series = series_of(report, evidence)
    if series is None:
        return
    if evidence.spec is not None and evidence.spec.sitting is not None:
        yield Violation(one_of(evidence.spec.sitting), "launches")
        return
    if series.plan.asks is not None:
        yield from answered_only(series)
        return
    if series.plan.load is not None:
        yield from unlike_drawn_loads(series)
        return
    if series.rule not in STUDIED:
        yield Violation(f"the launches followed a rule whose error rates nobody simulated: {series.rule}", "launches")
    decision = decide(series.rule, series.launches)
    if decision.launches < series.rule.least:
        spent = [record.ended_s - record.started_s for record in series.counted]
        whole, _ = rotations(series.launches, series.rule.blocks)
        said = too_few(len(whole), series.rule.least, seconds_needed(series.rule, spent), len(series.launches))
        yield Violation(said, "launches")
    elif not decision.stop and (said := _time_spent(series)):
        yield Violation(said, "launches")
    end = stopping_point(series.rule, series.launches)
    if end is not None and end < len(series.launches):
        yield Violation(
            f"{len(series.launches)} launches finished a pair, the rule stops after {end}",
            "launches",
            severity="reject",
        )


def answered_only(series: Series, claims: tuple[str, ...] = ()) -> Iterator[Violation]:
    """Yield why the number of a run that was asked a word is no claim, and whether it went on after its answer."""
    word = series.answer["answer"]["word"]
    said = f"it was asked whether it is {word}, in three looks: that is answered, and no number of it is measured"
    yield Violation(said, "launches", claims=claims)
    if (end := series.looked_past) is not None:
        said = f"{len(series.launches)} launches finished a pair, whether it is {word} was answered after {end}"
        yield Violation(said, "launches", severity="reject", claims=claims)


def unlike_drawn_loads(series: Series, claims: tuple[str, ...] = ()) -> Iterator[Violation]:
    """Yield how launches are not those of a run whose load was drawn: as many at each load, ended by number or time."""
    blocks = series.rule.blocks
    whole = whole_loads(series.launches, blocks)
    if len(whole) < series.rule.least:
        spent = [record.ended_s - record.started_s for record in series.counted]
        said = too_few(len(whole), series.rule.least, seconds_needed(series.rule, spent))
        yield Violation(f"{said}, half of them at each load", "launches", claims=claims)
    records = {record.number: record for record in series.counted}
    for number, record in records.items():
        again = records.get(number + blocks)
        first_of_two = (number - 1) // blocks % 2 == 0
        if record.loaded is None or (first_of_two and again is not None and bool(record.loaded) == bool(again.loaded)):
            said = f"launch {number} and the one after its rotation do not share out the load that was drawn"
            yield Violation(said, "launches", severity="reject", claims=claims)
            return


def one_of(sitting: SweepPlace) -> str:
    """Return why the ratio of a sitting is no claim by itself."""
    return (
        f"sitting {sitting.repeat + 1} of {sitting.count}: what the machine is like for a while is in all of its "
        "launches; the sittings together say it (kakeya-mac quote, with all of them)"
    )


def _time_spent(series: Series) -> str:
    """Return that one launch took the time that others lacked, empty where none did; the clock stands while asleep."""
    lasted = {record.number: record.ended_s - record.started_s for record in series.counted}
    longest, usual_s = max(lasted, key=lambda number: lasted[number]), statistics.median(lasted.values())
    if lasted[longest] <= LONGEST_MOST * usual_s:
        return ""
    return (
        f"it ended as its time was over, of which launch {longest} alone took {lasted[longest]:.0f} s; the median is "
        f"{usual_s:.0f} s, at most {LONGEST_MOST:g} times that is another load"
    )


@report_rule("G5-SOLO", "times", severity="violation", kinds=PAIRED, remedy="Measure whole samples instead of turns.")
def compare_solo_stretches(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Each arm alone shows the ratio that the turns show, to 10 %, and no arm mostly slept while the other worked.

    Turns may slow one arm down more than the other, where a queue drains between them; what puts out nothing alone has
    nothing to compare, and what scatters so that half as much again is not excluded agrees with anything. Processor
    time says nothing within a turn, since workers of the other arm spin; alone it does.
    """
    series = series_of(report, evidence)
    if series is None:
        return
    if series.plan.solo_s <= 0.0 and report.kind in OWN_BASELINE:  # of others the missing reference is said
        yield Violation("no arm was to run alone: nothing compares the turns, and nobody saw who worked", "launches")
    solo, turns = solo_ratios(series)
    if silent := incomparable(series):
        yield Violation(f"in {silent} of {len(series.counted)} launches an arm put out nothing alone", "launches")
    unknown = series.rule in STUDIED and len(solo) >= series.rule.least and solo_unknown(solo, turns)
    if solo and (unknown or solo_disagrees(solo, turns)):
        found = mean_interval([a - b for a, b in zip(solo, turns, strict=True)])
        apart = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
        more = f": too wide to agree, {SOLO_UNKNOWN:.3f} is not excluded" if unknown else ""
        yield Violation(f"alone the arms' log ratio differs from that of the turns by {apart}{more}", "launches")
    device = accelerator_of(report)
    shares = worked(series) if device is None else seen_of(evidence, series).alone
    if shares is not None and min(shares) < WORKED_LEAST * max(shares):
        lazy, place = series.plan.arms[shares.index(min(shares))], "the processor" if device is None else device
        yield Violation(
            f"arm {lazy!r} alone kept {place} busy {min(shares):.2f} of the time, the other {max(shares):.2f}",
            "launches",
        )


@report_rule(
    "G5-PREFILL",
    "times",
    severity="violation",
    kinds=PAIRED,
    remedy="Decode in the turns that are of decoding; quote the ratio end to end.",
)
def keep_decoding_in_its_turns(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """First turns, which no ratio of decoding holds, take as long as the prompt does and hold no decoding.

    What is decoded before the first token is named takes no time afterwards, and end to end nothing has changed: the
    stretches alone agree. Beyond one and a half times the baseline's prefill a tenth of the decoding may be hidden, by
    the one-sided 95 % lower bound over launches. A baseline that puts its prefill off is found by the same measure.
    A candidate that puts its own off is quicker at it than one target over one prompt can be.
    """
    series = series_of(report, evidence)
    if series is None or not series.plan.prefill:
        return
    candidate, most = f"the first turns of arm {series.plan.arms[1]!r}", f"{PREFILL_MOST:g} times"
    quicker = at_least([launch.log_ratio for launch in series.over("prefill")])
    if quicker > math.log(PREFILL_MOST):
        said = f"{candidate} are at least {math.exp(quicker):.1f} times as quick as the baseline's"
        yield Violation(f"{said}, over one prompt at most {most}", "launches", claims=("prefill_speedup", *LATENCIES))
    share = at_least(decoded_early(series, PREFILL_MOST))
    if share > DECODING_MOST:
        said = f"{candidate} take at least {share * 100:.0f} % of its decoding longer than {most} the baseline's"
        more = f"at most {DECODING_MOST * 100:.0f} %: decoding in them is in no ratio"
        yield Violation(f"{said}, {more}", "launches", claims=("decode_speedup", *LATENCIES))


@report_rule("G5-CLOCK", "times", severity="violation", kinds=PAIRED, remedy="Time with the backend's clock, awake.")
def require_clock(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Times come from a clock: they do not repeat, and the machine did not sleep in between.

    Single equal values are honest where a clock ticks every 42 ns; more than 5 % of an arm's are from a table.
    """
    for arm in arms_of(report, evidence).all:
        # What is seen from outside only may hold its first token back.
        stage: StageName = "total_s" if arm.name in UNSEEN else "decode_s"
        times = [float(sample["stages"][stage]) for sample in arm.measured if sample["stages"][stage] > 0]
        if not is_clock(times):
            share = 1.0 - len(set(times)) / len(times)
            most = f"at most {EQUAL_TIMES_MOST * 100:.0f} %"
            said = f"arm {arm.name!r}: {share * 100:.0f} % of its times repeat another, {most}"
            yield Violation(said, "/arms", arms=(arm.name,))
    telemetry = None if evidence.record is None else evidence.record.telemetry
    if telemetry is not None and telemetry.slept_s is not None and telemetry.slept_s > SLEPT_MOST_S:
        yield Violation(f"the machine slept {telemetry.slept_s:.1f} s during the run", "telemetry")
    series = series_of(report, evidence)
    for record in () if series is None else series.records:
        if record.slept_s > SLEPT_MOST_S:
            yield Violation(f"the machine slept {record.slept_s:.1f} s in launch {record.number}", "launches")
