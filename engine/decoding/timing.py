"""The clock of the decoding loop: one, which stands still while the consumer holds a step."""

from __future__ import annotations

from collections.abc import Iterator

from engine.protocols import Clock
from engine.types import Step

HIDDEN_SHARE = 0.05
"""Of a queued step's time: a consumer who was away for more may have been what it waited for."""


class StepClock:
    """Seconds of one step after another, without what the consumer took between them."""

    def __init__(self, clock: Clock) -> None:
        self._host_ns, self._eager = clock.host_ns, clock.eager
        self._began_ns = self._away_ns = 0

    def passing(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield the steps; nothing of the loop runs while the consumer holds one."""
        for step in steps:
            given_ns = self._host_ns()
            yield step
            away_ns = self._host_ns() - given_ns
            self._began_ns += away_ns
            self._away_ns += away_ns

    def begin(self) -> None:
        """Begin a step, or a pause of them."""
        self._began_ns, self._away_ns = self._host_ns(), 0

    def leave_out(self, seconds: float) -> None:
        """Take a wait for a draft out of the step: how long it takes depends on a link, not on the target."""
        self._began_ns += round(seconds * 1e9)

    def lap_s(self) -> float:
        """Return the seconds since the step began; the next begins now."""
        began_ns, self._began_ns = self._began_ns, self._host_ns()
        return (self._began_ns - began_ns) / 1e9

    def step_s(self, drafted: int) -> float | None:
        """Return the seconds of a finished step; the next begins now.

        Of a plain step that a device computed while the consumer was away, nobody knows what it took: None.
        """
        elapsed_s, away_s = self.lap_s(), self._away_ns / 1e9
        self._away_ns = 0
        return None if not drafted and not self._eager and away_s > HIDDEN_SHARE * elapsed_s else elapsed_s
