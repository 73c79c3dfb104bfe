"""What each drafter at each depth is expected to bring a second, from what is known of acceptance and costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from engine.decoding.arms import PLAIN, PROBE_COST_PRIOR, Arm, Bucket, Source
from engine.decoding.awaiting import Way
from engine.decoding.lookups import Expected, Lookups
from engine.types import Match

PLAIN_CHECK_SHARE = 32
LONGEST_PAUSE_STEPS = 512
STALE_STEPS = 128
"""After so many without a plain step that no draft was under way beside, one is timed."""
PROBE_STEPS = 2
MARGIN = 1.02
LEAST_ANSWERING = 0.5
"""Share of asks that something must come of for gains to be spent on more of them."""
CHEAP_BLOCK = 2.0
"""In plain steps: a whole block that costs no more is verified though nothing is known of the drafter."""
PROMISING_COMMITTED = 1.5
"""Tokens a step must promise to be worth a verified probe, whatever it cost so far: that may have been a bad moment."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Expected tokens a second of the drafters by name and of matches; all methods read what was learnt elsewhere."""

    sources: dict[str, Source]
    lookups: Lookups

    def matched(self, costs: Bucket, match: Match, limit: int, selected: Arm, margin: float) -> Expected | None:
        """Return what a match promises, None unless its rate is above every other's by the margin."""
        expected = self.lookups.best(match, limit, costs)
        if expected is None:
            return None
        others = max(self.rate(costs, self.best(costs, selected)), self.rate(costs, PLAIN))
        return expected if expected.rate > margin * others else None

    def extended(self, costs: Bucket, arm: Arm, match: Match | None, limit: int) -> int:
        """Return up to how many tokens a match is to follow a whole draft that it agrees with, 0 for not at all."""
        source = self.sources.get(arm.source)
        if match is None or source is None or arm.depth < source.longest or limit <= arm.depth:
            return 0
        own, cost_s = costs.of(arm.source), self.cost_s(costs, arm)
        if not cost_s:  # one elsewhere is asked for a whole block before a step with one was timed
            return 0

        def rows_s(count: int) -> float:
            return max(0.0, (own.of(count) or 0.0) - (own.of(arm.depth) or 0.0))

        base = source.acceptance.committed(arm.depth), cost_s
        count, rate = self.lookups.extension(match, arm.depth, limit, base, rows_s)
        return count if rate > MARGIN * self.rate(costs, arm) else 0

    def cost_s(self, costs: Bucket, arm: Arm) -> float | None:
        """Return the seconds of a step, waits for its draft included; None if unknown."""
        if arm.depth == 0:
            return costs.plain.seconds.get(0)
        cost_s = costs.of(arm.source).of(arm.depth)
        return None if cost_s is None else cost_s + self.sources[arm.source].waits.per_draft_s

    def way(self, costs: Bucket, arm: Arm) -> Way | None:
        """Return how a draft from elsewhere is best used, None where it is there at once."""
        source = self.sources.get(arm.source) if arm.depth else None
        return None if source is None else source.way(costs, arm.source, arm.depth)

    def wait_s(self, costs: Bucket, arm: Arm) -> float:
        """Return how long to wait for a draft."""
        way = self.way(costs, arm)
        return 0.0 if way is None else way.wait_s

    def rate(self, costs: Bucket, arm: Arm) -> float:
        """Return the expected tokens a second, 0 where the cost is unknown."""
        return self._rate(costs, arm, self.committed(arm))

    def _rate(self, costs: Bucket, arm: Arm, committed: float) -> float:
        cost_s, way = self.cost_s(costs, arm), self.way(costs, arm)
        if cost_s is not None and way is not None:
            # Where nothing comes of an ask, plain decoding has gone on; what that was slowed by is booked apart.
            answered = self.sources[arm.source].waits.answered
            return answered * way.rate + (1.0 - answered) / costs.plain_s
        return 0.0 if cost_s is None else committed / cost_s

    def committed(self, arm: Arm) -> float:
        """Return the expected committed tokens of a step."""
        return self.sources[arm.source].acceptance.committed(arm.depth) if arm.depth else 1.0

    def arms(self) -> list[Arm]:
        """Return every drafter at every depth whose acceptance is learnt."""
        return [Arm(name, depth) for name, source in self.sources.items() for depth in range(1, source.longest + 1)]

    def best(self, costs: Bucket, selected: Arm) -> Arm:
        """Return the arm with the best expected rate, plain decoding unless drafting beats it by the margin.

        The arm in use, ``selected``, keeps its place until another is better by the margin: noise does not move it.
        """
        rates = {PLAIN: self.rate(costs, PLAIN)}
        for name, source in self.sources.items():
            committed, compared = source.acceptance.by_depth(source.longest), source.acceptance.reached[0] > 0
            for depth in range(1, source.longest + 1):
                arm = Arm(name, depth)
                if not compared and self._dear(costs, arm):
                    continue
                rates[arm] = self._rate(costs, arm, committed[depth])
        best = max((arm for arm in rates if arm.depth), key=rates.__getitem__, default=PLAIN)
        if selected.depth and selected in rates and rates[best] < MARGIN * rates[selected]:
            best = selected
        return best if rates[best] > MARGIN * rates[PLAIN] else PLAIN

    def candidate(self, costs: Bucket, best: Arm) -> Arm:
        """Return what to probe: the best drafting arm when parked, else a neighbour, the deeper one first."""
        near = self.within_reach(costs)
        untried = [Arm(name, self.sources[name].first_depth) for name in near]
        if best.depth == 0:
            verifiable = [arm for arm in self.arms() if arm.source in near and self._may_be_verified(costs, arm)]
            return max(
                verifiable or untried, key=lambda arm: (self.rate(costs, arm), self.committed(arm)), default=PLAIN
            )
        if costs.plain.timed_steps.get(0, 0) * PLAIN_CHECK_SHARE < costs.seen(best):
            return PLAIN
        longest = self.sources[best.source].longest
        widest = self._hoped_block(costs, best)
        if widest is not None:
            return widest
        beside = [Arm(best.source, depth) for depth in (best.depth + 1, best.depth - 1) if 1 <= depth <= longest]
        others = [
            arm for arm in untried if self.sources[arm.source].hoped_rate(costs, arm.source) > self.rate(costs, best)
        ]
        # A drafter of one token that is alone has no neighbour.
        return min(beside + [arm for arm in others if arm.source != best.source], key=costs.seen, default=best)

    def _hoped_block(self, costs: Bucket, best: Arm) -> Arm | None:
        """Return the whole block where it was never timed and would be better than ``best`` if it cost no more rows.

        What rows cost has steps: beyond one, many more may come for nothing.
        """
        whole = Arm(best.source, self.sources[best.source].longest)
        timed = costs.of(best.source).seconds
        if costs.seen(whole) or not timed or self.way(costs, whole) is not None:
            return None
        return whole if self.committed(whole) / max(timed.values()) > MARGIN * self.rate(costs, best) else None

    def _may_be_verified(self, costs: Bucket, arm: Arm) -> bool:
        """Say whether steps like this were timed and are not all overtaken."""
        way = self.way(costs, arm)
        return self.cost_s(costs, arm) is not None and (way is None or way.left > 0)

    def within_reach(self, costs: Bucket) -> list[str]:
        """Return the drafters whose drafts do not all come too late."""
        return [name for name, source in self.sources.items() if not source.too_far(costs)]

    def overdue(self, costs: Bucket) -> Arm | None:
        """Return what to ask of one too far away that was not asked for very long: a link may get better."""
        near = self.within_reach(costs)
        far = (Arm(name, source.first_depth) for name, source in self.sources.items() if name not in near)
        return next((arm for arm in far if self.sources[arm.source].unasked >= LONGEST_PAUSE_STEPS), None)

    def plain_is_stale(self, costs: Bucket, best: Arm) -> bool:
        """Say whether plain decoding was not timed for long, since nearly every step is beside a draft under way."""
        return self.sources[best.source].latency.elsewhere and costs.since_plain >= STALE_STEPS

    def hopeful(self, costs: Bucket, rate: float) -> bool:
        """Say whether a drafter might plausibly beat a rate."""
        return any(self.sources[name].hoped_rate(costs, name) > rate for name in self.within_reach(costs))

    def answering(self, costs: Bucket) -> bool:
        """Say whether something came of enough asks for gains to be spent on more of them."""
        return any(self.sources[name].waits.answered > LEAST_ANSWERING for name in self.within_reach(costs))

    def promising(self, costs: Bucket) -> bool:
        """Say whether verified drafts might pay, by what is known of acceptance."""
        return any(self.sources[name].promised >= PROMISING_COMMITTED for name in self.within_reach(costs))

    def might_pay(self, costs: Bucket, name: str) -> bool:
        """Say whether a draft of some length would pay, were all of it right."""
        timed, depths = costs.of(name), range(1, self.sources[name].longest + 1)
        return any((depth + 1) * costs.plain_s > MARGIN * (timed.of(depth) or math.inf) for depth in depths)

    def _dear(self, costs: Bucket, arm: Arm) -> bool:
        """Say whether a block costs too much, or nobody knows what, to be verified only to see if it is right."""
        cost_s = costs.of(arm.source).of(arm.depth)
        return cost_s is None or cost_s > CHEAP_BLOCK * costs.plain_s

    def unknown(self, costs: Bucket) -> bool:
        """Say whether it is known of the drafters in reach what their steps cost, and of none how far it is right."""
        return self.costs_known(costs) and not any(
            self.sources[name].acceptance.reached[0] for name in self.within_reach(costs)
        )

    def costs_known(self, costs: Bucket) -> bool:
        """Say whether it is known of every drafter in reach what its steps cost."""
        return all(costs.of(name).seconds for name in self.within_reach(costs))

    def least_known(self, names: Iterable[str]) -> str | None:
        """Return the drafter that least is known of, None of none."""
        return min(names, key=lambda name: self.sources[name].acceptance.reached[0], default=None)

    def loss_s(self, costs: Bucket, arm: Arm) -> float:
        """Return the seconds a probe of ``arm`` is expected to lose against plain decoding."""
        if arm.depth == 0 or arm.source not in self.sources or not costs.plain.seconds:
            return 0.0
        way = self.way(costs, arm)
        if way is not None and not way.wait_s:
            return PROBE_STEPS * self.sources[arm.source].latency.lost_s
        # A single measurement of drafting may have been a bad moment.
        known_s = costs.of(arm.source).of(arm.depth) if costs.drafted_steps > 1 else None
        cost_s = PROBE_COST_PRIOR * costs.plain_s if known_s is None else known_s
        if way is not None:
            cost_s += self.sources[arm.source].latency.least_s
        lost_s = self.sources[arm.source].waits.lost_s
        return PROBE_STEPS * max(0.0, cost_s + lost_s - self.committed(arm) * costs.plain_s)
