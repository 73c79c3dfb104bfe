"""Never slower than autoregressive: choose each step's drafter and draft length from what steps cost and bring.

Expected rate of depth n is ``committed(n) / cost(n)``: ``committed(n) = 1 + a1 + a1 a2 + …`` from the conditional
acceptance of each draft position, ``cost(n)`` from measured step times, kept per drafter, depth and context bucket
because verification grows with the context. Depth 0 is plain decoding with its own measured cost, and it wins ties.

A drafter that looks tokens up says what it would propose before it is asked. What it is worth is learnt from every
committed token, drafted or not, so that it is never tried only to find out; ``engine.decoding.lookups`` says
what it is expected to bring here, and it is taken where its rate is above the others'.

Six rules bound what learning may cost:
1. A step time moves its estimate by at most a quarter, and the first step at a new depth is not used at all.
2. Every drafted step is booked against plain decoding: ``loss = time - committed * plain time``. A probe (a step that
   is not expected to pay) is made only while the account stays below ``START_ALLOWANCE`` plain steps plus
   ``ALLOWED_SHARE`` of the time that decoding took, or plain decoding would have, whichever is less. A useless drafter
   can therefore cost only that much, and beside one that makes steps short it may cost no more of them.
3. While nothing changes, the distance between probes doubles from ``FIRST_PAUSE_STEPS`` to ``LONGEST_PAUSE_STEPS``,
   while parked only to ``SHADOW_PAUSE_STEPS``, or ``CREDIT_PAUSE_STEPS`` when drafting has gained more than it lost.
4. While parked, and from the first token on, acceptance is learnt from shadow drafts: proposed beside plain decoding,
   compared with what it brings, never verified, so that a look costs a draft and no forward of the target. Drafts are
   verified once shadows say that it might pay.
5. An ask that comes to nothing books all its time, and what such asks cost on average is part of what a draft costs: a
   drafter that answers late is asked only as often as the account can bear.
6. A draft from elsewhere is waited for only where that was measured to be faster than to go on plainly until it comes
   (``engine.decoding.awaiting``); every wait is booked, and so is what plain steps take longer beside a draft under
   way, which say nothing of what a plain step costs. One so far away that its drafts came too late were they all right
   is next to never asked.

Knows neither clocks nor models; ``tests.fakes.replay`` runs it on invented and on recorded costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.decoding.arms import (
    FIRST_DEPTH,
    PLAIN,
    PLAIN_STEPS_TO_LEARN,
    Ahead,
    Arm,
    Bucket,
    CostTable,
    Source,
    bucket_at,
    sources_of,
)
from engine.decoding.awaiting import BesideDraft
from engine.decoding.estimates import COST_WEIGHT
from engine.decoding.lookups import LOOKED_UP, Expected, Lookups
from engine.decoding.rates import LONGEST_PAUSE_STEPS, MARGIN, PROBE_STEPS, PROMISING_COMMITTED, Rates
from engine.types import Choice, Decision, Draft, Match, Pause

LARGEST_CREDIT = 16.0
FIRST_PAUSE_STEPS = 4
PLAIN_LOOK_STEPS = 3
"""Of a look at plain decoding: of steps that are queued ahead, neither the first nor the last is timed."""
FIRST_LOOK_STEPS = 8
"""After how many steps of another sequence a drafter that was of no use is looked at: before, a match may have come."""
SHADOW_PAUSE_STEPS = 128
CREDIT_PAUSE_STEPS = 32
SURE_MARGIN = 1.5
"""How much better than the others a match must be once matches have lost what learning may lose: it can be known
without another loss that they come true now."""
SHADOW_COST_PRIOR = 0.5
LARGEST_SHADOW_COST = 2.0
"""In plain steps, like the prior: more is taken for a disturbance."""
UNANSWERED_SHADOWS = 2
LONGEST_SHADOW = 8
SURPRISING_BELOW = 0.4


class ControlledDepth:
    """The controller of one or more sequences; a fresh one is cold.

    ``longest`` is the most tokens that a drafter drafts, by the name of each where there are several. One that looks
    tokens up is not among them.
    """

    def __init__(self, longest: int | Mapping[str, int], table: CostTable | None = None) -> None:
        self._table = table
        self.sources = sources_of(longest)
        self.lookups = Lookups()
        self._rates = Rates(self.sources, self.lookups)
        self.buckets: dict[int, Bucket] = {}
        self.account_s = 0.0
        self.decoded_s = 0.0
        self._match: Match | None = None
        self._parked_at: Bucket | None = None
        self._beside_probes = False
        self._chosen = self._previous = self._selected = PLAIN
        self._tried: set[Arm] = set()
        self._pause = FIRST_PAUSE_STEPS
        self._until_probe = 0
        self._probe: tuple[Arm, int] = (PLAIN, 0)
        self._look = False
        self._shadowing = False
        self._shadowed_source = ""
        self._awaited = 0
        self._unanswered = 0
        self._asked_source = ""
        self._waits = self._under_way = False
        self._beside_steps = 0
        self._beside: BesideDraft | None = None
        self._arrived: BesideDraft | None = None
        self._plain_s = self._waited_s = 0.0
        self._hidden = False
        self._passed = 0
        self._shadow_cost = SHADOW_COST_PRIOR
        self._ahead: Ahead | None = None

    def begin(self, round_trip_s: Callable[[str], float | None] = lambda _: None) -> None:
        """Take how far away each drafter is; look early whether one of no use for another text is of use for this."""
        for name, source in self.sources.items():
            source.stands(round_trip_s(name))
        if self._ahead is not None and self._ahead.shadow_s is not None:
            # Of a pause that the end of an answer cut off, nobody knows what its last step took.
            self.account_s += self._shadow_cost * self._plain_s
        self._ahead = self._beside = self._arrived = None
        if self.buckets and self._selected.depth == 0:
            self._probe, self._pause, self._until_probe = (PLAIN, 0), SHADOW_PAUSE_STEPS, FIRST_LOOK_STEPS

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None] = lambda: None) -> Choice:
        """Return the next step's draft: what a match promises where that is most, else what is known of the others."""
        self._chosen, self._match, self._awaited, self._passed, self._waited_s = PLAIN, None, 0, 0, 0.0
        self._waits = self._under_way = False
        self._end_pause()
        if limit <= 0:
            return Choice(0)
        costs, self._match = bucket_at(self.buckets, position, self._table), lookup()
        if not costs.plain_known:
            return Choice(0)
        expected = self._expected(costs, limit)
        if expected is not None and not self._probe_due(costs, expected):
            return self._looked_up(costs, expected, limit)
        arm = self._next(costs, matched=expected is not None)
        if arm.depth == 0 and expected is not None:
            return self._looked_up(costs, expected, limit)
        return self._taken(costs, arm, limit, self._rates.extended(costs, arm, self._match, limit))

    def interrupts(self, position: int, limit: int, lookup: Callable[[], Match | None]) -> bool:
        """Say whether the match here is expected to gain more than plain steps that are queued ahead."""
        self._match = lookup()
        costs = bucket_at(self.buckets, position, self._table)
        if limit <= 0 or not costs.plain_known:
            return False
        expected = self._expected(costs, limit)
        return expected is not None and expected.interrupts(costs.plain_s)

    def park(self, position: int) -> Pause:
        """Return how many tokens to decode plainly before asking again, and what to propose in their shadow."""
        self._parked_at = bucket_at(self.buckets, position, self._table)
        pause = self._parked(position)
        self._ahead = Ahead() if pause.tokens > 1 else None
        return pause

    def _parked(self, position: int) -> Pause:
        costs = bucket_at(self.buckets, position, self._table)
        if not costs.plain_known:
            if self._hidden:  # by whoever takes long over each token; of a step that is alone all is seen
                return Pause(1)
            # The first and the last of them are not used; a draft under way would lengthen the others.
            unknown = not any(source.acceptance.reached[0] for source in self.sources.values())
            here = [name for name, source in self.sources.items() if not source.latency.elsewhere]
            return self._paused(PLAIN_STEPS_TO_LEARN + 2, self._rates.least_known(here) if unknown else None)
        if self._selected.depth > 0:
            # A look at plain decoding from a drafting depth is a probe like any other, not a stay.
            self._probe = (PLAIN, 0)
            return Pause(PLAIN_LOOK_STEPS)
        look, self._look = self._look, False
        if self.lookups.recent_tokens > 0 and not look:
            return Pause(1)
        if not self.sources:
            return Pause(LONGEST_PAUSE_STEPS)  # until a match is found
        drafter = self._rates.least_known(self._rates.within_reach(costs)) if look else None
        self._beside_probes = not look and self._until_probe >= LONGEST_SHADOW and self._rates.costs_known(costs)
        if self._beside_probes:
            drafter = self._rates.least_known(self._rates.within_reach(costs))
        if drafter is not None:
            loss_s = PROBE_STEPS * self._shadow_cost * costs.plain_s + self.sources[drafter].latency.lost_s
            drafter = drafter if self._affordable(costs, loss_s) else None
        return self._paused(max(1, self._until_probe), drafter)

    def shadowed(self, drafted: int, accepted: int) -> bool:
        """Learn from a draft that plain decoding confirmed or not; end the pause when it might pay to draft."""
        self._awaited = self._unanswered = 0
        source = self.sources[self._shadowed_source]
        surprising = accepted > 0 and source.acceptance.rates[0] < SURPRISING_BELOW
        source.acceptance.learn(drafted, accepted)
        if self._beside_probes and self._parked_at is not None:
            # Verified probes are under way as it is: their pauses end when drafting pays, and are no shorter for hope.
            if self._rates.best(self._parked_at, PLAIN).depth == 0:
                # Right in whole, it is compared again at once: what a text began with may hide for long that it pays.
                return accepted == drafted and self._rates.might_pay(self._parked_at, self._shadowed_source)
        elif not surprising and source.promised < PROMISING_COMMITTED:
            return False
        self._pause, self._until_probe = FIRST_PAUSE_STEPS, 0
        return True

    def asked(self, position: int, count: int, draft: Draft, elapsed_s: float) -> None:
        """Learn how long drafts take to come, book waits, and learn from one that plain decoding overtook."""
        source, looked_for = self.sources.get(self._asked_source), self._under_way
        self._under_way = draft.under_way and not looked_for
        if not (draft.came or draft.under_way):
            self._unanswered_ask(position, count, elapsed_s)
        elif draft.under_way and looked_for:
            self._beside = None  # the end of an answer may have cut it off
            if source is not None and draft.came_s:
                source.latency.at_least(draft.came_s)
        elif draft.came_s is not None and not looked_for:
            self._took(source, draft, draft.came_s if self._waits else 0.0)
        elif draft.came_s is not None and source is not None:
            self._came_late(source, draft, draft.came_s)

    def _took(self, source: Source | None, draft: Draft, waited_s: float) -> None:
        """Book the wait for a draft that came, or is under way beside plain steps from now on."""
        self.account_s += waited_s
        self._waited_s, self._beside_steps = waited_s, 0
        self._beside = BesideDraft(source.latency) if source is not None and draft.under_way else None
        if source is None or draft.came_s is None:
            return
        if not draft.under_way:
            source.latency.learn(draft.came_s)
        elif waited_s:
            source.latency.at_least(waited_s)

    def _came_late(self, source: Source, draft: Draft, came_s: float) -> None:
        """Learn from a draft that was under way; what is left of one that was right so far is verified."""
        source.latency.learn(came_s)
        if self._chosen.depth == 0:
            # Of one beside a pause the steps are learnt from when that ends: the last may have taken nothing.
            self._arrived, self._beside = self._beside, None
            return
        self._end_beside()
        if self._plain_s:
            source.latency.overtook(self._beside_steps, came_s - self._waited_s, self._plain_s)
        if draft.count:
            self._passed = draft.offset
        else:
            source.acceptance.learn(min(draft.offset, source.longest), min(draft.right, source.longest))

    def _unanswered_ask(self, position: int, count: int, elapsed_s: float) -> None:
        """Book the time of an ask that came to nothing, and end a probe that the account cannot bear any more."""
        name = self._chosen.source if self._chosen.depth else self._shadowed_source
        self._end_beside()
        if name in self.sources:
            self.sources[name].waits.learn(answered=False, lost_s=elapsed_s)
        self.account_s += elapsed_s
        costs = bucket_at(self.buckets, position, self._table)
        if not self._affordable(costs, self._rates.loss_s(costs, Arm(name, count))):
            self._probe = (PLAIN, 0)

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float | None) -> None:
        """Learn acceptance and cost from one finished step, and book what it lost."""
        costs = bucket_at(self.buckets, position, self._table)
        if elapsed_s is None:
            # A plain step like any other, of which only the tokens are learnt from.
            self._hidden = True
            self._shadowing, self._ahead, self._beside, elapsed_s = False, None, None, costs.plain_s
            self._previous = PLAIN
            self._until_probe -= 1
            self._beside_steps += 1
            self._learn(PLAIN, outcome)
            self.decoded_s += elapsed_s
            return
        arm = Arm(self._chosen.source, drafted) if drafted else PLAIN
        shadowing, self._shadowing = self._shadowing, False
        estimate_s, beside = costs.seconds_of(arm), self._beside if arm == PLAIN else None
        costs.since_plain += 1
        alone = not shadowing and beside is None
        if self._ahead is not None and arm == PLAIN:
            self._ahead.take(costs, elapsed_s, alone=alone, shadow=shadowing and beside is None)
        elif alone and (arm == self._previous or self._warm(arm)):
            costs.learn(arm, elapsed_s)
        self._previous = arm
        self._beside_steps += 1
        for source in self.sources.values():
            source.unasked += 1
        if arm.depth:
            # The first step at a depth may warm it up; a plain one after a drafted one may fill the pipeline.
            self._tried.add(arm)
        self._until_probe -= 1
        if self._awaited:
            # Unanswered only if all its tokens came: a sequence that ended before says nothing about shadows.
            self._awaited -= 1
            self._unanswered += self._awaited == 0
        self._learn(arm, outcome)
        if not costs.plain.seconds:
            return
        plain_s, committed = costs.plain_s, max(len(outcome.tokens), 1)
        self._plain_s = plain_s
        if shadowing and self._ahead is None:
            self._book_shadow(elapsed_s / plain_s - 1.0)
        elif beside is not None:
            self.account_s += beside.take(elapsed_s, plain_s)
        time_s = min(elapsed_s, costs.longest_s(estimate_s)) if drafted else plain_s
        self.decoded_s += min(time_s, committed * plain_s)
        if drafted:
            loss_s, credit_s = time_s - committed * plain_s, -LARGEST_CREDIT * plain_s
            if arm.source == LOOKED_UP:
                # What matches gain is not there for probes of the others.
                self.lookups.account_s = max(self.lookups.account_s + loss_s, credit_s)
            else:
                self.account_s = max(self.account_s + loss_s, credit_s)

    def _warm(self, arm: Arm) -> bool:
        """Say whether a step like this was taken before; what is left of a late draft is of any length."""
        source = self.sources.get(arm.source) if arm.depth else None
        if source is not None and source.latency.elsewhere:
            return any(tried.source == arm.source for tried in self._tried)
        return arm in self._tried

    def _end_beside(self) -> None:
        """Learn from the plain steps beside a draft that is no longer under way."""
        if self._beside is not None:
            self._beside.end()
        self._beside = None

    def _end_pause(self) -> None:
        """Learn what drafts beside the last pause cost."""
        self._end_beside()
        ahead, self._ahead = self._ahead, None
        arrived, self._arrived = self._arrived, None
        if ahead is not None and arrived is not None and self._plain_s:
            arrived.times += ahead.last_s / self._plain_s - 1.0
            arrived.end()
        if ahead is not None and ahead.shadow_s is not None and self._plain_s:
            self._book_shadow(ahead.shadow_cost(self._plain_s))

    def _book_shadow(self, cost: float) -> None:
        """Book what a shadow draft cost, in plain steps."""
        cost = min(max(cost, 0.0), LARGEST_SHADOW_COST)
        self._shadow_cost += COST_WEIGHT * (cost - self._shadow_cost)
        self.account_s += cost * self._plain_s

    def _learn(self, arm: Arm, outcome: Decision) -> None:
        """Learn how far the drafter was right, and how far a match was or would have been."""
        match, self._match = self._match, None
        right = self.lookups.learn(match, outcome.tokens) if match is not None else 0
        self.lookups.pass_by(len(outcome.tokens), came_true=arm.source == LOOKED_UP and outcome.accepted > 0)
        source = self.sources.get(arm.source) if arm.depth else None
        if source is not None:
            passed, self._passed = self._passed, 0
            drafted, accepted = arm.depth + passed, outcome.accepted + passed
            source.acceptance.learn(min(drafted, source.longest), min(accepted, source.longest))
            source.waits.learn(answered=True, lost_s=0.0)
            if match is not None and arm.depth >= source.longest:
                self.lookups.learn_agreement(min(outcome.accepted, right) >= source.longest)

    def _looked_up(self, costs: Bucket, expected: Expected, limit: int) -> Choice:
        """Return the draft of a match, short as long as no step with one was timed."""
        timed = bool(costs.of(LOOKED_UP).seconds)
        return self._taken(costs, Arm(LOOKED_UP, expected.count if timed else min(expected.count, FIRST_DEPTH)), limit)

    def _taken(self, costs: Bucket, arm: Arm, limit: int, extended: int = 0) -> Choice:
        self._chosen = Arm(arm.source, min(arm.depth, limit))
        if self._chosen.depth:
            self._asks(arm.source)
        wait_s = self._rates.wait_s(costs, self._chosen)
        self._waits = wait_s > 0.0
        return Choice(self._chosen.depth, arm.source, extended, wait_s)

    def _asks(self, source: str) -> None:
        """Take who is asked."""
        self._asked_source = source
        if source in self.sources:
            self.sources[source].unasked = 0

    def _paused(self, tokens: int, drafter: str | None) -> Pause:
        """Return a pause, with a shadow draft that it is long enough to compare, of the named drafter if any."""
        if drafter is None or not self._shadows:
            return Pause(tokens)
        self._shadowing, self._shadowed_source = True, drafter
        self._asks(drafter)
        self._awaited = min(self.sources[drafter].longest, tokens, LONGEST_SHADOW)
        return Pause(tokens, self._awaited, drafter)

    @property
    def _shadows(self) -> bool:
        """Whether shadow drafts are compared here: a rule that samples does not, nor a drafter that never answers."""
        return bool(self.sources) and self._unanswered < UNANSWERED_SHADOWS

    def _expected(self, costs: Bucket, limit: int) -> Expected | None:
        """Return what the match here promises, None unless its rate is above every other's by the margin."""
        if self._match is None:
            return None
        margin = SURE_MARGIN if self._overdrawn(costs) else MARGIN
        return self._rates.matched(costs, self._match, limit, self._selected, margin)

    def _probe_due(self, costs: Bucket, expected: Expected) -> bool:
        """Say whether another drafter is to be tried although a match is here, since it might plausibly beat it."""
        return (self._probe[1] > 0 or self._until_probe <= 0) and self._rates.hopeful(costs, expected.rate)

    def _next(self, costs: Bucket, matched: bool) -> Arm:
        """Return the probe in progress, a due probe, or the best known arm; a match rules out a look at shadows."""
        arm, left = self._probe
        if left > 0 and self._goes_on(costs, arm):
            self._probe = (arm, left - 1)
            return arm
        self._probe = (PLAIN, 0)
        best = self._rates.best(costs, self._selected)
        if best != self._selected:
            # Starting or ending to draft is news; a neighbouring depth is a refinement.
            news = best.depth == 0 or self._selected.depth == 0
            self._pause = FIRST_PAUSE_STEPS if news else max(self._pause // 2, FIRST_PAUSE_STEPS)
            self._selected, self._until_probe = best, self._pause
        overdue = self._overdue(costs, best)
        if overdue is not None:
            self._probe = (overdue, PROBE_STEPS - 1)
            return overdue
        if self._until_probe > 0 or not self.sources:
            return best
        if best.depth == 0 and not self._rates.within_reach(costs):
            passed = max(source.unasked for source in self.sources.values())
            self._until_probe = max(LONGEST_PAUSE_STEPS - passed, SHADOW_PAUSE_STEPS)
            return best
        return self._probed(costs, best, matched)

    def _overdue(self, costs: Bucket, best: Arm) -> Arm | None:
        """Return what was not looked at for long, None for nothing: plain decoding, or a drafter too far away."""
        if best.depth > 0:
            return PLAIN if self._rates.plain_is_stale(costs, best) else None
        far = self._rates.overdue(costs)
        if far is None or self._until_probe > 0 or not self._affordable(costs, self._rates.loss_s(costs, far)):
            return None
        self._until_probe = FIRST_PAUSE_STEPS
        return far

    def _probed(self, costs: Bucket, best: Arm, matched: bool) -> Arm:
        """Return the candidate of a probe that is due where it can be borne, or have the next pause look at shadows."""
        candidate = self._rates.candidate(costs, best)
        promising = self._rates.promising(costs) and not self._rates.unknown(costs)
        self._look = best.depth == 0 and self._shadows and not matched and not promising
        longest = SHADOW_PAUSE_STEPS if self._look else LONGEST_PAUSE_STEPS
        if best.depth == 0 and self.account_s < 0 and self._rates.answering(costs):
            # Earlier gains may be spent on looking more often, but not at a drafter that has fallen silent.
            longest = CREDIT_PAUSE_STEPS
        self._until_probe, self._pause = min(self._pause, longest), min(self._pause * 2, longest)
        if candidate != best and not self._look and self._affordable(costs, self._rates.loss_s(costs, candidate)):
            self._probe = (candidate, PROBE_STEPS - 1)
            return candidate
        return best

    def _goes_on(self, costs: Bucket, arm: Arm) -> bool:
        """Say whether a probe is to be ended as begun: one ask of a drafter elsewhere may cost all that there is."""
        source = self.sources.get(arm.source) if arm.depth else None
        if source is None or not source.latency.elsewhere:
            return True
        return self._affordable(costs, self._rates.loss_s(costs, arm))

    def _affordable(self, costs: Bucket, loss_s: float) -> bool:
        """Say whether the account can bear losing ``loss_s``."""
        return loss_s <= 0.0 or self._lost_s() + loss_s <= costs.allowance_s(self.decoded_s)

    def _overdrawn(self, costs: Bucket) -> bool:
        """Say whether drafts of matches have lost what all learning may lose."""
        return self.lookups.account_s > 0.0 and self._lost_s() > costs.allowance_s(self.decoded_s)

    def _lost_s(self) -> float:
        """Return what is lost in all; what matches gained is not there for probes of the others, nor the reverse."""
        return self.account_s + max(0.0, self.lookups.account_s)
