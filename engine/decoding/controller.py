"""Never slower than autoregressive: choose the draft length from what steps cost and what they bring.

Expected rate of depth n is ``committed(n) / cost(n)``: ``committed(n) = 1 + a1 + a1 a2 + …`` from the conditional
acceptance of each draft position, ``cost(n)`` from measured step times, kept per depth and per context bucket because
verification grows with the context. Depth 0 is plain decoding with its own measured cost, and it wins ties.

Three rules bound what learning may cost:
1. A step time moves its estimate by at most a quarter, and the first step after a change of depth is not used at all.
2. Every drafted step is booked against plain decoding: ``loss = time - committed * plain time``. A probe (a step that
   is not expected to pay) is made only while the account stays below ``START_ALLOWANCE`` plain steps plus
   ``ALLOWED_SHARE`` of all plain-equivalent time. A useless drafter can therefore cost only that much.
3. While nothing changes, the distance between probes doubles from ``FIRST_PAUSE_STEPS`` to ``LONGEST_PAUSE_STEPS``, or
   while parked to ``CREDIT_PAUSE_STEPS`` as long as drafting has gained more than it lost.

Knows neither clocks nor models; ``engine.decoding.replay`` runs it on recorded costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.types import Outcome

BUCKET_POSITIONS = 512
FIRST_DEPTH = 3
START_ALLOWANCE = 4.0
ALLOWED_SHARE = 0.01
LARGEST_CREDIT = 16.0
FIRST_PAUSE_STEPS = 4
LONGEST_PAUSE_STEPS = 512
CREDIT_PAUSE_STEPS = 32
PLAIN_STEPS_TO_LEARN = 4
PROBE_STEPS = 2
PLAIN_CHECK_SHARE = 32
MARGIN = 1.02
ACCEPTANCE_WEIGHT = 0.1
COST_WEIGHT = 0.3
LARGEST_INNOVATION = 0.25
PRIOR_ACCEPTANCE = 0.6


@dataclass(slots=True)
class Acceptance:
    """Conditional acceptance of each draft position: a mean at first, an exponential average later."""

    rates: list[float]
    reached: list[int]

    @classmethod
    def prior(cls, positions: int) -> Acceptance:
        """Start every position at the prior, worth one observation."""
        return cls([PRIOR_ACCEPTANCE] * positions, [0] * positions)

    def learn(self, drafted: int, accepted: int) -> None:
        """Take one block: positions up to the first rejection were reached."""
        for position in range(min(accepted + 1, drafted)):
            self.reached[position] += 1
            weight = max(ACCEPTANCE_WEIGHT, 1.0 / (self.reached[position] + 1))
            hit = 1.0 if position < accepted else 0.0
            self.rates[position] += weight * (hit - self.rates[position])

    def committed(self, depth: int) -> float:
        """Return the expected committed tokens of a step at ``depth``; unreached positions inherit the last known."""
        expected = survival = 1.0
        known = self.rates[0]
        for position in range(depth):
            if self.reached[position]:
                known = self.rates[position]
            survival *= known
            expected += survival
        return expected


@dataclass(slots=True)
class Costs:
    """Step times of one context bucket by depth, in seconds."""

    seconds: dict[int, float] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    def learn(self, depth: int, elapsed_s: float) -> None:
        """Move the estimate of ``depth`` towards ``elapsed_s``, never by more than a quarter."""
        self.seen[depth] = self.seen.get(depth, 0) + 1
        known = self.seconds.get(depth)
        if known is None:
            self.seconds[depth] = elapsed_s
            return
        self.seconds[depth] = known + COST_WEIGHT * (clamped(elapsed_s, known) - known)

    def of(self, depth: int) -> float | None:
        """Return the cost of ``depth``: measured, or on the line through the measured neighbours; None if unknown."""
        if depth in self.seconds:
            return self.seconds[depth]
        drafted = sorted(known for known in self.seconds if known > 0)
        if not drafted:
            return None
        below = [known for known in drafted if known < depth]
        above = [known for known in drafted if known > depth]
        if below and above:
            low, high = below[-1], above[0]
        elif len(drafted) > 1:
            low, high = (drafted[-2], drafted[-1]) if below else (drafted[0], drafted[1])
        else:
            # One point says what drafting costs at all; the slope of a row is a tenth of it until measured.
            only = drafted[0]
            return self.seconds[only] * (1.0 + 0.1 * (depth - only)) if depth > only else self.seconds[only]
        slope = max(0.0, (self.seconds[high] - self.seconds[low]) / (high - low))
        return max(self.seconds[low] + slope * (depth - low), 0.5 * self.seconds[low])


def clamped(value: float, known: float) -> float:
    """Return ``value`` moved to within a quarter of ``known``."""
    return min(max(value, known * (1 - LARGEST_INNOVATION)), known * (1 + LARGEST_INNOVATION))


class ControlledDepth:
    """The controller of one or more sequences; a fresh one is cold."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.acceptance = Acceptance.prior(longest)
        self.buckets: dict[int, Costs] = {}
        self.account_s = 0.0
        self.plain_time_s = 0.0
        self._previous = -1
        self._selected = 0
        self._pause = FIRST_PAUSE_STEPS
        self._until_probe = 0
        self._probe: tuple[int, int] = (0, 0)

    def choose(self, position: int, limit: int) -> int:
        """Return the depth of the next step: the probe in progress, a due probe, or the best known depth."""
        if limit <= 0 or self.longest == 0:
            return 0
        costs = self._costs(position)
        if costs.seen.get(0, 0) < PLAIN_STEPS_TO_LEARN:
            return 0
        depth, left = self._probe
        if left > 0:
            self._probe = (depth, left - 1)
            return min(depth, limit)
        best = self._best(costs)
        if best != self._selected:
            # Starting or ending to draft is news; a neighbouring depth is a refinement.
            news = best == 0 or self._selected == 0
            self._pause = FIRST_PAUSE_STEPS if news else max(self._pause // 2, FIRST_PAUSE_STEPS)
            self._selected, self._until_probe = best, self._pause
        if self._until_probe <= 0:
            # Earlier gains may be spent on looking more often.
            longest = CREDIT_PAUSE_STEPS if best == 0 and self.account_s < 0 else LONGEST_PAUSE_STEPS
            self._until_probe, self._pause = min(self._pause, longest), min(self._pause * 2, longest)
            candidate = self._candidate(costs, best)
            if candidate != best and self._affordable(costs, candidate):
                self._probe = (candidate, PROBE_STEPS - 1)
                return min(candidate, limit)
        return min(best, limit)

    def park(self, position: int) -> int:
        """Return how many tokens to decode plainly before asking again."""
        costs = self._costs(position)
        if costs.seen.get(0, 0) < PLAIN_STEPS_TO_LEARN:
            # The first of them only fills the pipeline and is not used.
            return PLAIN_STEPS_TO_LEARN + 1
        if self._selected > 0:
            # A look at plain decoding from a drafting depth is a probe like any other, not a stay.
            self._probe = (0, 0)
            return PROBE_STEPS
        return max(1, self._until_probe)

    def record(self, position: int, drafted: int, outcome: Outcome, elapsed_s: float) -> None:
        """Learn from one step."""
        costs = self._costs(position)
        steady = drafted == self._previous
        self._previous = drafted
        self._until_probe -= 1
        if steady:
            costs.learn(drafted, elapsed_s)
        if drafted:
            self.acceptance.learn(drafted, outcome.accepted)
        plain_s = costs.of(0) if 0 in costs.seconds else None
        if plain_s is None:
            return
        committed = max(len(outcome.tokens), 1)
        self.plain_time_s += committed * plain_s
        if drafted:
            known = costs.of(drafted)
            time_s = elapsed_s if known is None else min(elapsed_s, known * (1 + LARGEST_INNOVATION))
            self.account_s = max(self.account_s + time_s - committed * plain_s, -LARGEST_CREDIT * plain_s)

    def _costs(self, position: int) -> Costs:
        """Return the bucket of a position; a new one starts from its nearest neighbour's estimates."""
        bucket = (position // BUCKET_POSITIONS).bit_length()
        if bucket not in self.buckets:
            nearest = min(self.buckets, key=lambda known: abs(known - bucket), default=None)
            inherited = dict(self.buckets[nearest].seconds) if nearest is not None else {}
            self.buckets[bucket] = Costs(seconds=inherited)
        return self.buckets[bucket]

    def _rate(self, costs: Costs, depth: int) -> float:
        cost = costs.of(depth)
        return 0.0 if cost is None else self.acceptance.committed(depth) / cost

    def _best(self, costs: Costs) -> int:
        """Return the depth with the best expected rate, 0 unless drafting beats plain decoding by the margin.

        The depth in use keeps its place until another is better by the margin, so that noise does not move it.
        """
        deepest = self._trusted()
        best = max(range(1, deepest + 1), key=lambda depth: self._rate(costs, depth))
        if 0 < self._selected <= deepest and self._rate(costs, best) < MARGIN * self._rate(costs, self._selected):
            best = self._selected
        return best if self._rate(costs, best) > MARGIN * self._rate(costs, 0) else 0

    def _trusted(self) -> int:
        """Return the deepest depth whose acceptance is not pure extrapolation: one beyond the last reached position."""
        reached = sum(1 for count in self.acceptance.reached if count)
        return min(self.longest, max(reached + 1, FIRST_DEPTH))

    def _candidate(self, costs: Costs, best: int) -> int:
        """Return what to probe: the best drafting depth when parked, else a neighbour, the deeper one first."""
        if best == 0:
            known = [depth for depth in range(1, self._trusted() + 1) if costs.of(depth) is not None]
            return max(known, key=lambda depth: self._rate(costs, depth)) if known else min(FIRST_DEPTH, self.longest)
        if costs.seen.get(0, 0) * PLAIN_CHECK_SHARE < costs.seen.get(best, 0):
            return 0
        neighbours = [depth for depth in (best + 1, best - 1) if 1 <= depth <= self.longest]
        return min(neighbours, key=lambda depth: costs.seen.get(depth, 0))

    def _affordable(self, costs: Costs, depth: int) -> bool:
        """Say whether the account can bear a probe of ``depth``."""
        plain_s = costs.of(0)
        if depth == 0 or plain_s is None:
            return True
        cost = costs.of(depth) or 2 * plain_s
        expected_loss = PROBE_STEPS * max(0.0, cost - self.acceptance.committed(depth) * plain_s)
        allowed = START_ALLOWANCE * plain_s + ALLOWED_SHARE * self.plain_time_s
        return self.account_s + expected_loss <= allowed
