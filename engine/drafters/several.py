"""Several drafters of one sequence, of which each step asks one.

Knows neither costs nor rates: a policy chooses. All of them are shown what is committed, so that each may be asked at
any time. At most one looks tokens up; it is asked through ``lookup`` and answers from what it found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.drafters.ngram import NgramDrafter, NgramModel
from engine.errors import UsageError
from engine.protocols import Drafter, DrafterModel, SamplingDrafterModel
from engine.types import Choice, Draft, DrafterInfo, Features, Match
from engine.verification.rejection import Sampling

LONGEST_MATCH = 32
"""Tokens compared before a match: beyond that, one that reaches further back is no better a sign."""


def several(models: Sequence[DrafterModel]) -> SeveralModel:
    """Return drafters by their names, beside prompt lookup.

    Raises:
        UsageError: If two have one name, or more than one reads the target's layers.
    """
    lookup = NgramModel().info.name
    # A choice tells the prompt lookup here, which costs nothing, from one that is asked over a link by its name.
    named = {f"{lookup} elsewhere" if model.info.name == lookup else model.info.name: model for model in models}
    if len(named) < len(models):
        raise UsageError(f"drafters {', '.join(model.info.name for model in models)}; expected each once")
    reading = [name for name, model in named.items() if model.capture]
    if len(reading) > 1:
        raise UsageError(f"drafters {' and '.join(reading)} both read the target's layers; name one of them")
    return SeveralModel(named)


@dataclass(frozen=True, slots=True)
class SeveralModel:
    """Drafters by name, beside prompt lookup; ``open`` starts all of them on a sequence."""

    named: Mapping[str, DrafterModel]
    looking: NgramModel = field(default_factory=lambda: NgramModel(max_tokens=LONGEST_MATCH))

    @property
    def info(self) -> DrafterInfo:
        """Return all names, the parameters in all, and what each drafter is."""
        looked_up = self.looking.info
        drafters = [
            replace(model.info, name=name) if model.info.name == looked_up.name else model.info
            for name, model in self.named.items()
        ]
        parts = [*drafters, looked_up]
        return DrafterInfo(
            name=" or ".join(part.name for part in parts),
            digest=None,
            format="several",
            parameters=sum(part.parameters for part in parts),
            block_size=None,
            settings={
                part.name: {"format": part.format, "digest": part.digest, "block_size": part.block_size}
                for part in parts
            },
        )

    @property
    def capture(self) -> tuple[int, ...]:
        """Return the layers that the only one which reads any reads."""
        return next((model.capture for model in self.named.values() if model.capture), ())

    def open(self) -> SeveralDrafters:
        """Start every drafter."""
        return SeveralDrafters({name: model.open() for name, model in self.named.items()}, self.looking.open())

    def sampling(self, settings: Sampling) -> SeveralModel:
        """Return the drafters, those that can drawing their tokens."""
        drawing = {
            name: model.sampling(settings) if isinstance(model, SamplingDrafterModel) else model
            for name, model in self.named.items()
        }
        return SeveralModel(drawing, self.looking)


@dataclass(slots=True)
class SeveralDrafters:
    """One sequence of a ``SeveralModel``: who is asked next, and what was looked up for that place."""

    named: Mapping[str, Drafter]
    looking: NgramDrafter
    _choice: Choice = field(default_factory=lambda: Choice(0))

    @property
    def forwards(self) -> int:
        """Forwards of all of them."""
        return sum(drafter.forwards for drafter in self.named.values())

    def round_trip_s(self, source: str) -> float | None:
        """Return how far away a drafter is; a lookup is asked here."""
        named = self.named.get(source)
        return None if named is None else named.round_trip_s(source)

    def lookup(self, bonus: int) -> Match | None:
        """Return what an earlier place like this one says."""
        return self.looking.lookup(bonus)

    def select(self, choice: Choice) -> None:
        """Take who is asked next."""
        self._choice = choice

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Ask the one that was selected; where it agrees with a match, the match's tokens follow its draft."""
        chosen = self.named.get(self._choice.source)
        if chosen is None:
            return self.looking.ask(bonus, position, count)
        draft = chosen.ask(bonus, position, count, wait_s)
        return draft if self._choice.extended <= count else self._extended(draft, bonus)

    def ready(self, bonus: int) -> Draft:
        """Return what is left of the draft of the one that was asked."""
        return self.named.get(self._choice.source, self.looking).ready(bonus)

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Show all of them what was committed."""
        self.looking.observe(start, tokens, features)
        for drafter in self.named.values():
            drafter.observe(start, tokens, features)

    def expect(self, new_tokens: int) -> None:
        """Let all of them make ready."""
        for drafter in self.named.values():
            drafter.expect(new_tokens)

    def rewind(self, length: int) -> int:
        """Take all of them back as far as the one that has observed least."""
        drafters = (self.looking, *self.named.values())
        lengths = [drafter.rewind(length) for drafter in drafters]
        # One that is there already is left alone: some go back a position further each time.
        while (least := min(lengths)) < max(lengths):
            lengths = [
                length if length == least else drafter.rewind(least)
                for drafter, length in zip(drafters, lengths, strict=True)
            ]
        return least

    def close(self) -> None:
        """Close all of them."""
        for drafter in self.named.values():
            drafter.close()

    def measured_bytes(self) -> int:
        """Return the bytes of all contexts."""
        return sum(drafter.measured_bytes() for drafter in self.named.values())

    def _extended(self, draft: Draft, bonus: int) -> Draft:
        """Return the match's tokens where the draft is the beginning of them, else the draft; reads it.

        What was drawn from a distribution stays as it is: the tokens behind it would have none.
        """
        match = self.looking.lookup(bonus)
        if match is None or not draft.count or draft.probs is not None:
            return draft
        ids, draft = draft.ids(), replace(draft, waits=draft.waits + int(not isinstance(draft.tokens, tuple)))
        if match.tokens[: len(ids)] != ids:
            return draft
        tokens = match.tokens[: self._choice.extended]
        return replace(draft, tokens=tokens, count=len(tokens))
