"""What the runs of a model against its copy come to: false claims with a bound, and where the noise lies."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.studies.study import Row
from bridge.gate.stats.binomial import rate_upper
from bridge.launches.attempts import ShownInterval
from bridge.launches.estimate import Launch, over_launches
from bridge.launches.wording import effect

WRONG: Final = ("faster", "slower")
RESAMPLED: Final = 4000


@dataclass(frozen=True)
class Figures:
    """The campaign so far.

    Attributes:
        wrong: runs that called the copy faster or slower.
        bound: one-sided 95 % upper bound of their rate (Clopper and Pearson).
        between: standard deviation of the runs' log ratios beyond what their launches explain, 0 where there is none.
        launch_sd: root mean square of the launches' standard deviations.
        resampled: rate of wrong words when launches are drawn across runs.
        longest_s: of a run.
    """

    runs: int
    wrong: int
    bound: float
    between: float
    launch_sd: float
    resampled: float
    longest_s: float

    def __str__(self) -> str:
        """Return it in one line."""
        return (
            f"{self.wrong} of {self.runs} runs called the copy faster or slower (rate at most {self.bound:.3f}, 95 %); "
            f"launch sd {self.launch_sd * 100:.2f} %, between-run sd beyond it {self.between * 100:.2f} %; resampled "
            f"across runs {self.resampled:.4f}; the longest run took {self.longest_s:.0f} s"
        )


def figures(rows: Sequence[Row]) -> Figures | None:
    """Return what the runs come to, None before there are two."""
    if len(rows) < 2:
        return None
    wrong = sum(row["said"] in WRONG for row in rows)
    logs = [[float(value) for value in row["logs"]] for row in rows]
    within = statistics.fmean(row["launch_sd"] ** 2 for row in rows)
    means = [statistics.fmean(run) for run in logs]
    beyond = statistics.variance(means) - statistics.fmean(row["launch_sd"] ** 2 / len(row["logs"]) for row in rows)
    return Figures(
        len(rows),
        wrong,
        rate_upper(wrong, len(rows), 0.95),
        math.sqrt(max(0.0, beyond)),
        math.sqrt(within),
        resampled(logs),
        max(float(row["took_s"]) for row in rows),
    )


def resampled(logs: Sequence[Sequence[float]], draws: int = RESAMPLED) -> float:
    """Return how often launches drawn across runs, as many as a run has, are called faster or slower."""
    rng, every, size = random.Random(5), [value for run in logs for value in run], len(logs[0])
    wrong = 0
    for _ in range(draws):
        ratio = over_launches([Launch(value) for value in rng.choices(every, k=size)])
        wrong += ratio is not None and effect(ShownInterval.of(ratio)) in WRONG
    return wrong / draws
