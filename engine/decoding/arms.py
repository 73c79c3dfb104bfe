"""What a controller knows of each drafter it may ask: acceptance and waits; and what steps with it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.decoding.awaiting import UNTIMED_VERIFY, Latency, Way, best_way
from engine.decoding.estimates import COST_WEIGHT, LARGEST_INNOVATION, Acceptance, Costs, Waits

START_ALLOWANCE = 4.0
ALLOWED_SHARE = 0.01
BUCKET_POSITIONS = 512
PLAIN_STEPS_TO_LEARN = 4
FIRST_DEPTH = 3
PROBE_COST_PRIOR = 2.0
"""In plain steps: what a drafted step is taken to cost until one was timed."""
LARGEST_FIRST_COST = 8.0
"""In plain steps: what a step at a depth not measured yet is booked at most, since it may warm the depth up."""
LEAST_HOPE = 0.2
"""How much of the way from what is known of a drafter to being always right is thought possible at any time."""


CostTable = Mapping[str, Mapping[int, float]]
"""Seconds of a step by source and by rows of its forward, the draft included; one row is a plain step."""


class Arm(NamedTuple):
    """A drafter and how many tokens it drafts; depth 0 is plain decoding, whoever is named."""

    source: str
    depth: int


PLAIN = Arm("", 0)


@dataclass(slots=True)
class Source:
    """One drafter: the most it drafts, how far its drafts are right, what asks that come to nothing cost.

    ``unasked`` is for how many steps it was not asked.
    """

    longest: int
    acceptance: Acceptance
    waits: Waits = field(default_factory=Waits)
    latency: Latency = field(default_factory=Latency)
    unasked: int = 0

    @classmethod
    def unknown(cls, longest: int) -> Source:
        """Start with nothing known."""
        return cls(longest, Acceptance.prior(longest))

    @property
    def first_depth(self) -> int:
        """How many tokens to ask for while nothing is known of its steps."""
        return self.longest if self.latency.elsewhere else min(FIRST_DEPTH, self.longest)

    def hoped_rate(self, costs: Bucket, name: str) -> float:
        """Return the rate if its drafts came nearer to being always right: the less is known of them, the nearer."""
        cost_s = costs.of(name).of(self.longest) or PROBE_COST_PRIOR * costs.plain_s
        expected = self.acceptance.committed(self.longest)
        hope = max(LEAST_HOPE, 1.0 / (1 + self.acceptance.reached[0]))
        return (expected + hope * (self.longest + 1 - expected)) / cost_s

    def way(self, costs: Bucket, name: str, depth: int) -> Way | None:
        """Return whether to wait for a draft from elsewhere, None for a drafter whose drafts are there at once."""
        if self.latency.seconds is None or not costs.plain_s:
            return None
        timed, untimed_s = costs.of(name), UNTIMED_VERIFY * costs.plain_s

        def verify_s(count: int) -> float:
            return timed.of(count) or untimed_s

        latency = self.latency
        return best_way(
            self.acceptance,
            depth,
            self.latency.seconds,
            costs.plain_s,
            verify_s,
            slows=latency.slows,
            more=latency.more,
        )

    def stands(self, round_trip_s: float | None) -> None:
        """Take how far away it is; of another link than before nothing is known."""
        if round_trip_s != self.latency.round_trip_s:
            self.latency = Latency(round_trip_s=round_trip_s)

    def too_far(self, costs: Bucket) -> bool:
        """Say whether drafts come too late to be worth anything here, were they all right and cheap to verify."""
        if not self.latency.elsewhere or not costs.plain_s:
            return False
        right, verify_s = Acceptance.perfect(self.longest), UNTIMED_VERIFY * costs.plain_s
        way = best_way(
            right,
            self.longest,
            self.latency.soonest_s,
            costs.plain_s,
            lambda _: verify_s,
            slows=self.latency.slows,
            more=self.latency.more,
        )
        return way.rate * costs.plain_s <= 1.0

    @property
    def promised(self) -> float:
        """Tokens that a step with a whole block is expected to commit."""
        return self.acceptance.committed(self.longest)


@dataclass(slots=True)
class Bucket:
    """What steps cost at contexts of like length: plain ones, and drafted ones by drafter."""

    plain: Costs = field(default_factory=Costs)
    drafted: dict[str, Costs] = field(default_factory=dict)
    neighbours: bool = False
    """Whether its estimates began as those of a bucket that was known."""
    since_plain: int = 0
    """Steps since a plain one was timed here that no draft was under way beside."""

    def of(self, source: str) -> Costs:
        """Return the costs of steps with a drafter."""
        if source not in self.drafted:
            self.drafted[source] = Costs()
        return self.drafted[source]

    @property
    def plain_s(self) -> float:
        """Seconds of a plain step, 0 before one was measured."""
        return self.plain.seconds.get(0, 0.0)

    @property
    def plain_known(self) -> bool:
        """Whether a plain step was timed often enough to compare with: here, or where these estimates come from."""
        return self.neighbours or self.plain.timed_steps.get(0, 0) >= PLAIN_STEPS_TO_LEARN

    def learn(self, arm: Arm, elapsed_s: float) -> None:
        """Take the time of one step; what was read or inherited and not timed here moves by as much.

        A depth whose time was not known begins at what its first step took. The others follow that upwards no further
        than a step of a known depth takes them: one disturbance would make all of them dear.
        """
        if not elapsed_s > 0.0:
            return  # a clock that did not move says nothing, and rates are shares of what plain steps take
        before_s = self.seconds_of(arm)
        (self.of(arm.source) if arm.depth else self.plain).learn(arm.depth, elapsed_s)
        self.since_plain *= arm.depth > 0
        if before_s:
            moved = min((self.seconds_of(arm) or before_s) / before_s, 1.0 + COST_WEIGHT * LARGEST_INNOVATION)
            for costs in (self.plain, *self.drafted.values()):
                costs.scale_untimed(moved)

    def seconds_of(self, arm: Arm) -> float | None:
        """Return what a step is known to take, None if unknown."""
        return self.of(arm.source).of(arm.depth) if arm.depth else self.plain.seconds.get(0)

    def seen(self, arm: Arm) -> int:
        """Return how many times of a step were taken."""
        return (self.of(arm.source) if arm.depth else self.plain).timed_steps.get(arm.depth, 0)

    @property
    def drafted_steps(self) -> int:
        """How many times of drafted steps were taken."""
        return sum(sum(costs.timed_steps.values()) for costs in self.drafted.values())

    def allowance_s(self, decoded_s: float) -> float:
        """Return the seconds that learning may lose in all, once decoding has taken ``decoded_s``."""
        return START_ALLOWANCE * self.plain_s + ALLOWED_SHARE * decoded_s

    def longest_s(self, known_s: float | None) -> float:
        """Return what a drafted step is booked at most, known to take ``known_s`` seconds or not timed yet."""
        return max((known_s or 0.0) * (1 + LARGEST_INNOVATION), LARGEST_FIRST_COST * self.plain_s)

    @classmethod
    def read(cls, table: CostTable) -> Bucket:
        """Return a bucket that starts from a table, none of it its own."""
        plain_s = next(iter(table.values()))[1]
        drafted = {
            source: Costs({rows - 1: step_s for rows, step_s in by_rows.items() if rows > 1})
            for source, by_rows in table.items()
        }
        return cls(Costs({0: plain_s}), drafted, neighbours=True)

    def inherited(self) -> Bucket:
        """Return a bucket that starts from these estimates, none of them its own."""
        drafted = {source: Costs(dict(costs.seconds)) for source, costs in self.drafted.items()}
        return Bucket(Costs(dict(self.plain.seconds)), drafted, neighbours=self.plain_known)


@dataclass(slots=True)
class Ahead:
    """Plain steps of a pause, each queued before the one before it is read.

    Whoever waits for a full queue takes the first token once two forwards were run, and the last at once; of the others
    each is known to be one once the next is there.
    """

    taken: int = 0
    last_s: float = 0.0
    shadow_s: float | None = None
    """What the first step took, a shadow draft beside it; None without one."""
    pending: tuple[Bucket, float] | None = None

    def take(self, costs: Bucket, elapsed_s: float, *, alone: bool, shadow: bool) -> None:
        """Take a step's time, and learn that of the one before; ``alone`` if nothing was beside it."""
        if self.pending is not None:
            before, before_s = self.pending
            before.learn(PLAIN, before_s)
        self.taken, self.last_s = self.taken + 1, elapsed_s
        self.pending = (costs, elapsed_s) if self.taken > 1 and alone else None
        self.shadow_s = elapsed_s if shadow else self.shadow_s

    def shadow_cost(self, plain_s: float) -> float:
        """Return what the shadow draft cost, in plain steps: the first and the last token are two."""
        steps = min(2, self.taken)
        both_s = (self.shadow_s or 0.0) + (self.last_s if self.taken > 1 else 0.0)
        return max(0.0, both_s / plain_s - steps)


def bucket_at(buckets: dict[int, Bucket], position: int, table: CostTable | None = None) -> Bucket:
    """Return the bucket of a position.

    A new one starts from its nearest neighbour's estimates, the first of all from a table where there is one.
    """
    number = (position // BUCKET_POSITIONS).bit_length()
    if number not in buckets:
        nearest = min(buckets, key=lambda other: abs(other - number), default=None)
        first = Bucket() if table is None else Bucket.read(table)
        buckets[number] = first if nearest is None else buckets[nearest].inherited()
    return buckets[number]


def sources_of(longest: int | Mapping[str, int]) -> dict[str, Source]:
    """Return the drafters that must be asked to know what they propose, by name; a number is a single one without."""
    named = {"": longest} if isinstance(longest, int) else dict(longest)
    return {name: Source.unknown(most) for name, most in named.items() if most > 0}
