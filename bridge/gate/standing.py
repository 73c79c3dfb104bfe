"""The standing claim of a set: what several sittings of one question say together.

A pure function of the sittings' verdicts, records and reports; whether a sitting counts by itself its own verdict says.
Only what takes more launches than one sitting has is looked at over all of them: each arm alone, the host's own loop,
and what is tolerated beside a ratio. Knows no file, clock or signature.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bridge.durations import duration_text
from bridge.gate.claims.speed import SECONDARY
from bridge.gate.facts.launch_series import load_of, series_of
from bridge.gate.facts.pair_series import series_named
from bridge.gate.interface import Evidence, Skip
from bridge.gate.judging import evidence_of
from bridge.gate.registry import rules
from bridge.gate.rules.launches import one_of
from bridge.launches.attempts import ShownInterval, too_many_doubtful
from bridge.launches.estimate import Launch
from bridge.launches.standing import APART_LEAST_S, Sitting, StandingRatio, missing_of, standing_ratio
from bridge.launches.stopping import BLOCKS, MODELS, SITTING_LAUNCHES
from bridge.launches.wording import NOT_MEASURED, unmeasured
from bridge.records.jobspec import JobSpec
from bridge.records.quotation import reason_text
from bridge.records.run import RunRecord
from bridge.records.turns import StopRule
from bridge.records.verdict import ClaimResult, Verdict
from bridge.run.stop_rule import Part

OVER_THE_SET: Final = ("G5-SOLO", "G5-REFERENCE", "G5-BUDGET", "G5-PREFILL")
"""Checks that a single sitting has too few launches for: they are made over those of all sittings."""
AGAIN_OVER_THE_SET: Final = ("G3-WAIT4",)
"""Checks that stand for each sitting and see more over all: of stretches alone of a program that takes turns itself."""
_PARTS: Final[Mapping[str, tuple[Part, str]]] = MappingProxyType(
    {
        "decode_speedup": ("decode", "decode"),
        "prefill_speedup": ("prefill", SECONDARY["prefill_speedup"][1]),
        "total_speedup": ("total", SECONDARY["total_speedup"][1]),
    }
)
_REASONS_MOST: Final = 12


@dataclass(frozen=True)
class JudgedSitting:
    """One sitting as a reader has it.

    Attributes:
        verdict: of the gate here, over this run alone.
        reports: bytes of every file the run left, by path below its report directory.
        refused: why the reader treats it as absent, None where he does not.
    """

    verdict: Verdict
    record: RunRecord
    spec: JobSpec
    reports: Mapping[str, bytes]
    refused: str | None = None

    @property
    def began_s(self) -> float:
        """When it began, on the clock of its host."""
        return dt.datetime.fromisoformat(self.record.started or self.record.claimed).timestamp()

    @property
    def number(self) -> int:
        """Which attempt of the question it is; 0 where its runner did not count."""
        return 0 if self.record.attempt is None else self.record.attempt.number


@dataclass(frozen=True)
class StandingClaim:
    """What a set says of one ratio.

    Attributes:
        id: of the claim in each sitting.
        sittings: in the order they began, those that have the ratio; of each the mean over its launches.
        run_ids: of these.
        ratio: over them; None where there are too few.
        looks: out of how many numbers it could have been chosen.
        wording: the only sentence that may be used for it.
        why: what stands against it; empty where it may be quoted.
    """

    id: str
    sittings: tuple[Sitting, ...]
    run_ids: tuple[str, ...]
    ratio: StandingRatio | None
    looks: int
    wording: str
    why: tuple[str, ...]

    @property
    def bounds(self) -> ShownInterval | None:
        """The interval that decides its word; None without a ratio."""
        return None if self.ratio is None else self.ratio.bounds(self.looks)


def standing_claims(sittings: Sequence[JudgedSitting], apart_s: float = APART_LEAST_S) -> tuple[StandingClaim, ...]:
    """Return what a set of sittings says, a claim for each ratio that the last one has.

    Args:
        sittings: all that the reader has of one set, in any order.
        apart_s: how far apart they had to begin; anything but the default is for a study, whose numbers nobody quotes.

    Raises:
        ValueError: there is none, or one is no sitting.
    """
    if not sittings or any(sitting.spec.sitting is None for sitting in sittings):
        raise ValueError("expected runs that are sittings of a standing claim")
    ordered = sorted(sittings, key=lambda sitting: sitting.began_s)
    evidences = [
        evidence_of(sitting.record.id, sitting.reports, sitting.record, sitting.spec, authority="attested")
        for sitting in ordered
    ]
    launched = [launches_of(evidence) for evidence in evidences]
    of_the_set = _over_all_launches(ordered)
    of_set = tuple(_unlike_each_other(ordered))
    names = dict.fromkeys(name for launches in launched for name in launches)
    return tuple(
        _claim(name, ordered, evidences, launched, (*of_set, *of_the_set.get(name, ())), apart_s) for name in names
    )


def launches_of(evidence: Evidence) -> dict[str, list[Launch]]:
    """Return the launches of each ratio that the runner's stamps give, by the claim's id."""
    definition = None if evidence.spec is None else evidence.spec.workload
    if definition is not None:
        ratios = [metric.name for metric in definition.metrics if metric.aggregate == "ratio"]
        series = {name: series_named(name, evidence, evidence.record) for name in ratios}
        return {name: list(one.launches) for name, one in series.items() if one is not None}
    found: dict[str, list[Launch]] = {}
    for report in evidence.reports:
        own = None if report.value is None else series_of(report, evidence)
        if own is not None:
            found |= {name: own.over(part) for name, (part, _) in _PARTS.items()}
    return found


def _claim(  # noqa: PLR0917 - one caller
    name: str,
    ordered: Sequence[JudgedSitting],
    evidences: Sequence[Evidence],
    launched: Sequence[Mapping[str, list[Launch]]],
    of_set: Sequence[str],
    apart_s: float,
) -> StandingClaim:
    means, run_ids, why = [], [], list(of_set)
    for sitting, evidence, launches in zip(ordered, evidences, launched, strict=True):
        values = [launch.log_ratio for launch in launches.get(name, [])]
        why += [f"{_place(sitting)}: {reason}" for reason in _lost(name, sitting, len(values))]
        if values:
            ended_s = dt.datetime.fromisoformat(sitting.record.ended).timestamp()
            mean = math.fsum(values) / len(values)
            means.append(Sitting(sitting.number, mean, sitting.began_s, ended_s, load_of(evidence)))
            run_ids.append(sitting.record.id)
    looks = max((sitting.record.attempt.looks for sitting in ordered if sitting.record.attempt is not None), default=1)
    first = ordered[0].spec.sitting
    why += missing_of(means, 0 if first is None else first.count, apart_s)
    ratio = standing_ratio(means)
    if ratio is None:
        return StandingClaim(name, tuple(means), tuple(run_ids), None, looks, "", tuple(why[:_REASONS_MOST]))
    bounds = ratio.bounds(looks)
    if (nothing := unmeasured(bounds)) is not None:
        why.append(nothing)
    wording = _worded(name, ordered[-1], ratio, means, looks)
    reasons = tuple(dict.fromkeys(why))[:_REASONS_MOST]
    return StandingClaim(name, tuple(means), tuple(run_ids), ratio, looks, wording, reasons)


def _worded(name: str, last: JudgedSitting, ratio: StandingRatio, means: Sequence[Sitting], looks: int) -> str:
    claim = _claim_of(name, last)
    said = _PARTS[name][1] if name in _PARTS else name
    words = ratio.words([sitting.load for sitting in means], looks)
    rest = "" if claim is None or claim.baseline is None else f", vs {claim.baseline}"
    if last.spec.workload is not None:
        rest = f", {last.spec.workload.label}, both as identified"
    return f"over {ratio.sittings} sittings in {duration_text(ratio.span_s)}: {said} {words}{rest}"


def _claim_of(name: str, sitting: JudgedSitting) -> ClaimResult | None:
    return next((claim for claim in sitting.verdict.claims if claim.id == name), None)


def _place(sitting: JudgedSitting) -> str:
    own = sitting.spec.sitting
    return f"sitting {0 if own is None else own.repeat + 1}"


def _lost(name: str, sitting: JudgedSitting, launches: int) -> Iterator[str]:
    """Yield what a sitting lacks by itself to be one of a standing claim."""
    if sitting.refused is not None:
        yield sitting.refused
        return
    claim = _claim_of(name, sitting)
    if sitting.verdict.decision == "rejected" or claim is None:
        yield from map(reason_text, sitting.verdict.why[:1] or (f"it makes no claim {name}",))
        return
    if launches != SITTING_LAUNCHES:
        yield f"{launches} of {SITTING_LAUNCHES} launches finished a pair"
    alone = "" if sitting.spec.sitting is None else one_of(sitting.spec.sitting)
    for premise in claim.premises:
        for reason in () if premise.held else premise.why:
            of_set = reason.partition(":")[0] in OVER_THE_SET
            if not (of_set or reason.endswith(alone) or reason.startswith(NOT_MEASURED)):
                yield reason_text(f"{premise.premise}: {reason}")


def _unlike_each_other(ordered: Sequence[JudgedSitting]) -> Iterator[str]:
    """Yield why runs are not the sittings of one set, each once and none missing."""
    places = [sitting.spec.sitting for sitting in ordered if sitting.spec.sitting is not None]
    if len({place.id for place in places}) > 1:
        yield "they are of several sets: each is a claim of its own"
    if len({place.count for place in places}) > 1:
        yield "they do not agree on how many sittings there are"
    numbers = sorted(place.repeat for place in places)
    missing = sorted(set(range(places[0].count)) - set(numbers))
    if missing:
        which = ", ".join(str(number + 1) for number in missing[:8])
        yield f"sitting {which} of {places[0].count} is missing"
    if len(set(numbers)) < len(numbers):
        yield "one sitting is there twice"
    attempts = [sitting.record.attempt for sitting in ordered]
    keys = {attempt.key for attempt in attempts if attempt is not None}
    if None in attempts:
        yield "the runner did not count the attempts"
    elif len(keys) > 1:
        yield "they are not of one question on one host: program, models, parameters or machine changed between them"
    doubtful = sum(sitting.verdict.decision == "rejected" for sitting in ordered)
    if too_many_doubtful(doubtful):
        yield f"{doubtful} sittings were refused"


def _over_all_launches(ordered: Sequence[JudgedSitting]) -> dict[str, tuple[str, ...]]:
    """Return what the checks that need more launches than a sitting has say of all of them, by claim id."""
    last = ordered[-1]
    launches = tuple(launch for sitting in ordered for launch in sitting.record.launches)
    record = last.record.evolve(launches=launches)
    evidence = evidence_of(last.record.id, last.reports, record, _as_one_claim(last.spec), authority="attested")
    found: dict[str, list[str]] = {name: [] for name in launches_of(evidence)}
    for code in (*OVER_THE_SET, *AGAIN_OVER_THE_SET):
        outcome = rules()[code](evidence)
        for violation in () if isinstance(outcome, Skip) else outcome:
            for name in violation.claims or tuple(found):
                found.setdefault(name, []).append(f"over all sittings: {violation.message} ({code})")
    return {name: tuple(reasons) for name, reasons in found.items()}


def _as_one_claim(spec: JobSpec) -> JobSpec:
    """Return the job spec as if all launches were of one claim run, so that every check has its full power."""
    commands = []
    for command in spec.commands:
        series = command.launches
        if series is not None:
            rule = MODELS if series.rule.blocks == 1 else BLOCKS
            studied = StopRule(least=rule.least, most=rule.most, blocks=rule.blocks)
            command = command.evolve(launches=series.evolve(rule=studied))  # noqa: PLW2901
        commands.append(command)
    return spec.evolve(commands=tuple(commands), sitting=None)
