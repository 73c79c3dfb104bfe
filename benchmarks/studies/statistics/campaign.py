"""The cells of the simulation: a noise and an order a case, every launch effect in its rows."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from benchmarks.studies.statistics.bars import bars
from benchmarks.studies.statistics.noises import NOISES, ORDERS, Array, Order, errors
from benchmarks.studies.statistics.rule import Ended, stopped
from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.launches.stopping import BLOCKS, MODELS, LaunchRule
from bridge.launches.wording import FASTER

RUNS: Final = 40_000
LAUNCH_SDS: Final = (0.0, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08)
EFFECTS: Final = ("Gaussian", "t3", "two-mode")
RULES: Final[Mapping[str, LaunchRule]] = MappingProxyType({"no": MODELS, "5": BLOCKS})
_MARGIN: Final = math.log(FASTER)


def cases() -> tuple[str, ...]:
    """Return the name of every pair of a noise and an order."""
    return tuple(f"{noise}, {order}" for order in ORDERS for noise in NOISES)


def run(case: str, runs: int = RUNS) -> list[Row]:
    """Return a row for every launch effect, with and without blocks."""
    name, _, order = case.rpartition(", ")
    rng = np.random.default_rng(zlib.crc32(case.encode()))
    return list(_rows(name, "turns" if order == "turns" else "whole", runs, rng))


def _rows(name: str, order: Order, runs: int, rng: np.random.Generator) -> Iterator[Row]:
    for blocks, rule in RULES.items():
        within = errors(NOISES[name], order, rule.blocks, (runs, rule.most), rng)
        for effect in EFFECTS:
            for sd in LAUNCH_SDS:
                ended = stopped(rule, within + effects(effect, sd, within.shape, rng))
                yield {"noise": name, "order": order, "blocks": blocks, "effect": effect, "sd": sd} | rates(
                    ended, rule.half_width
                )


def effects(kind: str, sd: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return what each launch differs by on one program, mean 0 and this standard deviation.

    ``two-mode``: one launch in four is slow by 2 / sqrt(.75) standard deviations against the others.
    """
    if sd == 0.0:
        return np.zeros(shape)
    if kind == "Gaussian":
        return rng.standard_normal(shape) * sd
    if kind == "t3":
        return rng.standard_t(3, shape) * (sd / math.sqrt(3.0))
    return np.where(rng.random(shape) < 0.25, 1.5, -0.5) * (sd / math.sqrt(0.75))


def rates(ended: Ended, width: float) -> dict[str, Any]:
    """Return what came of runs whose true ratio is 1, and what would at other ones, as shares.

    A true ratio moves every launch alike, so the same runs answer for all of them.
    """
    mean, half, runs = ended.mean, ended.half, len(ended.mean)
    low, high = mean - half, mean + half

    def faster(ratio: float) -> int:
        return int((low + math.log(ratio) > _MARGIN).sum())

    counts = {
        "covered": int((np.abs(mean) <= half).sum()),
        "false_faster": faster(1.0),
        "false_slower": int((high < -_MARGIN).sum()),
        "faster_at_1_05": faster(1.05),
        "faster_at_1_10": faster(1.10),
        "faster_at_1_20": faster(1.20),
        "faster_at_5_slower": faster(1.0 / 1.05),
        "width_reached": int((half <= width).sum()),
    }
    return {
        "runs": runs,
        "launches": round(float(ended.launches.mean()), 2),
        "half_width": round(float(np.median(half)), 5),
        **counts,
    }


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return every bound with its worst cell."""
    return [str(bar) for bar in bars(rows_of(entries))]


STUDY = Study(
    "simulation",
    "How often does the rule over launches err, and how often does it see?",
    cases,
    run,
    "ten minutes",
    summary,
)
