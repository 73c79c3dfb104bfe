"""What the rules on sittings, families, looks, attempts and tolerances were chosen by, and what was not taken."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from benchmarks.studies.statistics.noises import Array
from benchmarks.studies.statistics.standing import LAUNCH_SD, intervals
from benchmarks.studies.study import Row, Study
from bridge.launches.answers import LOOKS
from bridge.launches.attempts import DOUBTFUL_MAX
from bridge.launches.checks import BUDGET_MOST
from bridge.launches.distributions import t_quantile
from bridge.launches.estimate import TAIL, Launch
from bridge.launches.loads import draw_loads, over_loads
from bridge.launches.stopping import MODELS
from bridge.launches.wording import FASTER

RUNS: Final = 20_000
SITTING_SD: Final = 0.03
_MARGIN: Final = math.log(FASTER)
_Measure = Callable[[np.random.Generator, int], Row]


def split(sittings: int, launches: int, rng: np.random.Generator, runs: int) -> Row:
    """Return coverage and width where forty launches are spread over sittings in this way."""
    own = math.hypot(SITTING_SD, LAUNCH_SD / math.sqrt(launches))
    mean, half, _ = intervals(rng.normal(0.0, own, (runs, sittings)))
    return {"runs": runs, "covered": int((np.abs(mean) <= half).sum()), "half_width": _median(half)}


def loads(slope: float, rng: np.random.Generator, runs: int) -> Row:
    """Return coverage and width at the least and the greatest load, two of six sittings at each of three loads."""
    at = np.repeat([0.0, 0.25, 0.5], 2)
    means = slope * at + rng.normal(0.0, 0.015, (runs, 6))
    centred = at - at.mean()
    tilt = means @ centred / (centred @ centred)
    fitted = means.mean(1)[:, None] + tilt[:, None] * centred
    sd = np.sqrt(((means - fitted) ** 2).sum(1) / 4)
    wide = t_quantile(1.0 - TAIL, 4) * sd * math.sqrt(1 / 6 + centred[0] ** 2 / (centred @ centred))
    inside = np.stack([np.abs(fitted[:, 0]) <= wide, np.abs(fitted[:, -1] - slope * 0.5) <= wide])
    plain_mean, plain, _ = intervals(means)
    return {
        "runs": runs,
        "covered": int(inside.sum(1).min()),
        "covered_at_both": int(inside.all(0).sum()),
        "half_width": _median(wide),
        "half_width_without_load": _median(plain),
        "covered_without_load": int((np.abs(plain_mean - slope * 0.25) <= plain).sum()),
    }


def drawn_load(slope: float, more: float, rng: np.random.Generator, runs: int) -> Row:
    """Return coverage and width at both ends and of the slope, ten launches of five blocks with and without load.

    Args:
        slope: log of the ratio under load over that without.
        more: how many times as much launches under load scatter.
        rng: drawn from.
        runs: how many.
    """
    covered, widths = {"free": 0, "loaded": 0, "slope": 0}, []
    true = {"free": 0.0, "loaded": slope, "slope": slope}
    for _ in range(runs):
        launches: list[Launch] = []
        under_load: frozenset[int] = frozenset()
        for rotation in range(4):
            every = frozenset(range(5))
            draw = random.Random(int(rng.integers(1 << 30)))
            under_load = every - under_load if rotation % 2 else draw_loads(5, draw)
            for block in range(5):
                loaded = block in under_load
                noise = float(rng.normal(0.0, LAUNCH_SD * (more if loaded else 1.0)))
                launches.append(Launch(slope * loaded + noise, block, loaded))
        ratio = over_loads(launches, 5)
        assert ratio is not None
        for name, estimate in (("free", ratio.free), ("loaded", ratio.loaded), ("slope", ratio.slope)):
            covered[name] += abs(estimate.log_ratio - true[name]) <= estimate.half_width()
        widths.append((ratio.free.half_width(), ratio.slope.half_width()))
    half = np.median(np.array(widths), axis=0)
    return {
        "runs": runs,
        **{f"covered_{name}": int(count) for name, count in covered.items()},
        "half_width_at_an_end": round(float(half[0]), 5),
        "half_width_of_slope": round(float(half[1]), 5),
    }


def looking_on(least: int, most: int, rng: np.random.Generator, runs: int) -> Row:
    """Return how often a claim misses on one side where it is looked at after every sitting."""
    means = rng.normal(0.0, SITTING_SD, (runs, most))
    above, once = np.zeros(runs, bool), None
    for count in range(least, most + 1):
        mean, half, _ = intervals(means[:, :count])
        above |= mean - half > 0.0
        once = above.copy() if once is None else once
    return {"runs": runs, "missed": int(above.sum()), "missed_at_one_look": int(0 if once is None else once.sum())}


def three_looks(sd: float, rng: np.random.Generator, runs: int) -> Row:
    """Return how often `--fail-if` says yes of a true ratio at its margin, and how often it sees ten per cent."""
    looks = LOOKS[MODELS]
    logs = rng.normal(0.0, sd, (runs, looks[-1]))

    def yes(true: float, counts: tuple[int, ...], share: float) -> Array:
        slower, open_ = np.zeros(runs, bool), np.ones(runs, bool)
        for count in counts:
            part = logs[:, :count] + true
            mean = part.mean(1)
            half = t_quantile(1.0 - TAIL / share, count - 1) * part.std(1, ddof=1) / math.sqrt(count)
            slower |= open_ & (mean + half < -_MARGIN)
            open_ &= ~((mean + half < -_MARGIN) | (mean - half >= -_MARGIN))
        return slower

    every = tuple(range(looks[0], looks[-1] + 1))
    return {
        "runs": runs,
        "false_yes": int(yes(-_MARGIN, looks, len(looks)).sum()),
        "false_yes_looking_always": int(yes(-_MARGIN, every, 1).sum()),
        "slower_by_10_seen": int(yes(-math.log(1.10), looks, len(looks)).sum()),
    }


def budget(total: float, sd: float, rng: np.random.Generator, runs: int) -> Row:
    """Return how often eight launches refuse a ratio that owes this much to what is tolerated beside it."""
    values = math.log1p(total) + rng.normal(0.0, sd, (runs, 8))
    low = values.mean(1) - t_quantile(0.95, 7) * values.std(1, ddof=1) / math.sqrt(8)
    return {"runs": runs, "refused": int((low > BUDGET_MOST).sum())}


def broken_sittings(tries: int, rng: np.random.Generator, runs: int) -> Row:
    """Return how often equal programs are called faster where a program breaks its premise in a bad sitting.

    It tries again until a sitting is good or its tries are over. Left out, what it broke is forgotten; in and out, the
    claim is what holds with and without; from the third on there is none.
    """
    sd = 0.02
    effects = rng.normal(0.0, sd, (runs, tries)) + np.zeros((runs, tries))
    logs = effects[:, :, None] + rng.normal(0.0, 0.03, (runs, tries, 12))
    good = effects > 0.0
    last = np.where(good.any(1), good.argmax(1), tries - 1)
    honest = _lower(logs[:, 0])
    alone = np.array([_lower(logs[row : row + 1, last[row]])[0] for row in range(runs)])
    together = np.array([_lower(logs[row : row + 1, : last[row] + 1].reshape(1, -1))[0] for row in range(runs)])
    both = np.where(last > DOUBTFUL_MAX, -np.inf, np.minimum(alone, together))
    return {
        "runs": runs,
        "false_faster_honest": int((honest > _MARGIN).sum()),
        "false_faster_left_out": int((alone > _MARGIN).sum()),
        "false_faster_in_and_out": int((both > _MARGIN).sum()),
    }


def _lower(logs: Array) -> Array:
    count = logs.shape[1]
    return np.asarray(logs.mean(1) - t_quantile(1.0 - TAIL, count - 1) * logs.std(1, ddof=1) / math.sqrt(count))


def best_cell(cells: int, rng: np.random.Generator, runs: int) -> Row:
    """Return how often the best of equal cells is called faster, as it stands and corrected for its family."""
    low = {1: np.full(runs, -np.inf), cells: np.full(runs, -np.inf)}
    for _ in range(cells):
        logs = rng.normal(0.0, 0.05, (runs, 12))
        mean, error = logs.mean(1), logs.std(1, ddof=1) / math.sqrt(12)
        for looks, best in low.items():
            low[looks] = np.maximum(best, mean - t_quantile(1.0 - TAIL / looks, 11) * error)
    return {
        "runs": runs,
        "false_faster": int((low[1] > _MARGIN).sum()),
        "false_faster_corrected": int((low[cells] > _MARGIN).sum()),
    }


def moderated(times: float, rng: np.random.Generator, runs: int) -> Row:
    """Return coverage of one sitting whose spread is borrowed from ten other questions of its host.

    Args:
        times: how many times theirs this question's own spread between sittings is.
        rng: drawn from.
        runs: how many.
    """
    others = rng.normal(0.0, SITTING_SD, (runs, 10, 6)).std(2, ddof=1)
    spread = np.sqrt((others**2).mean(1))
    means = rng.normal(0.0, SITTING_SD * times, runs)
    half = t_quantile(1.0 - TAIL, 50) * spread
    return {"runs": runs, "covered": int((np.abs(means) <= half).sum()), "half_width": _median(half)}


def _median(values: Array) -> float:
    return round(float(np.median(values)), 5)


def _cases() -> dict[str, _Measure]:
    measures: dict[str, _Measure] = {}
    for sittings, launches in ((5, 8), (8, 5), (20, 2)):
        label = f"{sittings} sittings of {launches} launches, sd 3 % a sitting, 4 % a launch"
        measures[label] = partial(split, sittings, launches)
    for slope in (0.0, 0.2):
        label = f"loads of 0, 25 and 50 %, ratio moved by {slope * 50:.0f} % from end to end"
        measures[label] = partial(loads, slope)
    for more in (1.0, 2.0):
        label = f"a load drawn in every second of 20 launches, launches under it scatter {more:g} times as much"
        measures[label] = partial(drawn_load, 0.1, more)
    measures["not taken: a look after each sitting, 6 to 20"] = partial(looking_on, 6, 20)
    for sd in (0.03, 0.05):
        measures[f"three looks for --fail-if slower, launch sd {sd * 100:.0f} %"] = partial(three_looks, sd)
    for total in (0.0, 0.05, 0.10):
        for sd in (0.02, 0.03, 0.04):
            label = f"one budget, {total * 100:.0f} % in all, 8 launches, sd {sd * 100:.0f} %"
            measures[label] = partial(budget, total, sd)
    measures["a program that breaks its premise in a bad sitting, up to 8 tries"] = partial(broken_sittings, 8)
    measures["best of 8 equal cells of a sweep"] = partial(best_cell, 8)
    for times in (1.0, 2.5):
        label = f"not taken: spread borrowed from ten other questions, own spread {times:g} times theirs"
        measures[label] = partial(moderated, times)
    return measures


CASES: Final[Mapping[str, _Measure]] = MappingProxyType(_cases())


def run(case: str, runs: int = RUNS) -> list[Row]:
    """Return one row."""
    name: dict[str, Any] = {"name": case}
    return [name | CASES[case](np.random.default_rng(zlib.crc32(case.encode())), runs)]


STUDY = Study(
    "claim-choices", "What do the rules on what a claim is over cost and save?", lambda: tuple(CASES), run, "seconds"
)
