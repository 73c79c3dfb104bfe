"""Whether to wait for a draft that comes from elsewhere, or to decode plainly until it is there.

A draft that was not waited for is shortened: tokens that came meanwhile are compared with its head, and what is left
of it is verified. A draft that was overtaken, or whose head was another, costs no forward of the target.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.decoding.estimates import COST_WEIGHT, EARLY_STEPS, Acceptance

WAITING_MARGIN = 1.05
"""How much better waiting must promise to be: a wait can be lost whole, going on is slowed at most."""
PATIENCE = 2.0
"""In mean latencies: how long a draft that is worth waiting for is waited for."""
NEWEST = 4
"""Of how many drafts the soonest says how far away a drafter is."""
UNTIMED_VERIFY = 1.3
"""In plain steps: what verifying a draft is taken to cost until one was timed."""
MOST_MORE = 2
"""Tokens that may come beyond those that fit beside a draft: one is read late, one is under way."""
LARGEST_SLOWING = 4.0
"""How many times longer a plain step may take beside a draft under way; a longer one is taken for a disturbance."""


@dataclass(slots=True)
class Latency:
    """Seconds from asks to their drafts on average; None for a drafter whose drafts were all there at once.

    ``slows`` is how many times longer a plain step takes while a draft is under way: sending rows needs this machine,
    and a drafter may run on it too. ``round_trip_s`` is what an ask took that nothing was computed for, None for a
    drafter of this process. ``newest`` are the seconds of the last drafts that came. ``more`` is how many tokens come
    beyond those that fit beside a draft: a forward under way is read.
    """

    seconds: float | None = None
    slows: float = 1.0
    round_trip_s: float | None = None
    more: float = 0.0
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))

    @property
    def elsewhere(self) -> bool:
        """Whether drafts may be late at all."""
        return self.round_trip_s is not None or self.seconds is not None

    @property
    def least_s(self) -> float:
        """Seconds that a draft is expected to take: before one came, what its way takes."""
        return self.seconds if self.seconds is not None else self.round_trip_s or 0.0

    @property
    def soonest_s(self) -> float:
        """Seconds that a draft takes when all goes well: one that was slow, or the only one, is no verdict."""
        return min(self.newest) if len(self.newest) > 1 else self.round_trip_s or 0.0

    def learn(self, came_s: float) -> None:
        """Take one draft that came; of the first the shortest counts, since one of them takes a whole prompt along."""
        self.newest.append(came_s)
        if self.seconds is None or (came_s < self.seconds and len(self.newest) <= EARLY_STEPS):
            self.seconds = came_s
        else:
            self.seconds += COST_WEIGHT * (came_s - self.seconds)

    def at_least(self, passed_s: float) -> None:
        """Take one that had not come after so long."""
        self.seconds = max(self.least_s, passed_s)

    def slowed(self, times: float) -> None:
        """Take how many times longer plain steps took beside a draft, all of them together."""
        self.slows += COST_WEIGHT * (times - self.slows)

    def overtook(self, passed: int, came_s: float, plain_s: float) -> None:
        """Take how many tokens came before a late draft was verified: one may be under way when it is seen."""
        more = passed - tokens_beside(came_s, plain_s * max(1.0, self.slows))
        self.more += COST_WEIGHT * (min(max(more, 0), MOST_MORE) - self.more)

    @property
    def lost_s(self) -> float:
        """Seconds that a draft which comes to nothing is expected to cost, though nobody waits for it."""
        return min(self.least_s, self.soonest_s) * max(0.0, 1.0 - 1.0 / self.slows)


@dataclass(slots=True)
class BesideDraft:
    """Plain steps beside a draft that is under way: what they lost, and how many times longer all of them took.

    A single one says little: where a full queue is waited for, the first takes two forwards and the last none.
    """

    latency: Latency
    times: float = 0.0
    steps: int = 0

    def take(self, elapsed_s: float, plain_s: float) -> float:
        """Take a step; return what it adds to what they lost, in seconds: never less than nothing in all."""
        lost_before = self._lost
        self.times += min(elapsed_s / plain_s, 2 * LARGEST_SLOWING)  # the first may be two forwards
        self.steps += 1
        return (self._lost - lost_before) * plain_s

    def end(self) -> None:
        """Learn from all of them."""
        if self.steps:
            self.latency.slowed(min(self.times / self.steps, LARGEST_SLOWING))

    @property
    def _lost(self) -> float:
        return max(0.0, min(self.times, LARGEST_SLOWING * self.steps) - self.steps)


@dataclass(frozen=True, slots=True)
class Way:
    """Expected tokens a second, and how long to wait for a draft to get them; 0 goes on without waiting.

    ``left`` is how many of its tokens are expected not to be overtaken.
    """

    rate: float
    wait_s: float
    left: int


def tokens_beside(latency_s: float, beside_s: float) -> int:
    """Return how many plain tokens have come when a draft is there, at least the one from its own bonus."""
    return max(1, math.ceil(latency_s / beside_s))


def best_way(
    acceptance: Acceptance,
    depth: int,
    latency_s: float,
    plain_s: float,
    verify_s: Callable[[int], float],
    *,
    slows: float = 1.0,
    more: float = 0.0,
) -> Way:
    """Return the better of waiting for ``depth`` tokens and going on, ``slows`` times slower until the draft is there.

    ``verify_s`` is what verifying so many tokens takes, ``more`` how many come beyond those that fit beside a draft.
    """
    committed, beside_s = acceptance.committed, plain_s * max(1.0, slows)
    waiting = committed(depth) / (latency_s + verify_s(depth))
    passed, going_on = tokens_beside(latency_s, beside_s) + round(more), 1.0 / beside_s
    if passed < depth:
        reached = committed(passed) - committed(passed - 1)
        tokens = passed + reached + committed(depth) - committed(passed)
        going_on = tokens / (passed * beside_s + reached * verify_s(depth - passed))
    if waiting > WAITING_MARGIN * max(going_on, 1.0 / plain_s):
        return Way(waiting, PATIENCE * latency_s, depth)
    return Way(going_on, 0.0, max(0, depth - passed))
