"""How often a standing claim holds the truth, and its prediction the next sitting, on simulated machines."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import scipy

from benchmarks.studies.statistics.noises import Array
from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.launches.distributions import t_quantile
from bridge.launches.estimate import TAIL

RUNS: Final = 40_000
LAUNCHES: Final = 5
"""Of a sitting: one whole rotation."""
LAUNCH_SD: Final = 0.04
SITTING_SDS: Final = (0.0, 0.03, 0.05, 0.08)
SITTINGS: Final = (6, 8, 10)
NOISES: Final = (
    "normal",
    "t3",
    "exponential",
    "two-mode 10 %",
    "two-mode 20 %",
    "AR .5",
    "AR .8",
    "one effect a day",
)
REQUIRED: Final = ("normal", "t3")
COVERAGE: Final = 0.94
FAILURE: Final = 0.90
"""A cell that covers less than this is a known failure."""


def sittings_of(noise: str, sd: float, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Array, Array]:
    """Return what sittings differ from the truth by, and one of another day, which shares nothing with them.

    Args:
        noise: one of `NOISES`.
        sd: standard deviation between sittings that share nothing, on the log scale.
        shape: runs, sittings of each.
        rng: drawn from.
    """
    runs, count = shape
    apart = _independent(noise, (runs, 1), rng)
    if noise.startswith("AR "):
        rho = float(noise.removeprefix("AR "))
        drawn = rng.standard_normal(shape) * math.sqrt(1.0 - rho * rho)
        drawn[:, 0] = rng.standard_normal(runs)
        effects: Array = scipy.signal.lfilter([1.0], [1.0, -rho], drawn, axis=1)
    elif noise == "one effect a day":
        effects = np.repeat(rng.standard_normal((runs, 1)), count, axis=1)
    else:
        effects = _independent(noise, shape, rng)
    own = LAUNCH_SD / math.sqrt(LAUNCHES)
    return effects * sd + rng.normal(0.0, own, shape), (apart * sd + rng.normal(0.0, own, (runs, 1)))[:, 0]


def _independent(noise: str, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Return effects of mean 0 and standard deviation 1."""
    if noise == "t3":
        return rng.standard_t(3, shape) / math.sqrt(3.0)
    if noise == "exponential":
        return rng.exponential(1.0, shape) - 1.0
    if noise.startswith("two-mode"):
        share = float(noise.split()[1]) / 100.0
        return ((rng.random(shape) < share) - share) / math.sqrt(share * (1.0 - share))
    return rng.standard_normal(shape)


def intervals(means: Array) -> tuple[Array, Array, Array]:
    """Return mean and half-widths of claim and prediction of each run, as `over_sittings` does of one.

    Args:
        means: log ratio of each sitting, float64[runs, sittings].
    """
    count = means.shape[1]
    spread = means.std(1, ddof=1) * t_quantile(1.0 - TAIL, count - 1)
    return means.mean(1), spread / math.sqrt(count), spread * math.sqrt(1.0 + 1.0 / count)


def run(case: str, runs: int = RUNS) -> list[Row]:
    """Return a row for every spread and every number of sittings."""
    rng = np.random.default_rng(zlib.crc32(case.encode()))
    return [_row(case, sd, count, runs, rng) for sd in SITTING_SDS for count in SITTINGS]


def _row(noise: str, sd: float, count: int, runs: int, rng: np.random.Generator) -> Row:
    effects, apart = sittings_of(noise, sd, (runs, count + 1), rng)
    mean, half, ahead = intervals(effects[:, :count])
    return {
        "noise": noise,
        "sd": sd,
        "sittings": count,
        "runs": runs,
        "covered": int((np.abs(mean) <= half).sum()),
        "half_width": round(float(np.median(half)), 5),
        "next_inside": int((np.abs(effects[:, count] - mean) <= ahead).sum()),
        "another_day_inside": int((np.abs(apart - mean) <= ahead).sum()),
        "next_half_width": round(float(np.median(ahead)), 5),
    }


def known_failures(cells: Sequence[Row]) -> dict[str, float]:
    """Return the noises whose claim or prediction of the next sitting covers less than `FAILURE`, with the least."""
    least: dict[str, float] = {}
    for row in cells:
        share = min(row["covered"], row["next_inside"]) / row["runs"]
        if share < FAILURE:
            least[row["noise"]] = min(share, least.get(row["noise"], 1.0))
    return least


def required(cells: Sequence[Row], name: str) -> str:
    """Return the least share of a column that is required, and every cell that falls short of it.

    Args:
        cells: of the report.
        name: ``covered`` or ``next_inside``.
    """
    barred = [(row[name] / row["runs"], row) for row in cells if row["noise"] in REQUIRED]
    if not barred:
        return "not measured"
    short = [
        f"{row['noise']} {row['sd'] * 100:.0f} %, {row['sittings']} sittings: {share:.4f}"
        for share, row in barred
        if share < COVERAGE
    ]
    outcome = f"NOT met in {len(short)} of {len(barred)} cells ({'; '.join(short)})" if short else "met"
    return f"at least {min(share for share, _ in barred):.4f}, required {COVERAGE:.2f}: {outcome}"


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return what is required, and the known failures."""
    cells = rows_of(entries)
    names = " and ".join(REQUIRED)
    lines = [f"{names}, claim: {required(cells, 'covered')}", f"{names}, next: {required(cells, 'next_inside')}"]
    return lines + [f"known failure: {noise}, down to {share:.3f}" for noise, share in known_failures(cells).items()]


STUDY = Study(
    "standing-claims", "How often does a standing claim hold the truth?", lambda: NOISES, run, "seconds", summary
)
