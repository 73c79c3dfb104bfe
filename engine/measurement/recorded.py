"""Which ids a decode proposed: what the counts of its steps do not say."""

from __future__ import annotations

from typing import Any

from engine.protocols import Sequence
from engine.types import Draft, Forward


class RecordedSequence:
    """A sequence that keeps every draft it verified; they are read when the decode is over, so that nothing waits."""

    def __init__(self, sequence: Sequence) -> None:
        self._drafts: list[Draft] = []
        self._sequence = sequence

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sequence, name)

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        """Queue the forward and keep the draft."""
        self._drafts.append(draft)
        return self._sequence.forward_block(bonus, draft)

    def proposed(self) -> tuple[tuple[int, ...], ...]:
        """Return the ids of every draft, those that were rejected too; waits for the device."""
        return tuple(tuple(draft.ids()) for draft in self._drafts if draft.count)
