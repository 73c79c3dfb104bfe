"""A draft length that never changes: the simplest ``Depth``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.types import Choice, Decision, Draft, Match, Pause


class VerifiedOnly:
    """A policy that learns from verified drafts alone and asks for no shadow drafts."""

    __slots__ = ()

    def begin(self, round_trip_s: Callable[[str], float | None]) -> None:
        """Begin as before, however far away a drafter is."""
        del round_trip_s

    def shadowed(self, drafted: int, accepted: int) -> bool:
        """Learn nothing and go on."""
        del drafted, accepted
        return False

    def interrupts(self, position: int, limit: int, lookup: Callable[[], Match | None]) -> bool:
        """Look nothing up and go on."""
        del position, limit, lookup
        return False

    def asked(self, position: int, count: int, draft: Draft, elapsed_s: float) -> None:
        """Ignore what came of an ask."""
        del position, count, draft, elapsed_s


@dataclass(frozen=True, slots=True)
class FixedDepth(VerifiedOnly):
    """Draft ``tokens`` tokens every step; 0 decodes without drafting.

    Every draft is awaited, so that what is drafted does not depend on how long drafts take.

    Attributes:
        source: who is asked of several drafters; a single one has no name.
    """

    tokens: int
    source: str = ""

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None] | None = None) -> Choice:
        """Return the fixed length, shortened near the end of the budget."""
        del position, lookup
        return Choice(min(self.tokens, limit), self.source, wait_s=None)

    def park(self, position: int) -> Pause:
        """Return a length longer than any budget: nothing is ever reconsidered."""
        del position
        return Pause(1 << 30)

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float | None) -> None:
        """Ignore what a step cost and brought."""
        del position, drafted, outcome, elapsed_s
