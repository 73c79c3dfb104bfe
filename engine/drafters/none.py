"""No drafter at all: the loop decodes ahead, and its cost without drafting can be measured."""

from __future__ import annotations

from dataclasses import dataclass

from engine.types import Draft, DrafterInfo, Features


@dataclass(frozen=True, slots=True)
class NoDrafter:
    """Propose nothing; model and state in one because there is neither."""

    @property
    def info(self) -> DrafterInfo:
        """Name only."""
        return DrafterInfo(name="none", digest=None, format="none", parameters=0, block_size=None)

    @property
    def capture(self) -> tuple[int, ...]:
        """Return no layers."""
        return ()

    @property
    def forwards(self) -> int:
        """Return 0."""
        return 0

    def open(self) -> NoDrafter:
        """Return itself: it has no state."""
        return self

    def propose(self, bonus: int, position: int, count: int) -> Draft:
        """Propose nothing."""
        del bonus, position, count
        return Draft(skipped="no drafter")

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Ignore what was committed."""
        del start, tokens, features

    def measured_bytes(self) -> int:
        """Return 0."""
        return 0
