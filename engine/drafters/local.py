"""What drafters in this process have in common."""

from __future__ import annotations

from engine.types import Choice, Draft, Match


class LocalDrafter:
    """A drafter that holds nothing outside itself."""

    __slots__ = ()

    def close(self) -> None:
        """Do nothing: there is no connection and no thread to end."""

    def round_trip_s(self, source: str) -> float | None:
        """Return None: it is asked here."""
        del source
        return None

    def lookup(self, bonus: int) -> Match | None:
        """Find nothing: what it would propose is known once it is asked."""
        del bonus
        return None

    def ready(self, bonus: int) -> Draft:
        """Return nothing: no draft of this process is ever under way."""
        del bonus
        return Draft(skipped="nothing is under way")

    def select(self, choice: Choice) -> None:
        """Do nothing: there is one drafter to ask."""
        del choice
