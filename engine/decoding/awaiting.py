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


@dataclass(slots=True)
class Latency:
    """Seconds from asks to their drafts on average; None for a drafter whose drafts were all there at once."""

    seconds: float | None = None

    def learn(self, came_s: float) -> None:
        """Take one draft that came."""
        known = came_s if self.seconds is None else self.seconds
        self.seconds = known + COST_WEIGHT * (came_s - known)

    def at_least(self, passed_s: float) -> None:
        """Take one that had not come after so long."""
        self.seconds = max(self.seconds or 0.0, passed_s)


@dataclass(frozen=True, slots=True)
class Way:
    """Expected tokens a second, and how long to wait for a draft to get them; 0 goes on without waiting."""

    rate: float
    wait_s: float


def best_way(
    acceptance: Acceptance, depth: int, latency_s: float, plain_s: float, verify_s: Callable[[int], float]
) -> Way:
    """Return the better of waiting for ``depth`` tokens and going on; ``verify_s`` is what verifying so many takes."""
    committed = acceptance.committed
    waiting = committed(depth) / (latency_s + verify_s(depth))
    passed, going_on = max(1, math.ceil(latency_s / plain_s)), 1.0 / plain_s
    if passed < depth:
        reached = committed(passed) - committed(passed - 1)
        tokens = passed + reached + committed(depth) - committed(passed)
        going_on = tokens / (passed * plain_s + reached * verify_s(depth - passed))
    if waiting > WAITING_MARGIN * going_on:
        return Way(waiting, PATIENCE * latency_s)
    return Way(going_on, 0.0)
