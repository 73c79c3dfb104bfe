"""Twelve kinds of machine noise, as the log slow-down of each step of a run; two programs take turns in it.

A step is a turn of one program, or a whole sample where no turns are handed out. Knows nothing of rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
import scipy

Array = np.ndarray[Any, np.dtype[np.float64]]
Order = Literal["turns", "whole"]
ORDERS: Final[tuple[Order, ...]] = ("turns", "whole")
PROMPTS: Final = 12
ROUNDS: Final[Mapping[Order, int]] = MappingProxyType({"turns": 5, "whole": 1})
LENGTHS: Final = 0.15  # log sd of the prompts' lengths
PROMPT_RATIOS: Final = 0.14  # log sd of the ratio over prompts: measured at depth 3
JITTER: Final = 0.02
_STEPS_AT_ONCE: Final = 12_000_000


@dataclass(frozen=True)
class Independent:
    """Every step differs by itself."""

    sd: float

    def steps(self, runs: int, count: int, rng: np.random.Generator) -> Any:
        """Return the log slow-down of each step, float32[runs, count]."""
        return rng.standard_normal((runs, count), dtype=np.float32) * np.float32(self.sd)


@dataclass(frozen=True)
class Autoregressive:
    """What was slow stays slow for a while: AR(1), beside the jitter of each step."""

    rho: float
    sd: float

    def steps(self, runs: int, count: int, rng: np.random.Generator) -> Any:
        """Return the log slow-down of each step, float32[runs, count]."""
        drawn = rng.standard_normal((runs, count), dtype=np.float32)
        drawn *= np.float32(self.sd * math.sqrt(1.0 - self.rho * self.rho))
        drawn[:, 0] = rng.standard_normal(runs) * self.sd
        return scipy.signal.lfilter([1.0], [1.0, -self.rho], drawn, axis=1).astype(np.float32) + _jitter(
            runs, count, rng
        )


@dataclass(frozen=True)
class Bursts:
    """Somebody else's work comes and goes: 1.6 times as slow for six steps on average, a tenth of the time."""

    def steps(self, runs: int, count: int, rng: np.random.Generator) -> Any:
        """Return the log slow-down of each step, float32[runs, count]."""
        drawn = rng.random((count, runs), dtype=np.float32)
        on = np.empty((count, runs), bool)
        state = rng.random(runs) < 0.1
        for step in range(count):
            state = np.where(state, drawn[step] < 1 - 1 / 6, drawn[step] < 0.0185)
            on[step] = state
        return on.T * np.float32(math.log(1.6)) + _jitter(runs, count, rng)


@dataclass(frozen=True)
class HeavyTails:
    """One step in twenty takes 1.3 to 3 times as long."""

    def steps(self, runs: int, count: int, rng: np.random.Generator) -> Any:
        """Return the log slow-down of each step, float32[runs, count]."""
        drawn = rng.random((runs, count), dtype=np.float32)
        slow = np.log(np.float32(1.3) + np.float32(1.7) * rng.random((runs, count), dtype=np.float32))
        return np.where(drawn < 0.05, slow, np.float32(0.0)) + _jitter(runs, count, rng)


@dataclass(frozen=True)
class Drift:
    """The machine gets slower from the first step to the last."""

    by: float

    def steps(self, runs: int, count: int, rng: np.random.Generator) -> Any:
        """Return the log slow-down of each step, float32[runs, count]."""
        return _jitter(runs, count, rng) + np.linspace(0.0, math.log1p(self.by), count, dtype=np.float32)


Noise = Independent | Autoregressive | Bursts | HeavyTails | Drift
NOISES: Final[Mapping[str, Noise]] = MappingProxyType(
    {
        "independent 2 %": Independent(0.02),
        "independent 5 %": Independent(0.05),
        "independent 10 %": Independent(0.10),
        "independent 20 %": Independent(0.20),
        "AR .9, 10 %": Autoregressive(0.9, 0.10),
        "AR .9, 20 %": Autoregressive(0.9, 0.20),
        "AR .95, 10 %": Autoregressive(0.95, 0.10),
        "AR .95, 20 %": Autoregressive(0.95, 0.20),
        "bursts": Bursts(),
        "heavy tails": HeavyTails(),
        "drift 10 %": Drift(0.10),
        "drift 30 %": Drift(0.30),
    }
)


def errors(noise: Noise, order: Order, blocks: int, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Return how far each launch's log ratio is from that of its pinned prompts, float64[runs, launches].

    Both programs do the same pairs of turns (or samples), in drawn order; with blocks the prompts' ratios differ from
    block to block, so that only their removal leaves the truth.

    Args:
        noise: of the machine.
        order: how the programs alternate.
        blocks: of prompts; launch k runs block k % blocks.
        shape: runs, launches of each.
        rng: drawn from.
    """
    runs, launches = shape
    pairs = PROMPTS * ROUNDS[order]
    at_once = max(1, _STEPS_AT_ONCE // (launches * pairs * 2))
    log_ratios = np.empty(shape)
    for start in range(0, runs, at_once):
        some = min(at_once, runs - start)
        times = np.exp(noise.steps(some, launches * pairs * 2, rng)).reshape(some, launches, pairs, 2)
        swap = rng.random((some, launches, pairs), dtype=np.float32) < 0.5
        baseline = np.where(swap, times[..., 1], times[..., 0])
        candidate = np.where(swap, times[..., 0], times[..., 1])
        work = np.exp(rng.normal(0.0, LENGTHS, (some, blocks, PROMPTS)))
        other = work * np.exp(rng.normal(0.0, PROMPT_RATIOS, (some, blocks, PROMPTS)))
        place = np.arange(launches) % blocks
        totals = [
            (side * np.repeat(load[:, place], ROUNDS[order], axis=-1).astype(np.float32)).sum(-1, dtype=np.float64)
            for side, load in ((baseline, work), (candidate, other))
        ]
        truth = np.log(work.sum(-1) / other.sum(-1)).mean(-1)
        log_ratios[start : start + some] = np.log(totals[0] / totals[1]) - truth[:, None]
    return log_ratios


def _jitter(runs: int, count: int, rng: np.random.Generator) -> Any:
    return rng.standard_normal((runs, count), dtype=np.float32) * np.float32(JITTER)
