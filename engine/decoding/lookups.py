"""How often a looked-up token is right, by how many tokens before it matched an earlier place.

A lookup costs nothing to try: whatever a step commits says whether the match before it would have been right, drafted
or not. After each right token the match is one longer, so that one rate for each length tells how far a draft reaches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.decoding.arms import Bucket
from engine.decoding.estimates import ACCEPTANCE_WEIGHT, EARLY_STEPS, line
from engine.types import Match

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""The shortest match of each class."""
PRIORS = (0.6, 0.6, 0.65, 0.7, 0.7, 0.8, 0.9, 0.95, 0.95, 0.95)
"""How often the next token is right behind a match of each class, rounded down from the recorded answers of the tests:
what a class nothing was seen of is taken for, unless a shorter one has come true more often."""
AGREEMENT_WEIGHT = 0.1
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""How many looked-up tokens a step may verify: few sizes, so that the cost of each is soon known."""
LOOKED_UP = "ngram"
"""Whose drafts they are, in a choice."""
ROW_COST_PRIOR = 0.1
"""In plain steps: what verifying a looked-up token is taken to cost until a step with one was timed."""
RECENT_TOKENS = 16
"""So long after a match that came true another one is looked for at each token, without a forward ahead."""
INTERRUPTING_GAIN = 0.2
"""In plain steps: what a match must promise to gain to end a pause, after which steps are not queued ahead."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A draft of looked-up tokens: how many, what a step is expected to commit, and its seconds."""

    count: int
    committed: float
    cost_s: float

    @property
    def rate(self) -> float:
        """Expected tokens a second."""
        return self.committed / self.cost_s

    def interrupts(self, plain_s: float) -> bool:
        """Say whether it gains enough over plain steps to end a pause of them."""
        return self.committed * plain_s - self.cost_s > INTERRUPTING_GAIN * plain_s


@dataclass(slots=True)
class Lookups:
    """Rates by class of match length; ``agreed`` is how often a whole draft came true that a match had said as well.

    ``account_s`` are the seconds lost by drafts of matches, ``recent_tokens`` how long the last that came true counts.
    """

    rates: list[float] = field(default_factory=lambda: list(PRIORS))
    trials: list[int] = field(default_factory=lambda: [0] * len(LENGTHS))
    agreed: float = 0.0
    account_s: float = 0.0
    recent_tokens: int = 0

    def learn(self, match: Match, tokens: tuple[int, ...]) -> int:
        """Take what was committed where ``match`` was found; return how many of its tokens came true."""
        for offset, (predicted, actual) in enumerate(zip(match.tokens, tokens, strict=False)):
            kind = _kind(match.length + offset)
            self.trials[kind] += 1
            weight = max(ACCEPTANCE_WEIGHT, 1.0 / (self.trials[kind] + 1))
            self.rates[kind] += weight * ((predicted == actual) - self.rates[kind])
            if predicted != actual:
                return offset
        return min(len(match.tokens), len(tokens))

    def pass_by(self, tokens: int, came_true: bool) -> None:
        """Count committed tokens since the last draft of a match that came true."""
        self.recent_tokens = RECENT_TOKENS if came_true else self.recent_tokens - tokens

    def learn_agreement(self, agreed: bool) -> None:
        """Take whether a drafter's whole block came true and was what the match had said."""
        self.agreed += AGREEMENT_WEIGHT * (agreed - self.agreed)

    def best(self, match: Match, limit: int, costs: Bucket) -> Expected | None:
        """Return the draft of at most ``limit`` tokens with the best expected rate, None where none may be drafted."""
        brought, most = self.committed(match), min(limit, len(match.tokens))
        # All that is left of an answer is one step more or less, whatever its size.
        counts, seconds = {*(count for count in COUNTS if count <= most), most} - {0}, looked_up_s(costs)
        tried = (Expected(count, 1.0 + brought[count], seconds(count)) for count in counts)
        return max(tried, key=lambda draft: draft.rate, default=None)

    def extension(
        self, match: Match, drafted: int, limit: int, base: tuple[float, float], rows_s: Callable[[int], float]
    ) -> tuple[int, float]:
        """Return how far to follow a whole draft of ``drafted`` tokens with the match where it agrees, and the rate.

        ``base`` is what the step commits and takes without, ``rows_s`` the seconds that verifying more rows adds. A
        draft that two drafters agree on is taken for right: ``agreed`` of the steps then pay for the rows and gain.
        """
        brought, best = self.committed(match, begin=drafted), (0, base[0] / base[1] if base[1] else 0.0)
        for count in COUNTS:
            if drafted < count <= min(limit, len(match.tokens)):
                committed = base[0] + self.agreed * brought[count - drafted]
                rate = committed / (base[1] + self.agreed * rows_s(count))
                best = (count, rate) if rate > best[1] else best
        return best

    def committed(self, match: Match, begin: int = 0) -> list[float]:
        """Return what is expected of the match's tokens from ``begin`` on: entry d of the first d tokens of them."""
        expected, survival, rates = [0.0], 1.0, self._known()
        for offset in range(begin, len(match.tokens)):
            survival *= rates[_kind(match.length + offset)]
            expected.append(expected[-1] + survival)
        return expected

    def _known(self) -> list[float]:
        estimate, rates = 0.0, []
        for rate, trials, prior in zip(self.rates, self.trials, PRIORS, strict=True):
            estimate = rate if trials else max(estimate, prior)
            rates.append(estimate)
        return rates


def looked_up_s(costs: Bucket) -> Callable[[int], float]:
    """Return what a step takes by how many looked-up tokens it verifies: a plain one is one with none.

    A count that was timed only once or twice may have met a bad moment: the line through others timed more often
    counts where it is lower.
    """
    own, plain_s = costs.of(LOOKED_UP), costs.plain_s
    if not own.seconds:
        return lambda count: (1.0 + ROW_COST_PRIOR * count) * plain_s
    timed = {0: plain_s} | own.seconds
    often = {0: plain_s} | {
        count: timed[count] for count in own.seconds if own.timed_steps.get(count, 0) >= EARLY_STEPS
    }

    def seconds(count: int) -> float:
        return min(line(timed, count), line(often, count)) if len(often) > 1 else line(timed, count)

    return seconds


def _kind(length: int) -> int:
    return bisect_right(LENGTHS, length) - 1
