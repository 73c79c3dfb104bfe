"""Simpler depth policies: a gate on measured gain and a gate on the target's uncertainty.

Both are known from other engines and are kept for comparison with the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.decoding.depth import VerifiedOnly
from engine.types import Choice, Decision, Match, Pause


@dataclass(slots=True)
class CommitGate(VerifiedOnly):
    """Draft at a fixed depth until the average gain over plain decoding stays below 1, then never again.

    Plain decoding is timed once, over the first ``plain_steps`` tokens. The gain of a step is
    ``committed * plain time / step time``, averaged exponentially.
    """

    tokens: int
    plain_steps: int = 4
    patience: int = 4
    weight: float = 0.2
    gain: float = 1.0
    _plain_s: list[float] = field(default_factory=list)
    _bad_steps: int = 0
    _closed: bool = False

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None] | None = None) -> Choice:
        """Return the fixed depth while the gate is open."""
        del position, lookup
        return Choice(0 if self._closed or len(self._plain_s) <= self.plain_steps else min(self.tokens, limit))

    def park(self, position: int) -> Pause:
        """Return the tokens to time, or for ever once closed."""
        del position
        return Pause(1 << 30 if self._closed else self.plain_steps + 1)

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float | None) -> None:
        """Time plain steps first, then watch the gain."""
        del position
        if drafted == 0 or elapsed_s is None:
            self._plain_s += [] if elapsed_s is None else [elapsed_s]
            return
        # The first timed step filled the pipeline.
        timed = sorted(self._plain_s[1 : self.plain_steps + 1])
        plain_s = timed[len(timed) // 2]
        self.gain += self.weight * (len(outcome.tokens) * plain_s / elapsed_s - self.gain)
        self._bad_steps = self._bad_steps + 1 if self.gain < 1.0 else 0
        self._closed = self._bad_steps >= self.patience


@dataclass(slots=True)
class EntropyGate(VerifiedOnly):
    """Draft only while the target was sure of its newest token: min-entropy in nats at or below ``limit_nats``.

    Min-entropy is -ln of the largest probability: 0 when sure, 0.69 when the best token has one half.
    """

    tokens: int
    limit_nats: float = 0.7
    pause_steps: int = 1
    _sure: bool = True

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None] | None = None) -> Choice:
        """Return the fixed depth when the target was sure."""
        del position, lookup
        return Choice(min(self.tokens, limit) if self._sure else 0)

    def park(self, position: int) -> Pause:
        """Return how many tokens to decode plainly before looking again."""
        del position
        return Pause(self.pause_steps)

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float | None) -> None:
        """Remember how sure the target was; a backend that does not say leaves the gate as it is."""
        del position, drafted, elapsed_s
        if outcome.min_entropy_nats is not None:
            self._sure = outcome.min_entropy_nats <= self.limit_nats
