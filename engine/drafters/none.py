"""No drafter at all: the loop decodes ahead, and its cost without drafting can be measured."""

from __future__ import annotations

from dataclasses import dataclass

from engine.drafters.local import LocalDrafter
from engine.types import Draft, DrafterInfo, Features


@dataclass(frozen=True, slots=True)
class NoDrafter(LocalDrafter):
    """Propose nothing; model and state in one because there is neither, and no position to keep."""

    @property
    def info(self) -> DrafterInfo:
        """Describe a drafter without weights."""
        return DrafterInfo(name="none", digest=None, format="none", parameters=0, block_size=None)

    @property
    def capture(self) -> tuple[int, ...]:
        """Return no layers: it reads no features."""
        return ()

    @property
    def forwards(self) -> int:
        """Return 0: nothing runs and nothing is held."""
        return 0

    def open(self) -> NoDrafter:
        """Return itself: it has no state."""
        return self

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Propose nothing."""
        del bonus, position, count, wait_s
        return Draft(skipped="no drafter")

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Ignore committed tokens, whatever their position."""
        del start, tokens, features

    def rewind(self, length: int) -> int:
        """Forget nothing: no position is kept."""
        return length

    def measured_bytes(self) -> int:
        """Return 0: nothing runs and nothing is held."""
        return 0
