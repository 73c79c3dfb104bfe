"""The stop rule over many runs at once, with the product's constants; a test holds it equal to `decide`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.studies.statistics.noises import Array
from bridge.launches.distributions import t_quantile
from bridge.launches.estimate import TAIL
from bridge.launches.stopping import LaunchRule


@dataclass(frozen=True)
class Ended:
    """Runs that were stopped by a rule.

    Attributes:
        mean: estimated log ratios, float64[runs].
        half: half-widths of the intervals printed as 95 %.
        launches: how many each took.
    """

    mean: Array
    half: Array
    launches: Array


def stopped(rule: LaunchRule, logs: Array, tail: float = TAIL, looks: int = 1) -> Ended:
    """Return where the rule stops each run.

    Args:
        rule: of the product, or another one to compare with.
        logs: log ratio of each launch, float64[runs, launches]; at least `rule.most` launches.
        tail: one-sided; the product's unless another one is compared.
        looks: how many ratios the printed interval is corrected for; the width that stops is not.
    """
    runs, rounds = len(logs), rule.most // rule.blocks
    grid = logs[:, : rule.most].reshape(runs, rounds, rule.blocks)
    total, squares = np.cumsum(grid, axis=1), np.cumsum(grid * grid, axis=1)
    turn = np.arange(1, rounds + 1)
    count = turn * rule.blocks
    spread = np.maximum((squares - total * total / turn[:, None]).sum(-1), 0.0)
    df = count - rule.blocks
    error = np.sqrt(spread / np.maximum(df, 1) / count)
    stop, printed = (
        np.array([t_quantile(1.0 - side, max(1, int(value))) for value in df]) for side in (tail, tail / looks)
    )
    looked, half = stop * error, printed * error
    looked[:, count < rule.least] = np.inf
    narrow = looked <= rule.half_width
    end = np.where(narrow.any(1), narrow.argmax(1), rounds - 1)
    row = np.arange(runs)
    return Ended(total.sum(-1)[row, end] / count[end], half[row, end], count[end])
