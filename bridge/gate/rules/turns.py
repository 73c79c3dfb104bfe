"""Rules on turns: who handed them out, whether the report is of what was done in them, and who the baseline is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from bridge.gate.claims import claim_drafts
from bridge.gate.claims.latency import LATENCIES
from bridge.gate.facts.launch_series import Series, references, series_of, tolerated
from bridge.gate.facts.peer_isolation import made_by_runner
from bridge.gate.facts.samples import Arm, Sample, arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import OWN_BASELINE, PAIRED, SAMPLED, STUDIES
from bridge.gate.rule import record_rule, report_rule
from bridge.gate.rules.launches import STUDIED
from bridge.launches.checks import (
    BUDGET_MOST,
    HANDICAP_MOST,
    HANDICAP_UNKNOWN,
    PREFILL_MOST,
    QUICKER_MOST,
    favour,
    handicap,
    handicap_at_most,
)
from bridge.launches.stopping import decide
from bridge.records.run import RunRecord
from bridge.records.turns import LaunchRecord, SoloStretch, Turn

STAMPED: Final = "launches"
"""What a ratio says it is over where it was computed from the runner's stamps of turns."""
_LATE_TURN_S: Final = 0.01
_LATE_SHARE: Final = 0.02
_LATE_LAUNCH_S: Final = 1.0
"""How much sooner a launch may begin, or later end, than the command it is one of: who starts it stamps both."""


@report_rule(
    "G4-TURNS",
    "times",
    severity="violation",
    kinds=(*SAMPLED, *STUDIES),
    remedy="Use a preset whose command is launched in a series and takes turns; see docs/turns.md.",
)
def require_turns(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Times are the runner's own stamps of turns that it handed out, and the report is of what was done in them.

    Marks that a program sends tell when it sent them. Only who says which arm goes next, and stamps order and answer,
    knows how long an arm took. The program's own clock is a cross-check: it cannot have spent more time than the runner
    saw. A turn ends at the first step that reaches its tokens, so the steps of a sample say how many each of its turns
    had: a list of steps that were not taken gives other turns, and samples of a launch that never was have none. A run
    that was cancelled is over with the launch it cut; in one that went on a launch was cut by its own program, which
    had seen how it went.
    """
    if evidence.record is None or made_by_runner(evidence):
        return
    told = tuple(draft.id for draft in claim_drafts(report, evidence) if draft.detail.get("over") != STAMPED)
    series = series_of(report, evidence)
    if told:
        short = series is not None and decide(series.rule, series.launches).ratio is None
        if series is None:
            why = "the runner handed out no turns for it"
        elif short:
            why = "too few launches finished for their stamps to say it"
        else:
            why = "it is over the program's own clock, not the turns that the runner handed out"
        yield Violation(f"{why}: the program itself says how long its arms took", "sample_marks", claims=told)
    if series is not None:
        if said := series.cut_short():
            yield Violation(said, "launches")
        arms = arms_of(report, evidence).all
        yield from _unstamped(series, arms)
        for launch in series.counted:
            for arm in arms:
                yield from _work(launch, arm, prefill=series.plan.prefill)


def _unstamped(series: Series, arms: Sequence[Arm]) -> Iterator[Violation]:
    """Yield arms with samples of launches that the supervisor did not start: nothing says that they were decoded."""
    known = {launch.number - 1 for launch in series.counted}
    for arm in arms:
        strange = sorted({sample["launch"] for sample in arm.samples} - known)
        if strange:
            said = f"arm {arm.name!r} has samples of {len(strange)} launches that never were, e.g. {strange[0] + 1}"
            yield Violation(said, f"/arms/{arm.index}", severity="reject", premise="outputs")


def _work(launch: LaunchRecord, arm: Arm, *, prefill: bool) -> Iterator[Violation]:
    """Yield how a report's samples of an arm are not what the arm did in the turns of one launch."""
    turns = [turn for turn in launch.turns if turn.arm == arm.name]
    samples = [sample for sample in arm.measured if sample["launch"] == launch.number - 1]
    if launch.cut is not None and not samples:
        return
    where = f"launch {launch.number}, arm {arm.name!r}"
    said, saw = sum(sample["output_tokens"] for sample in samples), sum(turn.tokens for turn in turns)
    if said != saw:
        yield Violation(
            f"{where}: the report has {said} tokens, the turns had {saw}",
            f"/arms/{arm.index}",
            severity="reject",
            premise="outputs",
        )
        return
    said_s = math.fsum(sample["stages"]["total_s"] for sample in samples)
    saw_s = math.fsum(turn.done_s - turn.go_s for turn in turns)
    if said_s > saw_s * (1.0 + _LATE_SHARE) + _LATE_TURN_S:
        yield Violation(
            f"{where}: its own clock says {said_s:.3f} s, the turns lasted {saw_s:.3f} s",
            f"/arms/{arm.index}",
            arms=(arm.name,),
        )
    if prefill:
        yield from _steps(launch.turn_tokens, turns, samples, arm, where)


def _steps(
    turn_tokens: int, turns: Sequence[Turn], samples: Sequence[Sample], arm: Arm, where: str
) -> Iterator[Violation]:
    left = list(samples)
    for number in sorted({turn.sample for turn in turns}):
        mine = [turn for turn in turns if turn.sample == number]
        group, left = left[: mine[0].tokens], left[mine[0].tokens :]
        if turn_tokens and any(sample["counters"]["guard_rejections"] for sample in group):
            continue  # which of its steps put out nothing is not told
        wanted = expected_turns(group, turn_tokens)
        if [turn.tokens for turn in mine] != wanted:
            yield Violation(
                f"{where}, sample {number}: turns had {[turn.tokens for turn in mine]} tokens, the steps of the report "
                f"give {wanted}",
                f"/arms/{arm.index}",
                severity="reject",
                premise="outputs",
                arms=(arm.name,),
            )


def expected_turns(samples: Sequence[Sample], turn_tokens: int) -> list[int]:
    """Return how many tokens each turn of a supervisor's sample has by the steps of its prompts.

    The first turn forwards every prompt and takes a token of each. Each later one goes on, prompt after prompt, to the
    first step that reaches the next multiple of ``turn_tokens``, of 0 to the end.
    """
    sizes = [size for sample in samples for size in _sizes(sample)]
    found, have, taken = [len(samples)], len(samples), 0
    for size in sizes:
        taken += size
        if turn_tokens and have + taken >= (have // turn_tokens + 1) * turn_tokens:
            found.append(taken)
            have, taken = have + taken, 0
    return [*found, taken] if taken else found


def _sizes(sample: Sample) -> list[int]:
    """Return how many tokens each step after the prefill put out; the budget or a stop token cuts the last one."""
    left = sample["output_tokens"] - 1
    accepted = sample["accepted_per_step"]
    sizes = []
    for count in [0] * left if accepted is None else accepted:
        sizes.append(min(count + 1, left))
        left -= sizes[-1]
    return [size for size in sizes if size]


@record_rule("G4-STAMPS", "times", remedy="Take the record as the runner wrote it; `kakeya-mac verify ID`.")
def require_order_of_stamps(record: RunRecord, _evidence: Evidence) -> Iterator[Violation]:
    """The runner's stamps are in order: launch after launch, turn after turn, each inside its launch.

    A ratio is made of the seconds between stamps alone. One supervisor hands turns out one at a time on one clock: two
    that overlap, or one before its process was ready, were not stamped by it. Launches come one after the other, each
    with its reference behind it; from the first one's readiness to the last turn it is no longer than their command
    lasted. A launch itself begins before its command and ends after it, by whatever a busy machine takes for folders.
    """
    by_command: dict[str, list[LaunchRecord]] = {}
    for launch in record.launches:
        by_command.setdefault(launch.command, []).append(launch)
    for name, launches in by_command.items():
        before_s = 0.0
        for place, launch in enumerate(launches):
            where = f"launch {launch.number} of {name}"
            if launch.number != place:
                yield Violation(f"{where} is the one numbered {place} in order", "launches")
            if launch.started_s < before_s:
                yield Violation(f"{where} began before the one before it was over", "launches")
            if said := _disorder(launch):
                yield Violation(f"{where}: {said}", "launches")
            before_s = launch.ended_s if launch.reference is None else launch.reference.done_s
        ran = next((one for one in record.commands if one.name == name), None)
        stamps = [stamp for launch in launches for stamp in _within_command(launch)]
        lasted_s = max(stamps) - min(stamps) if stamps else 0.0
        if ran is not None and lasted_s > ran.ended_s - ran.started_s + _LATE_LAUNCH_S:
            said = f"{lasted_s:.3f} s of turns do not fit into {ran.ended_s - ran.started_s:.3f} s of {name}"
            yield Violation(said, "launches")


def _within_command(launch: LaunchRecord) -> Iterator[float]:
    """Yield the moments of a launch that lie between the beginning and the end of what it launched."""
    if launch.ready_s is not None:
        yield launch.ready_s
    spans = (*launch.turns, *launch.solos, *(() if launch.reference is None else (launch.reference,)))
    for one in spans:
        yield from (one.go_s, one.done_s)


def _disorder(launch: LaunchRecord) -> str:
    """Return what is out of order within a launch, an empty text where nothing is."""
    stamped: list[Turn | SoloStretch] = sorted((*launch.turns, *launch.solos), key=lambda one: one.number)
    if launch.ready_s is None:
        return "it was handed turns and never ready" if stamped else ""
    spans = [(one.go_s, one.done_s) for one in stamped]
    points = [launch.started_s, launch.ready_s, *(point for span in spans for point in span), launch.ended_s]
    if launch.reference is not None:
        points += [launch.reference.go_s, launch.reference.done_s]
    if len({one.number for one in stamped}) < len(stamped):
        return "two turns have one number"
    late = next((place for place, (one, other) in enumerate(pairwise(points)) if other < one), None)
    return "" if late is None else f"its stamps go back from {points[late]:.6f} to {points[late + 1]:.6f} s"


@report_rule(
    "G5-REFERENCE",
    "times",
    severity="violation",
    kinds=tuple(kind for kind in PAIRED if kind not in OWN_BASELINE),
    remedy="Use a preset whose series names a reference; do not slow the baseline down.",
)
def compare_with_reference(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The baseline is as fast as the host's own loop, which decodes the same prompts alone after each launch.

    Beside a slow baseline anything is fast. A process of the host's own, timed by the runner, says what plain decoding
    costs on this machine in this minute: the one-sided 95 % lower bound of how much slower the baseline is stays below
    5 %, and a handicap of 10 % is found in 99 of 100 runs of 8 launches. What scatters so that a baseline slower by a
    third is not excluded either says nothing. One that is quicker than the host's loop by a half does other work.
    """
    series = series_of(report, evidence)
    if series is None:
        return
    own, reference = references(series)
    missing = len(series.launches) - len(reference)
    if missing:
        said = f"{missing} of {len(series.launches)} launches have no reference of the host's own beside their baseline"
        yield Violation(said, "launches")
    if reference and (slower := handicap(own, reference)) > HANDICAP_MOST:
        yield Violation(
            f"the baseline takes at least {math.expm1(slower) * 100:.1f} % longer a token than the host's own loop, at "
            f"most {math.expm1(HANDICAP_MOST) * 100:.0f} % is noise",
            "launches",
        )
    elif reference and (most := handicap_at_most(own, reference)) < -QUICKER_MOST:
        yield Violation(
            f"the baseline alone names at least {math.exp(-most):.1f} times as many tokens a second as the host's own "
            f"loop, at most {math.exp(QUICKER_MOST):.1f} is noise",
            "launches",
        )
    elif (
        series.rule in STUDIED
        and len(reference) >= series.rule.least
        and (most := handicap_at_most(own, reference)) > HANDICAP_UNKNOWN
    ):
        yield Violation(
            f"whether the baseline is slower a token than the host's own loop is not known: by up to "
            f"{math.expm1(most) * 100:.0f} %, expected at most {math.expm1(HANDICAP_UNKNOWN) * 100:.0f} %",
            "launches",
        )


@report_rule(
    "G5-BUDGET",
    "times",
    severity="violation",
    kinds=tuple(kind for kind in PAIRED if kind not in OWN_BASELINE),
    remedy="Find what slows the baseline, helps the candidate in its turns, or decodes before them.",
)
def keep_within_the_budget(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """What is tolerated beside a ratio comes to 5 % of it at most, all of it together.

    A baseline a little slower than the host's loop, turns a little kinder than the stretches alone, a little decoding
    in the first turns: each by itself would pass, and together they made 1.19 of 1.00. They are added up launch by
    launch; the one-sided 95 % lower bound of the sum stays below 5 %. A total of 10 % is found in 98 of 100 runs of 8
    launches that differ by 3 %, and one of 5 % in 5 (docs/evidence/simulation.md).
    """
    series = series_of(report, evidence)
    if series is None:
        return
    handicaps, gains, hidden = tolerated(series, PREFILL_MOST)
    owed, always = favour(handicaps, gains, hidden), favour(handicaps, gains, [0.0] * len(hidden))
    if owed > BUDGET_MOST:
        yield Violation(
            f"the ratio owes at least {math.expm1(owed) * 100:.1f} % to a slow baseline, kind turns and decoding before"
            f" turns together, at most {math.expm1(BUDGET_MOST) * 100:.0f} % is tolerated",
            "launches",
            claims=() if always > BUDGET_MOST else ("decode_speedup", *LATENCIES),  # end to end nothing is hidden
        )


def met(series: Series, launch: int) -> LaunchRecord | None:
    """Return the record of a report's launch, counted from 0; None where no such launch was stamped."""
    return next((one for one in series.counted if one.number == launch + 1), None)
