"""A draft length that never changes: the simplest ``Depth``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.types import Choice, Decision, Match, Pause


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

    def waited(self, waited_s: float, came_s: float | None) -> None:
        """Ignore what waiting cost."""
        del waited_s, came_s

    def came_late(self, came_s: float, drafted: int, passed: int, right: int) -> None:
        """Ignore how late a draft came."""
        del came_s, drafted, passed, right

    def silent(self, passed_s: float) -> None:
        """Ignore that nothing came."""
        del passed_s

    def unanswered(self, position: int, asked: int, elapsed_s: float) -> None:
        """Ignore what an ask without an answer cost."""
        del position, asked, elapsed_s


@dataclass(frozen=True, slots=True)
class FixedDepth(VerifiedOnly):
    """Draft ``tokens`` tokens every step; 0 decodes without drafting.

    With ``waits`` every draft is awaited, so that what is drafted does not depend on how long drafts take; else one
    from elsewhere is used when it comes, and nothing waits for it.
    """

    tokens: int
    waits: bool = False

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None] | None = None) -> Choice:
        """Return the fixed length, shortened near the end of the budget."""
        del position, lookup
        return Choice(min(self.tokens, limit), wait_s=None if self.waits else 0.0)

    def park(self, position: int) -> Pause:
        """Return a length longer than any budget: nothing is ever reconsidered."""
        del position
        return Pause(1 << 30)

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float | None) -> None:
        """Ignore what a step cost and brought."""
        del position, drafted, outcome, elapsed_s
