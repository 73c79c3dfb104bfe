"""The claims of inference servers beside the ratio: how soon they begin, how fast they go on, whether they agree.

The unit is a launch, one start of the servers: answers within one are not independent. Launches of earlier attempts
are pooled with those of the run. Knows what the runner saw; a server's own `usage` is in no number but where it says
that two answers are of one length.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bridge.gate.claims import CONFIDENCE, ClaimDraft, Role
from bridge.gate.claims.percentiles import Bounded, Percentiles
from bridge.gate.facts.earlier_attempts import left_out, standing_of, told
from bridge.gate.facts.served_answers import ARMS, Served, ServedAnswer, served_of
from bridge.gate.interface import Evidence, Report
from bridge.gate.stats.binomial import rate_lower, rate_upper
from bridge.launches.figures import proportion
from bridge.launches.wording import best_of
from bridge.records.verdict import Premise
from bridge.records.workload import MetricDefinition, WorkloadDefinition

Observe = Callable[[ServedAnswer], float | None]


@dataclass(frozen=True)
class _Pool:
    """The runs that a claim is made over.

    Attributes:
        every: this run's, then its earlier attempts'.
        whole: those of them that are beyond doubt.
        looks: out of how many numbers it could have been chosen.
        confidence: how often an interval is to cover, so that the chosen one of so many still does.
        spoilt: which earlier attempts are left out, or in and out, in words.
    """

    every: Sequence[Served]
    whole: Sequence[Served]
    looks: int
    confidence: float
    spoilt: str

    @property
    def runs(self) -> str:
        """How many runs it is over, in words; empty where it is one."""
        return f" of {len(self.every)} runs" if len(self.every) > 1 else ""


def of_servers(
    metric: MetricDefinition, role: Role, report: Report, evidence: Evidence, definition: WorkloadDefinition
) -> ClaimDraft | None:
    """Return a claim over what the runner saw of servers; None where it saw too little for one.

    Of launches in which the runner itself held processors nothing but the texts is said: times are of one load.

    Args:
        metric: of the definition.
        role: of the claim.
        report: of the runner.
        evidence: with the earlier attempts, and what was said of them.
        definition: of the workload.
    """
    pool = _pooled(metric, report, evidence)
    if pool is None or definition.servers is None:
        return None
    if metric.aggregate == "share":
        return _same_answers(metric, role, pool)
    if evidence.spec is not None and evidence.spec.draws_load:
        return None
    side, _, name = metric.name.partition("_")
    arms = ARMS if len(definition.servers.sides) == 1 else (side,)
    if name == "memory":
        return _of_launches(metric, role, pool, lambda served: _memory(served, side))
    if name == "rate":
        return _of_launches(metric, role, pool, lambda served: _rates(served, arms))
    by_name: Mapping[str, Observe] = {
        "first_token": lambda answer: answer.first_s,
        "answer": lambda answer: answer.whole_s,
        "token": _next_s,
        "character": _next_s,
    }
    return _of_answers(metric, role, pool, lambda served: _observed(served, arms, by_name[name]))


def _pooled(metric: MetricDefinition, report: Report, evidence: Evidence) -> _Pool | None:
    """Return this run and the earlier attempts that count; None where the report is not of the runner's making."""
    own = served_of(report)
    if own is None:
        return None
    earlier = {
        name: served
        for name, reports in evidence.earlier.items()
        for other in reports
        if other.value is not None and (served := served_of(other)) is not None
    }
    counting = {name: served for name, served in earlier.items() if not left_out(name, evidence, metric.name)}
    whole = [served for name, served in counting.items() if standing_of(name, evidence, metric.name).use == "whole"]
    confidence, spoilt = evidence.confidence(CONFIDENCE), told(earlier, evidence, metric.name)
    return _Pool([own, *counting.values()], [own, *whole], evidence.looks, confidence, spoilt)


def _of_launches(
    metric: MetricDefinition, role: Role, pool: _Pool, values_of: Callable[[Served], list[float]]
) -> ClaimDraft | None:
    """Return the claim of a number of each launch."""
    every, whole = ([value for run in runs for value in values_of(run)] for runs in (pool.every, pool.whole))
    if not every:
        return None
    number = Bounded.median_launch(every, pool.confidence)
    if whole:
        number = number.covering(Bounded.median_launch(whole, pool.confidence))
    return _claim(metric, role, pool, number, f"{number.text(metric.unit)} over {len(every)} launches", len(every))


def _of_answers(
    metric: MetricDefinition, role: Role, pool: _Pool, launches_of: Callable[[Served], list[list[float]]]
) -> ClaimDraft | None:
    """Return the claim of a number of each answer."""
    every, whole = ([values for run in runs for values in launches_of(run)] for runs in (pool.every, pool.whole))
    if not every:
        return None
    numbers = Percentiles.of(every, pool.confidence)
    if whole:
        numbers = numbers.covering(Percentiles.of(whole, pool.confidence))
    over = f"{sum(map(len, every))} answers of {len(every)} launches"
    return _claim(metric, role, pool, numbers.p50, f"{numbers.words(metric.unit)} over {over}", len(every))


def _claim(  # noqa: PLR0917 - one place
    metric: MetricDefinition, role: Role, pool: _Pool, number: Bounded, said: str, launches: int
) -> ClaimDraft:
    """Return a claim over launches."""
    asker_s = [seconds for run in pool.every for seconds in run.asker_s]
    delay = f"; the asker itself takes {statistics.median(asker_s) * 1e3:.2g} ms" if asker_s else ""
    unlike, batches = (sum(run.unlike[place] for run in pool.every) for place in (0, 1))
    differing = f", {unlike} of {batches} batches at unlike lengths" if unlike else ""
    direction = "" if metric.better is None else f", {metric.better} is better"
    chosen = "" if number.bounds is None else best_of(pool.looks)
    shown = f"{said}{pool.runs}{direction}{chosen}{pool.spoilt}{differing}{delay}"
    return ClaimDraft(
        id=metric.name,
        role=role,
        value=number.value,
        interval=number.interval,
        confidence=number.confidence,
        unit=metric.unit,
        n=launches,
        wording=f"{metric.name} {shown}",
        stops=dict(_stops(pool, number, launches)),
        detail={"aggregate": metric.aggregate, "better": metric.better, "over": "launches", "summary": shown},
    )


def _stops(pool: _Pool, number: Bounded, launches: int) -> Iterator[tuple[Premise, str]]:
    """Yield the premise that a number without an interval lacks where it could have been chosen."""
    if pool.looks > 1 and number.bounds is None:
        few = f"{launches} launch{'' if launches == 1 else 'es'} too little of chance"
        yield "inputs", f"one of {pool.looks} that could be chosen from, and by {few} is known"


def _same_answers(metric: MetricDefinition, role: Role, pool: _Pool) -> ClaimDraft | None:
    """Return the share of prompts that both servers answered with the same text, and where they first part.

    Spaces before an answer count for nothing.
    """
    every, whole = ([texts for run in runs for texts in _texts(run)] for runs in (pool.every, pool.whole))
    if not every:
        return None
    same = sum(first == second for first, second in every)
    bounds = [_share_bounds(texts, pool.confidence) for texts in (every, whole) if texts]
    interval = (min(low for low, _ in bounds), max(high for _, high in bounds))
    parted = [_common_length(first, second) for first, second in every if first != second]
    where = f"; the first difference after {min(parted)} characters" if parted else ""
    covers = f"{proportion(same / len(every), interval)} 95 %"
    shown = f"{covers}, {same} of {len(every)} prompts{pool.runs}{best_of(pool.looks)}{pool.spoilt}{where}"
    return ClaimDraft(
        id=metric.name,
        role=role,
        value=same / len(every),
        interval=interval,
        confidence=CONFIDENCE,
        unit=metric.unit,
        n=len(every),
        wording=f"{metric.name} {shown}",
        detail={"aggregate": "share", "better": None, "over": "items", "summary": shown},
    )


def _texts(served: Served) -> list[tuple[str, str]]:
    """Return what both servers answered to the same prompts, the baseline's text first."""
    return [(first.compared, second.compared) for first, second in served.pairs()]


def _share_bounds(texts: Sequence[tuple[str, str]], confidence: float) -> tuple[float, float]:
    """Return the bounds of the share of texts that are the same."""
    same, tail = sum(first == second for first, second in texts), 1.0 - (1.0 - confidence) / 2.0
    return rate_lower(same, len(texts), tail), rate_upper(same, len(texts), tail)


def _memory(served: Served, side: str) -> list[float]:
    """Return the most bytes that a server held in each launch."""
    return [float(held[side]) for held in served.rss_bytes if held.get(side)]


def _rates(served: Served, arms: Sequence[str]) -> list[float]:
    """Return the tokens or characters a second of each launch."""
    return [_rate(served, answers, arms) for answers in _answered(served, arms)]


def _observed(served: Served, arms: Sequence[str], observe: Observe) -> list[list[float]]:
    """Return the numbers of each launch that has any."""
    launches = _answered(served, arms)
    values = ([value for answer in answers if (value := observe(answer)) is not None] for answers in launches)
    return [numbers for numbers in values if numbers]


def _answered(served: Served, arms: Sequence[str]) -> list[list[ServedAnswer]]:
    """Return the timed answers of each launch."""
    return served.by_launch([answer for answer in served.timed if answer.arm in arms])


def _rate(served: Served, answers: Sequence[ServedAnswer], arms: Sequence[str]) -> float:
    """Return the tokens or characters a second that a launch's turns came to, all requests at once."""
    launch = answers[0].launch
    wall_s = math.fsum(turn.wall_s for turn in served.turns if turn.launch == launch and turn.arm in arms)
    return sum(answer.length for answer in answers) / wall_s if wall_s > 0 else 0.0


def _next_s(answer: ServedAnswer) -> float | None:
    """Return the seconds a token or character after the first; None for an answer that has no more."""
    rest = answer.length - (len(answer.first_text) if answer.first_counted is None else answer.first_counted)
    return (answer.whole_s - answer.first_s) / rest if rest > 0 else None


def _common_length(text: str, other: str) -> int:
    """Return after how many characters two texts part."""
    return next(
        (place for place, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other))
    )
