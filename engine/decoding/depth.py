"""A draft length that never changes: the simplest ``Depth``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.types import Choice, Decision, Match, Pause


class VerifiedOnly:
    """A policy that learns from verified drafts alone and asks for no shadow drafts."""

    __slots__ = ()

    def shadowed(self, drafted: int, accepted: int) -> bool:
        """Learn nothing and go on."""
        del drafted, accepted
        return False

    def interrupts(self, position: int, limit: int, lookup: Callable[[], Match | None]) -> bool:
        """Look nothing up and go on."""
        del position, limit, lookup
        return False

    def unanswered(self, position: int, asked: int, elapsed_s: float) -> None:
        """Ignore what an ask without an answer cost."""
        del position, asked, elapsed_s


@dataclass(frozen=True, slots=True)
class FixedDepth(VerifiedOnly):
    """Draft ``tokens`` tokens every step; 0 decodes without drafting."""

    tokens: int

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None] | None = None) -> Choice:
        """Return the fixed length, shortened near the end of the budget."""
        del position, lookup
        return Choice(min(self.tokens, limit))

    def park(self, position: int) -> Pause:
        """Return a length longer than any budget: nothing is ever reconsidered."""
        del position
        return Pause(1 << 30)

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float) -> None:
        """Ignore what a step cost and brought."""
        del position, drafted, outcome, elapsed_s
