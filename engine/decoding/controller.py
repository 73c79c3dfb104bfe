"""Never slower than autoregressive: choose the draft length from what steps cost and what they bring.

Expected rate of depth n is ``committed(n) / cost(n)``: ``committed(n) = 1 + a1 + a1 a2 + …`` from the conditional
acceptance of each draft position, ``cost(n)`` from measured step times, kept per depth and per context bucket because
verification grows with the context. Depth 0 is plain decoding with its own measured cost, and it wins ties.

Five rules bound what learning may cost:
1. A step time moves its estimate by at most a quarter, and the first step after a change of depth is not used at all.
2. Every drafted step is booked against plain decoding: ``loss = time - committed * plain time``. A probe (a step that
   is not expected to pay) is made only while the account stays below ``START_ALLOWANCE`` plain steps plus
   ``ALLOWED_SHARE`` of all plain-equivalent time. A useless drafter can therefore cost only that much.
3. While nothing changes, the distance between probes doubles from ``FIRST_PAUSE_STEPS`` to ``LONGEST_PAUSE_STEPS``,
   while parked only to ``SHADOW_PAUSE_STEPS``, or ``CREDIT_PAUSE_STEPS`` when drafting has gained more than it lost.
4. While parked, and from the first token on, acceptance is learnt from shadow drafts: proposed beside plain decoding,
   compared with what it brings, never verified, so that a look costs a draft and no forward of the target. Drafts are
   verified once shadows say that it might pay.
5. An ask that comes to nothing books all its time, and what such asks cost on average is part of what a draft costs: a
   drafter that answers late is asked only as often as the account can bear.

Knows neither clocks nor models; ``tests.fakes.replay`` runs it on invented costs.
"""

from __future__ import annotations

from engine.decoding.estimates import COST_WEIGHT, LARGEST_INNOVATION, Acceptance, Costs, Waits
from engine.types import Decision, Pause

BUCKET_POSITIONS = 512
FIRST_DEPTH = 3
START_ALLOWANCE = 4.0
ALLOWED_SHARE = 0.01
LARGEST_CREDIT = 16.0
FIRST_PAUSE_STEPS = 4
LONGEST_PAUSE_STEPS = 512
SHADOW_PAUSE_STEPS = 128
CREDIT_PAUSE_STEPS = 32
PLAIN_STEPS_TO_LEARN = 4
PROBE_STEPS = 2
PLAIN_CHECK_SHARE = 32
MARGIN = 1.02
PROMISING_COMMITTED = 1.5
"""Tokens a step must promise to be worth a verified probe, whatever it cost so far: that may have been a bad moment."""
PROBE_COST_PRIOR = 2.0
LARGEST_FIRST_COST = 8.0
"""In plain steps: what a step at a depth not measured yet is booked at most, since it may warm the depth up."""
SHADOW_COST_PRIOR = 0.5
LARGEST_SHADOW_COST = 2.0
"""In plain steps, like the prior: a longer first step of a pause is taken for a disturbance."""
UNANSWERED_SHADOWS = 2
LONGEST_SHADOW = 8
SURPRISING_BELOW = 0.4


class ControlledDepth:
    """The controller of one or more sequences; a fresh one is cold."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.acceptance = Acceptance.prior(longest)
        self.buckets: dict[int, Costs] = {}
        self.waits = Waits()
        self.account_s = 0.0
        self.plain_time_s = 0.0
        self._previous = -1
        self._selected = 0
        self._pause = FIRST_PAUSE_STEPS
        self._until_probe = 0
        self._probe: tuple[int, int] = (0, 0)
        self._look = False
        self._shadowing = False
        self._awaited = 0
        self._unanswered = 0
        self._shadow_cost = SHADOW_COST_PRIOR

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
            candidate = self._candidate(costs, best)
            self._look = best == 0 and self._shadows and not self._promising()
            longest = SHADOW_PAUSE_STEPS if self._look else LONGEST_PAUSE_STEPS
            if best == 0 and self.account_s < 0:
                # Earlier gains may be spent on looking more often.
                longest = CREDIT_PAUSE_STEPS
            self._until_probe, self._pause = min(self._pause, longest), min(self._pause * 2, longest)
            if candidate != best and not self._look and self._affordable(costs, self._loss(costs, candidate)):
                self._probe = (candidate, PROBE_STEPS - 1)
                return min(candidate, limit)
        return min(best, limit)

    def park(self, position: int) -> Pause:
        """Return how many tokens to decode plainly before asking again, and what to propose in their shadow."""
        costs = self._costs(position)
        if costs.seen.get(0, 0) < PLAIN_STEPS_TO_LEARN:
            # The first of them only fills the pipeline and is not used.
            pause = PLAIN_STEPS_TO_LEARN + 1
            return Pause(pause, self._shadow(pause) if not any(self.acceptance.reached) else 0)
        if self._selected > 0:
            # A look at plain decoding from a drafting depth is a probe like any other, not a stay.
            self._probe = (0, 0)
            return Pause(PROBE_STEPS)
        look, self._look = self._look, False
        loss_s = PROBE_STEPS * self._shadow_cost * (costs.of(0) or 0.0)
        pause = max(1, self._until_probe)
        return Pause(pause, self._shadow(pause) if look and self._affordable(costs, loss_s) else 0)

    def shadowed(self, drafted: int, accepted: int) -> bool:
        """Learn from a draft that plain decoding confirmed or not; end the pause when it might pay to draft."""
        self._awaited = self._unanswered = 0
        surprising = accepted > 0 and self.acceptance.rates[0] < SURPRISING_BELOW
        self.acceptance.learn(drafted, accepted)
        if not surprising and not self._promising():
            return False
        self._pause, self._until_probe = FIRST_PAUSE_STEPS, 0
        return True

    def unanswered(self, position: int, asked: int, elapsed_s: float) -> None:
        """Book the time of an ask that came to nothing, and end a probe that the account cannot bear any more."""
        self.waits.learn(answered=False, lost_s=elapsed_s)
        self.account_s += elapsed_s
        costs = self._costs(position)
        if not self._affordable(costs, self._loss(costs, asked)):
            self._probe = (0, 0)

    @property
    def _shadows(self) -> bool:
        """Whether shadow drafts are compared here: a rule that samples does not, nor a drafter without a match."""
        return self._unanswered < UNANSWERED_SHADOWS

    def _shadow(self, pause_tokens: int) -> int:
        """Ask for a shadow draft that the pause is long enough to compare."""
        if not self._shadows:
            return 0
        self._shadowing = True
        self._awaited = min(self.longest, pause_tokens, LONGEST_SHADOW)
        return self._awaited

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float) -> None:
        """Learn from one step."""
        costs = self._costs(position)
        shadowing, self._shadowing = self._shadowing, False
        steady = drafted == self._previous and not shadowing
        self._previous = drafted
        self._until_probe -= 1
        if self._awaited:
            # Unanswered only if all its tokens came: a sequence that ended before says nothing about shadows.
            self._awaited -= 1
            self._unanswered += self._awaited == 0
        if steady:
            costs.learn(drafted, elapsed_s)
        if drafted:
            self.acceptance.learn(drafted, outcome.accepted)
            self.waits.learn(answered=True, lost_s=0.0)
        plain_s = costs.of(0) if 0 in costs.seconds else None
        if plain_s is None:
            return
        committed = max(len(outcome.tokens), 1)
        self.plain_time_s += committed * plain_s
        if shadowing:
            # The first step of a pause waits for its shadow draft.
            extra = min(max(elapsed_s / plain_s - 1.0, 0.0), LARGEST_SHADOW_COST)
            self._shadow_cost += COST_WEIGHT * (extra - self._shadow_cost)
            self.account_s += extra * plain_s
        if drafted:
            known = costs.of(drafted) or 0.0
            time_s = min(elapsed_s, max(known * (1 + LARGEST_INNOVATION), LARGEST_FIRST_COST * plain_s))
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
        if cost is None:
            return 0.0
        return self.acceptance.committed(depth) / (cost + (self.waits.per_draft_s if depth else 0.0))

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

    def _promising(self) -> bool:
        """Say whether verified drafts might pay, by what is known of acceptance."""
        return self.acceptance.committed(self._trusted()) >= PROMISING_COMMITTED

    def _loss(self, costs: Costs, depth: int) -> float:
        """Return the seconds a probe of ``depth`` is expected to lose against plain decoding."""
        plain_s = costs.of(0)
        if depth == 0 or plain_s is None:
            return 0.0
        # A single measurement of drafting may have been a bad moment.
        known_s = costs.of(depth) if sum(costs.seen.values()) - costs.seen.get(0, 0) > 1 else None
        cost_s = PROBE_COST_PRIOR * plain_s if known_s is None else known_s
        return PROBE_STEPS * max(0.0, cost_s + self.waits.lost_s - self.acceptance.committed(depth) * plain_s)

    def _affordable(self, costs: Costs, loss_s: float) -> bool:
        """Say whether the account can bear losing ``loss_s``."""
        allowed_s = START_ALLOWANCE * (costs.of(0) or 0.0) + ALLOWED_SHARE * self.plain_time_s
        return loss_s <= 0.0 or self.account_s + loss_s <= allowed_s
