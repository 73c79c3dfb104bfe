"""The launches of a run as the supervisor stamped them: what a ratio rests on, this run's and its earlier attempts'.

Knows records and ratios; what may be said of them is for claims and rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from bridge.gate.facts.earlier_attempts import left_out, standing_of, told
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report
from bridge.launches.attempts import ShownInterval, weaker
from bridge.launches.estimate import Launch, rotations
from bridge.launches.loads import LoadedRatio, ShownLoads, pool_loads, whole_loads
from bridge.launches.sittings import PooledRatio, pool
from bridge.launches.stopping import LaunchRule, in_groups
from bridge.launches.wording import RatioWords
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.turns import LaunchRecord, LaunchSeries, SoloStretch, Turn
from bridge.run.stop_rule import Part, answered, counting, finished, looks_of, rule_of, turns_of

PARTS: Final[tuple[Part, Part]] = ("prefill", "decode")
Stretch = TypeVar("Stretch", SoloStretch, Turn)


@dataclass(frozen=True)
class StampedSample:
    """One sample that an arm finished, a prompt or several one after the other, as the supervisor stamped its turns.

    Attributes:
        first_s: seconds of its first turn, which forwards each prompt and takes a token of it.
        prompts: how many it has.
        decode_s: seconds of its other turns together.
        decode_tokens: tokens of those turns.
    """

    first_s: float
    prompts: int
    decode_s: float
    decode_tokens: int


@dataclass(frozen=True)
class Series:
    """The launches of one command.

    Attributes:
        plan: what the job spec asked for.
        records: as stamped, launch 0 first.
        launches: those that count and finished a pair.
    """

    plan: LaunchSeries
    records: tuple[LaunchRecord, ...]
    launches: tuple[Launch, ...]

    @property
    def rule(self) -> LaunchRule:
        """When it was to end."""
        return rule_of(self.plan)

    def over(self, part: Part) -> list[Launch]:
        """Return the launches with the ratio of a part of their samples."""
        return finished(self.plan, self.records, part)

    def rates(self) -> list[Launch]:
        """Return the launches with the logarithm of the baseline's tokens a second, in the samples that it finished."""
        found = []
        for record in self.counted:
            turns = turns_of(self.plan, record, self.plan.arms[0], "decode")
            over = {turn.sample for turn in turns if turn.over}
            spent = [(turn.done_s - turn.go_s, turn.tokens) for turn in turns if turn.sample in over]
            token_s = _rate(spent)
            if token_s is not None:
                found.append(Launch(-math.log(token_s), record.block, bool(record.loaded)))
        return found

    def samples(self, arm: str) -> list[list[StampedSample]]:
        """Return by launch the samples that an arm finished; none where the plan tells no first turn apart."""
        return [self._finished(record, arm) for record in self.counted] if self.plan.prefill else []

    def _finished(self, record: LaunchRecord, arm: str) -> list[StampedSample]:
        decoding = turns_of(self.plan, record, arm, "decode")
        over = {turn.sample for turn in record.turns if turn.arm == arm and turn.over}
        samples = []
        for first in turns_of(self.plan, record, arm, "prefill"):
            rest = [turn for turn in decoding if turn.sample == first.sample]
            if first.sample in over and first.tokens > 0:
                decode_s = math.fsum(turn.done_s - turn.go_s for turn in rest)
                tokens = sum(turn.tokens for turn in rest)
                samples.append(StampedSample(first.done_s - first.go_s, first.tokens, decode_s, tokens))
        return samples

    @property
    def counted(self) -> list[LaunchRecord]:
        """All but the launch that calibrates."""
        return counting(self.records)

    @property
    def answer(self) -> dict[str, Any]:
        """The word that it was asked and what three looks said; empty where it was to measure."""
        if self.plan.asks is None:
            return {}
        yes = answered(self.plan, self.launches)
        text = "open" if yes is None else "yes" if yes else "no"
        return {"answer": {"word": self.plan.asks.word, "answer": text, "launches": len(self.launches)}}

    @property
    def looked_past(self) -> int | None:
        """After how many launches the word was answered that it was asked, where further ones ran; None elsewhere."""
        if self.plan.asks is None:
            return None
        looks = (look for look in looks_of(self.plan) if look < len(self.launches))
        return next((look for look in looks if answered(self.plan, self.launches[:look]) is not None), None)

    @property
    def cut(self) -> bool:
        """Whether a launch did not come to its end."""
        return any(record.cut is not None for record in self.records)

    def cut_short(self) -> str:
        """Return how many launches that count did not come to their end, in words; empty where all did."""
        short = [record for record in self.counted if record.cut is not None]
        if not short:
            return ""
        said = f"{len(short)} of {len(self.counted)} launches that count were cut before their end"
        return f"{said}, e.g. launch {short[0].number}: {short[0].cut}"


@dataclass(frozen=True)
class PooledSeries:
    """The series of one plan that a claim is made over.

    Attributes:
        every: this run's, then those of its earlier attempts that are pooled.
        whole: those of them that are beyond doubt.
        spoilt: which earlier attempts are left out, or in and out, in words.
    """

    every: Sequence[Series]
    whole: Sequence[Series]
    spoilt: str


@dataclass(frozen=True)
class SeriesRatio:
    """What this run and its earlier attempts say together.

    Attributes:
        pooled: every launch with a finished pair.
        shown: the interval that holds with and without attempts that were cut or may be spoilt, corrected for looks.
        looks: how many ratios it was chosen from.
        values: what each pooled launch gave, as a logarithm.
        spoilt: which earlier attempts are left out, or in and out, in words.
        ends: the ratio at both loads, where the runner drew them; None elsewhere.
        loads: the same as it is printed: it holds and is corrected as `shown` is.
    """

    pooled: PooledRatio
    shown: ShownInterval
    looks: int
    values: tuple[float, ...]
    spoilt: str = ""
    ends: LoadedRatio | None = None
    loads: ShownLoads | None = None

    def words(self, evidence: Evidence, least: int) -> RatioWords:
        """Return what may be said of it as a ratio.

        Args:
            evidence: which says what others used of the machine.
            least: how many launches a claim takes.
        """
        units, load = self.pooled.unit == "sitting", load_of(evidence)
        ends = "" if self.loads is None else str(self.loads)
        return RatioWords(self.shown, self.values, self.pooled.sittings, load, units, self.looks, least, ends)


def series_of(report: Report, evidence: Evidence) -> Series | None:
    """Return the launches whose two arms are the report's; None where no turns were handed out."""
    return evidence.derived(("series", report.path), lambda: _of_record(report, evidence, evidence.record))


def _of_record(report: Report, evidence: Evidence, record: RunRecord | None) -> Series | None:
    arms = arms_of(report, evidence)
    other = arms.candidate or arms.control  # a baseline alone is measured beside itself
    if record is None or evidence.spec is None or arms.baseline is None or other is None:
        return None
    names = (arms.baseline.name, other.name)
    for command, plan in _plans(evidence.spec):
        records = tuple(one for one in record.launches if one.command == command)
        if plan.arms == names and records:
            return Series(plan, records, tuple(finished(plan, records)))
    return None


def _plans(spec: JobSpec) -> list[tuple[str, LaunchSeries]]:
    return [(command.name, command.launches) for command in spec.commands if command.launches is not None]


def series_ratio(report: Report, evidence: Evidence, part: Part = "decode", questions: int = 1) -> SeriesRatio | None:
    """Return the ratio over this run's launches and those of its earlier attempts; None without enough of them.

    Args:
        report: whose arms.
        evidence: the records of this run and the earlier ones.
        part: of each sample.
        questions: among how many ratios of one report it is; its interval is as wide as that asks.
    """
    return _over_attempts(
        report, evidence, lambda one: one.over(part), f"{part}_speedup", looks=evidence.looks, questions=questions
    )


def series_rate(report: Report, evidence: Evidence) -> SeriesRatio | None:
    """Return the baseline's tokens a second of decoding over this run's launches and those of its earlier attempts.

    None where no turns were handed out, or with too few launches.
    """
    return _over_attempts(report, evidence, Series.rates, "baseline_tokens_per_s", looks=evidence.looks)


def _over_attempts(
    report: Report,
    evidence: Evidence,
    values: Callable[[Series], list[Launch]],
    claim: str,
    *,
    looks: int = 1,
    questions: int = 1,
) -> SeriesRatio | None:
    """Return what the launches of this run and of its earlier attempts say together of a value that each has."""
    pooled = pooled_series(report, evidence, claim)
    if pooled is None:
        return None
    return pooled_ratio(pooled.every, pooled.whole, values, looks=looks, questions=questions, spoilt=pooled.spoilt)


def pooled_series(report: Report, evidence: Evidence, claim: str) -> PooledSeries | None:
    """Return the series that a claim of this run is made over; None where no turns were handed out.

    Args:
        report: whose arms.
        evidence: the records of this run and the earlier ones.
        claim: its id.
    """
    own = series_of(report, evidence)
    if own is None:
        return None
    of_attempts = {
        name: series
        for name, record in evidence.earlier_records.items()
        if (series := _of_record(report, evidence, record)) is not None and series.plan == own.plan
    }
    every, whole = split_attempts(own, of_attempts, evidence, claim)
    return PooledSeries(every, whole, told(of_attempts, evidence, claim))


def pooled_ratio(
    every: Sequence[Series],
    whole: Sequence[Series],
    values: Callable[[Series], list[Launch]],
    *,
    looks: int = 1,
    questions: int = 1,
    spoilt: str = "",
) -> SeriesRatio | None:
    """Return what series of one plan say together; None without enough launches.

    Args:
        every: this run's, then those of its earlier attempts that are pooled.
        whole: those of them that are beyond doubt.
        values: of the launches of a series.
        looks: out of how many numbers it could have been chosen.
        questions: among how many ratios of one report it is.
        spoilt: which earlier attempts are left out, or in and out, in words.
    """
    rule = every[0].rule
    sittings = [in_groups(values(series), rule) for series in every]
    beyond_doubt = [in_groups(values(series), rule) for series in whole]
    if every[0].plan.load is not None:
        return _at_drawn_loads(sittings, beyond_doubt, rule.groups, (looks, looks * questions), spoilt)
    pooled = pool(sittings, rule.groups)
    if pooled is None:
        return None
    without = pool(beyond_doubt, rule.groups)
    bounds = ShownInterval.of(pooled, looks * questions)
    shown = weaker(bounds, None if without is None else ShownInterval.of(without, looks * questions))
    logs = tuple(launch.log_ratio for sitting in sittings for launch in rotations(sitting, rule.groups)[0])
    return SeriesRatio(pooled, shown, looks, logs, spoilt)


def _at_drawn_loads(
    sittings: Sequence[Sequence[Launch]],
    beyond_doubt: Sequence[Sequence[Launch]],
    blocks: int,
    looks: tuple[int, int],
    spoilt: str,
) -> SeriesRatio | None:
    """Return the ratio at both loads; None without enough launches.

    Args:
        sittings: launches of every run that is pooled.
        beyond_doubt: those of the runs that nothing could have spoilt.
        blocks: how many blocks of prompts there are.
        looks: as they are named, and as the interval is corrected for.
        spoilt: which earlier attempts are left out, or in and out, in words.
    """
    ends = pool_loads(sittings, blocks)
    if ends is None:
        return None
    without = pool_loads(beyond_doubt, blocks)
    shown = weaker(ends.bounds(looks[1]), None if without is None else without.bounds(looks[1]))
    loads = ends.shown(looks[1]).weaker(None if without is None else without.shown(looks[1]))
    wholes = [whole for sitting in sittings if (whole := whole_loads(sitting, blocks))]
    logs = tuple(launch.log_ratio for whole in wholes for launch in whole)
    middle = ends.middle
    pooled = PooledRatio(middle.log_ratio, middle.error, middle.df, ends.unit, len(wholes), ends.launches)
    return SeriesRatio(pooled, shown, looks[0], logs, spoilt, ends, loads)


def split_attempts(
    own: Series, earlier: Mapping[str, Series], evidence: Evidence, claim: str
) -> tuple[list[Series], list[Series]]:
    """Return the series that a claim is pooled over, and those of them that are beyond doubt.

    Args:
        own: of this run.
        earlier: of its earlier attempts, by run id.
        evidence: with the verdicts on them.
        claim: id of the claim.
    """
    pooled = {name: one for name, one in earlier.items() if not left_out(name, evidence, claim)}
    whole = [one for name, one in pooled.items() if standing_of(name, evidence, claim).use == "whole"]
    return [own, *pooled.values()], [one for one in (own, *whole) if not one.cut]


def load_of(evidence: Evidence) -> float | None:
    """Return the mean share of the machine that others used during the run, None where the runner did not see it."""
    if evidence.record is None or evidence.record.telemetry is None:
        return None
    samples = evidence.record.telemetry.samples
    shares = [sample.other_cpu_share for sample in samples if sample.other_cpu_share is not None]
    return math.fsum(shares) / len(shares) if shares else None


def references(series: Series) -> tuple[list[float], list[float]]:
    """Return seconds a token of the baseline alone and of the host's own loop, for each launch that has both."""
    own, reference = [], []
    for record in series.counted:
        alone = _token_s([one for one in record.solos if one.arm == series.plan.arms[0]])
        again = None if record.reference is None else _token_s([record.reference])
        if alone is not None and again is not None:
            own.append(alone)
            reference.append(again)
    return own, reference


def solo_ratios(series: Series) -> tuple[list[float], list[float]]:
    """Return the log ratio of each launch's solo stretches, and that of its turns, in seconds a token.

    Launches without a stretch of both arms are left out.
    """
    solo, turns = [], []
    for record in series.counted:
        known = [value for value in _rates(series, record) if value is not None]
        if len(known) == 4:
            solo.append(math.log(known[0] / known[1]))
            turns.append(math.log(known[2] / known[3]))
    return solo, turns


def tolerated(series: Series, most: float) -> tuple[list[float], list[float], list[float]]:
    """Return what each launch owes to a slow baseline, to kind turns, and to decoding before its turns.

    Log of the baseline's time a token alone over the reference's; log ratio in turns less that alone; share of its
    decoding that a candidate's first turns hold beyond a prompt. Only launches that have all three are there.

    Args:
        series: in turns, beside a reference.
        most: how many times as long as the baseline's a candidate's prefill may take.
    """
    handicaps, gains, hidden = [], [], []
    for record in series.counted:
        rates = _rates(series, record)
        again = None if record.reference is None else _token_s([record.reference])
        known = [rate for rate in (*rates, again) if rate is not None]
        if len(known) < len(rates) + 1:
            continue
        alone, beside, turns, candidate, reference = known
        handicaps.append(math.log(alone / reference))
        gains.append(math.log(turns / candidate) - math.log(alone / beside))
        hidden.append((_early(series, record, most) or 0.0) if series.plan.prefill else 0.0)
    return handicaps, gains, hidden


def _rates(series: Series, record: LaunchRecord) -> list[float | None]:
    """Return seconds a token of both arms alone, then in turns; None for what put out nothing."""
    alone = [_token_s([one for one in record.solos if one.arm == arm]) for arm in series.plan.arms]
    together = [
        _rate([(turn.done_s - turn.go_s, turn.tokens) for turn in record.turns if turn.arm == arm])
        for arm in series.plan.arms
    ]
    return [*alone, *together]


def incomparable(series: Series) -> int:
    """Return how many launches that came to their end say nothing of an arm alone, or of it in turns: no token came."""
    ended = [record for record in series.counted if record.cut is None] if series.plan.solo_s > 0.0 else []
    return sum(None in _rates(series, record) for record in ended)


def decoded_early(series: Series, most: float) -> list[float]:
    """Return, for each launch, what share of its decoding a candidate's first turns take beyond its prefill.

    Args:
        series: whose first turns are outside of the ratio of decoding.
        most: how many times as long as the baseline's a candidate's prefill may take.
    """
    early = (_early(series, record, most) for record in series.counted)
    return [share for share in early if share is not None]


def _early(series: Series, record: LaunchRecord, most: float) -> float | None:
    """Return that of one launch; None where its candidate decoded nothing."""
    spent = [
        [math.fsum(turn.done_s - turn.go_s for turn in turns_of(series.plan, record, arm, part)) for part in PARTS]
        for arm in series.plan.arms
    ]
    (baseline_s, _), (candidate_s, decode_s) = spent
    return (candidate_s - most * baseline_s) / decode_s if decode_s > 0.0 else None


def worked(series: Series) -> tuple[float, float] | None:
    """Return processor time and run-queue wait by wall time of each arm alone; None where a stretch was not read.

    Where the platform does not tell the wait none is counted: who had to wait is taken for one that slept, never one
    that slept for one that had to wait.
    """
    return share_alone(series, lambda one: None if one.cpu_s is None else one.cpu_s + (one.waited_s or 0.0))


def share_alone(series: Series, spent_s: Callable[[SoloStretch], float | None]) -> tuple[float, float] | None:
    """Return by wall time what each arm spent alone; None where a stretch was not read."""
    return shares(series, [one for record in series.counted for one in record.solos], spent_s)


def shares(
    series: Series, stretches: Sequence[Stretch], spent_s: Callable[[Stretch], float | None]
) -> tuple[float, float] | None:
    """Return by wall time what each arm spent in its stretches; None where one was not read.

    Args:
        series: whose arms are asked about.
        stretches: what the arms did.
        spent_s: seconds that a stretch spent on what is asked, None where they were not read.
    """
    found = []
    for arm in series.plan.arms:
        own = [one for one in stretches if one.arm == arm]
        busy = [seconds for one in own if (seconds := spent_s(one)) is not None]
        wall_s = math.fsum(one.done_s - one.go_s for one in own)
        if len(busy) < len(own) or wall_s <= 0.0:
            return None
        found.append(math.fsum(busy) / wall_s)
    return found[0], found[1]


def _token_s(stretches: Sequence[SoloStretch]) -> float | None:
    return _rate([(one.done_s - one.go_s, one.tokens) for one in stretches])


def _rate(spent: Sequence[tuple[float, int]]) -> float | None:
    seconds, tokens = math.fsum(s for s, _ in spent), sum(t for _, t in spent)
    return seconds / tokens if seconds > 0.0 and tokens > 0 else None
