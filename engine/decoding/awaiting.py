"""Whether to wait for a draft that comes from elsewhere, or to decode plainly until it is there.

A draft that was not waited for is shortened: tokens that came meanwhile are compared with its head, and what is left
of it is verified. A draft that was overtaken, or whose head was another, costs no forward of the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from engine.decoding.estimates import COST_WEIGHT, Acceptance

WAITING_MARGIN = 1.05
"""How much better waiting must promise to be: a wait can be lost, going on cannot."""
PATIENCE = 2.0
"""In mean latencies: how long a draft that is worth waiting for is waited for."""
UNTIMED_VERIFY = 1.3
"""In plain steps: what verifying a draft is taken to cost until one was timed."""
LARGEST_SLOWING = 8.0
"""How many times longer a plain step may take beside a draft under way; a longer one is taken for a disturbance."""


@dataclass(slots=True)
class Latency:
    """Seconds from asks to their drafts on average; None for a drafter whose drafts were all there at once.

    ``slows`` is how many times longer a plain step takes while a draft is under way: sending rows needs this machine,
    and a drafter may run on it too. ``round_trip_s`` is what an ask takes at least, None for a drafter of this process.
    """

    seconds: float | None = None
    slows: float = 1.0
    round_trip_s: float | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether drafts may be late at all."""
        return self.round_trip_s is not None or self.seconds is not None

    @property
    def least_s(self) -> float:
        """Seconds that a draft is expected to take: before one came, what its way takes."""
        return self.seconds if self.seconds is not None else self.round_trip_s or 0.0

    def learn(self, came_s: float) -> None:
        """Take one draft that came."""
        known = came_s if self.seconds is None else self.seconds
        self.seconds = known + COST_WEIGHT * (came_s - known)

    def at_least(self, passed_s: float) -> None:
        """Take one that had not come after so long."""
        self.seconds = max(self.seconds or 0.0, passed_s)

    def slowed(self, elapsed_s: float, plain_s: float) -> None:
        """Take a plain step beside a draft under way."""
        self.slows += COST_WEIGHT * (min(elapsed_s / plain_s, LARGEST_SLOWING) - self.slows)

    @property
    def lost_s(self) -> float:
        """Seconds that a draft which comes to nothing is expected to cost, though nobody waits for it."""
        return self.least_s * max(0.0, 1.0 - 1.0 / self.slows)


@dataclass(frozen=True, slots=True)
class Way:
    """Expected tokens a second, and how long to wait for a draft to get them; 0 goes on without waiting."""

    rate: float
    wait_s: float


def best_way(
    acceptance: Acceptance, depth: int, latency: Latency, plain_s: float, verify_s: Callable[[int], float]
) -> Way:
    """Return the better of waiting for ``depth`` tokens and going on; ``verify_s`` is what verifying so many takes."""
    committed, latency_s = acceptance.committed, latency.least_s
    waiting = committed(depth) / (latency_s + verify_s(depth))
    plain_s *= max(1.0, latency.slows)
    passed, going_on = max(1, math.ceil(latency_s / plain_s)), 1.0 / plain_s
    if passed < depth:
        reached = committed(passed) - committed(passed - 1)
        tokens = passed + reached + committed(depth) - committed(passed)
        going_on = tokens / (passed * plain_s + reached * verify_s(depth - passed))
    if waiting > WAITING_MARGIN * going_on:
        return Way(waiting, PATIENCE * latency_s)
    return Way(going_on, 0.0)
