"""How soon an arm's first token comes and how long each later one takes, as percentiles by the supervisor's stamps.

The unit is a launch: samples within one are not independent. Knows turns and their tokens, and no clock of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bridge.gate.claims import CONFIDENCE, ClaimDraft
from bridge.gate.claims.percentiles import Bounded, Percentiles
from bridge.gate.claims.speed import unseen
from bridge.gate.facts.launch_series import Series, StampedSample, load_of, pooled_series, series_of
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report
from bridge.launches import wording

SIDES: Final = ("baseline", "candidate")
_PARTS: Final[Mapping[str, tuple[str, Callable[[StampedSample], float | None]]]] = MappingProxyType(
    {
        "first_token": ("first token", lambda sample: sample.first_s / sample.prompts),
        "token": (
            "each later token",
            lambda sample: sample.decode_s / sample.decode_tokens if sample.decode_tokens else None,
        ),
    }
)
LATENCIES: Final = tuple(f"{side}_{part}" for side in SIDES for part in _PARTS)
"""Ids of all of them: where a first turn ends decides each."""
_UNIT: Final = "s"


@dataclass(frozen=True)
class _Latency:
    """What the samples of an arm come to.

    Attributes:
        number: the median.
        words: every percentile.
        over: how many samples of how many launches, and which attempts are not in or in and out.
    """

    number: Bounded
    launches: int
    sittings: int
    words: str
    over: str


def latencies(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the seconds to the first token and those a later token takes, of the baseline and the candidate beside it.

    The first turn of a sample is its prefill; the time of its other turns over their tokens is one number a sample. A
    sample of several prompts forwards them one after the other and only their turn is stamped: of it the mean a prompt
    is known. Means hide the slow prompt that a high percentile is of, so that p50 alone is said, with how many prompts
    a sample has. Nothing is said without turns, with too few launches for an interval, and of launches in which the
    runner itself held processors.
    """
    series = series_of(report, evidence)
    if series is None or series.plan.load is not None:
        return
    sides = SIDES if arms_of(report, evidence).candidate is not None else SIDES[:1]
    for side, arm in zip(sides, series.plan.arms, strict=False):  # beside itself the baseline has no candidate
        yield from _of_arm(report, evidence, series, side, arm)


def _of_arm(report: Report, evidence: Evidence, series: Series, side: str, arm: str) -> Iterator[ClaimDraft]:
    by_part = {part: latency for part in _PARTS if (latency := _latency(report, evidence, arm, f"{side}_{part}", part))}
    other = next(name for name in series.plan.arms if name != arm)
    first = next(iter(by_part), None)
    for part, latency in by_part.items():
        what = _PARTS[part][0]
        line = [
            latency.words,
            *(f"{_PARTS[name][0]} {by_part[name].words}" for name in by_part if part == first != name),
        ]
        place = wording.sittings(latency.sittings, load_of(evidence))
        rest = f"{latency.over}{unseen(report, evidence, series)}"
        yield ClaimDraft(
            id=f"{side}_{part}",
            role="secondary",
            value=latency.number.value,
            interval=latency.number.interval,
            confidence=latency.number.confidence,
            unit=_UNIT,
            n=latency.launches,
            arms=(arm,),
            wording=f"{place}: {arm} in turns with {other}, {what} {latency.words} {rest}",
            detail={
                "better": "lower",
                "over": "launches",
                "summary": f"{', '.join(line)} {rest}, {place}",
                **({} if part == first else {"told_with": f"{side}_{first}"}),
            },
        )


def _latency(report: Report, evidence: Evidence, arm: str, claim: str, part: str) -> _Latency | None:
    pool = pooled_series(report, evidence, claim)
    if pool is None:
        return None
    confidence = evidence.confidence(CONFIDENCE)
    every, whole = (_by_launch(series, arm, _PARTS[part][1]) for series in (pool.every, pool.whole))
    if not every:
        return None
    numbers = Percentiles.of(every, confidence)
    if whole:
        numbers = numbers.covering(Percentiles.of(whole, confidence))
    if numbers.p50.interval is None:
        return None
    prompts = max(sample.prompts for series in pool.every for launch in series.samples(arm) for sample in launch)
    words = (numbers if prompts == 1 else Percentiles(numbers.p50, {})).words(_UNIT)
    means = "" if prompts == 1 else f", each the mean of up to {prompts} prompts"
    over = f"over {sum(map(len, every))} samples of {len(every)} launches{means}, lower is better"
    over += f"{wording.best_of(evidence.looks)}{pool.spoilt}"
    return _Latency(numbers.p50, len(every), len(pool.every), words, over)


def _by_launch(
    pooled: Sequence[Series], arm: str, observe: Callable[[StampedSample], float | None]
) -> list[list[float]]:
    """Return the numbers of each launch that has any."""
    launches = (launch for series in pooled for launch in series.samples(arm))
    values = ([value for sample in launch if (value := observe(sample)) is not None] for launch in launches)
    return [numbers for numbers in values if numbers]
