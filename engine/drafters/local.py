"""What drafters in this process have in common."""

from __future__ import annotations


class LocalDrafter:
    """A drafter that holds nothing outside itself."""

    __slots__ = ()

    def close(self) -> None:
        """Do nothing."""
