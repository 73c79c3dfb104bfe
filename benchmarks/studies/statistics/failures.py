"""What the rule over launches cannot see, and what the rules that were not taken get wrong: simulated, no bar."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
import scipy

from benchmarks.studies.statistics.campaign import rates
from benchmarks.studies.statistics.noises import Array
from benchmarks.studies.statistics.rule import stopped
from benchmarks.studies.study import Row, Study
from bridge.launches.distributions import t_quantile
from bridge.launches.estimate import TAIL, Launch
from bridge.launches.sittings import pool
from bridge.launches.stopping import MODELS, PROCESS_PAIRS, LaunchRule
from bridge.launches.wording import FASTER

RUNS: Final = 40_000
WITHIN: Final = 0.01  # what a launch's ratio scatters by without any launch effect
DRAFT: Final = LaunchRule(least=6, most=20, half_width=0.025)
_MARGIN: Final = math.log(FASTER)
_Measure = Callable[[np.random.Generator, int], Row]


def persisting(rho: float, sd: float, rng: np.random.Generator, runs: int) -> Row:
    """Return rates where the ratio itself persists over launches, AR(1), and how often two such runs agree."""

    def logs() -> Array:
        drawn = rng.normal(0.0, sd * math.sqrt(1.0 - rho * rho), (runs, MODELS.most))
        drawn[:, 0] = rng.normal(0.0, sd, runs)
        noise: Array = scipy.signal.lfilter([1.0], [1.0, -rho], drawn, axis=1) + rng.normal(0.0, WITHIN, drawn.shape)
        return noise

    first, second = stopped(MODELS, logs()), stopped(MODELS, logs())
    agreed = np.abs(first.mean - second.mean) <= np.hypot(first.half, second.half)
    return rates(first, MODELS.half_width) | {"two_runs_agree": int(agreed.sum())}


def sitting(sd: float, rng: np.random.Generator, runs: int) -> Row:
    """Return rates where a whole run is shifted by one effect."""
    logs = rng.normal(0.0, sd, (runs, 1)) + rng.normal(0.0, WITHIN, (runs, MODELS.most))
    return rates(stopped(MODELS, logs), MODELS.half_width)


def pooled(sd: float, count: int, rng: np.random.Generator, runs: int) -> Row:
    """Return how often several sittings, each shifted by an effect of its own, cover the truth together."""
    some = runs // 40
    shifts = rng.normal(0.0, sd, (some, count, 1)) + rng.normal(0.0, WITHIN, (some, count, MODELS.least))
    pools = [pool([[Launch(float(value)) for value in run] for run in runs_of_one]) for runs_of_one in shifts]
    ratios = [ratio for ratio in pools if ratio is not None]
    return {
        "runs": some,
        "covered": sum(abs(ratio.log_ratio) <= ratio.half_width() for ratio in ratios),
        "sittings_as_units": sum(ratio.unit == "sitting" for ratio in ratios),
        "half_width": round(float(np.median([ratio.half_width() for ratio in ratios])), 5),
    }


def gaussian(rule: LaunchRule, tail: float, sd: float, rng: np.random.Generator, runs: int) -> Row:
    """Return rates of a rule on Gaussian launches, and the coverage of those that reached the width."""
    some = min(runs, 4_000_000 // rule.most)
    ended = stopped(rule, rng.normal(0.0, math.hypot(sd, WITHIN), (some, rule.most)), tail)
    narrow = ended.half <= rule.half_width
    covered = (np.abs(ended.mean) <= ended.half)[narrow].sum()
    return rates(ended, rule.half_width) | {"covered_of_those_that_reached": int(covered)}


def best_of(count: int, rng: np.random.Generator, runs: int) -> Row:
    """Return how often the best of several equal programs is called faster, with and without the correction."""
    best = np.full((2, runs), -np.inf)
    for _ in range(count):
        logs = rng.normal(0.0, 0.05, (runs, MODELS.most))
        for place, looks in enumerate((1, count)):
            ended = stopped(MODELS, logs, looks=looks)
            best[place] = np.maximum(best[place], ended.mean - ended.half)
    plain, corrected = (int((row > _MARGIN).sum()) for row in best)
    return {"runs": runs, "false_faster": plain, "false_faster_corrected": corrected}


def beginnings(sd: float, tries: int, rng: np.random.Generator, runs: int) -> Row:
    """Return how often dropping runs that begin badly makes equal programs differ, with and without the rule.

    A run whose first two launches look slow is cancelled, until one begins well or the tries are over. The rule takes
    the cancelled launches in, and the claim is the weaker of with and without them.
    """
    starts = rng.normal(0.0, sd, (runs, tries, 2))
    good = starts.mean(-1) >= 0.0
    first_good = np.where(good.any(1), good.argmax(1), tries - 1)
    row = np.arange(runs)
    logs = np.concatenate([starts[row, first_good], rng.normal(0.0, sd, (runs, MODELS.most - 2))], axis=1)
    ended = stopped(MODELS, logs)
    used = np.arange(MODELS.most) < ended.launches[:, None]
    cut = np.repeat(np.arange(tries) < first_good[:, None], 2, axis=1)
    values = np.concatenate([starts.reshape(runs, -1), logs], axis=1)
    taken = np.concatenate([cut, used], axis=1)
    count = taken.sum(1)
    mean = (values * taken).sum(1) / count
    spread = (((values - mean[:, None]) * taken) ** 2).sum(1)
    quantile = np.array([np.inf, *(t_quantile(1.0 - TAIL, df) for df in range(1, int(count.max())))])
    half = quantile[count - 1] * np.sqrt(spread / (count - 1) / count)
    low, every = ended.mean - ended.half, mean - half
    return {
        "runs": runs,
        "cancelled": round(float(first_good.mean()), 2),
        "false_faster_dropped": int((low > _MARGIN).sum()),
        "false_faster": int((np.minimum(low, every) > _MARGIN).sum()),
    }


def prompts_as_units(sd: float, rng: np.random.Generator, runs: int) -> Row:
    """Return false claims of 5 launches of 12 prompts when prompts count as units and launches differ."""
    logs = rng.normal(0.0, sd, (runs, 5, 1)) + rng.normal(0.0, 0.03, (runs, 5, 12))
    flat = logs.reshape(runs, 60)
    half = t_quantile(0.975, 59) * flat.std(1, ddof=1) / math.sqrt(60)
    mean = flat.mean(1)
    return {
        "runs": runs,
        "covered": int((np.abs(mean) <= half).sum()),
        "false_faster": int((mean - half > _MARGIN).sum()),
        "false_slower": int((mean + half < -_MARGIN).sum()),
    }


def _cases() -> dict[str, _Measure]:
    measures: dict[str, _Measure] = {"one effect a sitting, sd 3 %": partial(sitting, 0.03)}
    for rho, sd in ((0.5, 0.02), (0.7, 0.02), (0.9, 0.02), (0.7, 0.03), (0.9, 0.03)):
        measures[f"ratio persists over launches, rho {rho}, sd {sd * 100:.0f} %"] = partial(persisting, rho, sd)
    for count in (2, 3, 5):
        measures[f"{count} sittings pooled, sd 3 % a sitting"] = partial(pooled, 0.03, count)
    for sd in (0.02, 0.03, 0.05, 0.08):
        label = f"launch sd {sd * 100:.0f} %"
        measures[f"pairs of short processes, up to 240, {label}"] = partial(gaussian, PROCESS_PAIRS, TAIL, sd)
        measures[f"not taken: t(.975), 6 to 20 launches to 2.5 %, {label}"] = partial(gaussian, DRAFT, 0.025, sd)
        measures[f"8 to 20 launches, {label}"] = partial(gaussian, MODELS, TAIL, sd)
    for sd in (0.0, 0.03, 0.05):
        measures[f"not taken: prompts as units, launch sd {sd * 100:.0f} %"] = partial(prompts_as_units, sd)
    measures["best of 5 equal programs, launch sd 5 %"] = partial(best_of, 5)
    measures["up to 9 bad beginnings cancelled, launch sd 5 %"] = partial(beginnings, 0.05, 10)
    return measures


CASES: Final[Mapping[str, _Measure]] = MappingProxyType(_cases())


def run(case: str, runs: int = RUNS) -> list[Row]:
    """Return one row."""
    return [{"name": case} | CASES[case](np.random.default_rng(zlib.crc32(case.encode())), runs)]


STUDY = Study("known-failures", "What does the rule over launches not see?", lambda: tuple(CASES), run, "seconds")
