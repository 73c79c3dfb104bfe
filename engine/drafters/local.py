"""What drafters in this process have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.protocols import Drafter, DrafterModel
from engine.types import Choice, Draft, DrafterInfo, Match
from engine.verification.rejection import Sampling


class StartedModel(DrafterModel, Protocol):
    """A drafter's weights, whose sequences propose greedily or by sampling."""

    def start(self, settings: Sampling | None) -> Drafter:
        """Start a sequence without rows; with ``settings`` from the first draw of their seed."""


@dataclass(frozen=True)
class SampledModel:
    """A drafter of this process that samples its proposals, with their distribution in every draft."""

    model: StartedModel
    settings: Sampling

    @property
    def info(self) -> DrafterInfo:
        """Name, digest and settings of the drafter."""
        return self.model.info

    @property
    def capture(self) -> tuple[int, ...]:
        """Target layers it reads."""
        return self.model.capture

    def open(self) -> Drafter:
        """Start without rows, at the first draw of the seed."""
        return self.model.start(self.settings)


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

    def expect(self, new_tokens: int) -> None:
        """Do nothing: what it observes it takes in at once."""
        del new_tokens

    def select(self, choice: Choice) -> None:
        """Do nothing: there is one drafter to ask."""
        del choice
