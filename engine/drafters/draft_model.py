"""A smaller causal model as drafter: it decodes ahead greedily, and what was not accepted is cropped.

Knows no tensors: the small model is a target like any other, opened with every row kept, because drafts are appended
one by one and a crop may have to reach behind several of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import ModelMismatchError
from engine.protocols import Sequence, TargetModel
from engine.types import CacheLayout, Draft, DrafterInfo, Features, TargetInfo

CHUNK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A loaded small model; ``open`` starts it on a sequence."""

    model: TargetModel

    @property
    def info(self) -> DrafterInfo:
        """Name, digest and size of the small model."""
        known = self.model.info
        return DrafterInfo(known.name, known.digest, "draft-model", known.parameters, block_size=None)

    @property
    def capture(self) -> tuple[int, ...]:
        """Return no layers: token ids are all it reads."""
        return ()

    def open(self) -> DraftModelDrafter:
        """Start with an empty cache."""
        return DraftModelDrafter(self.model.open((), CacheLayout.FULL), self.model.info.max_positions)


@dataclass(slots=True)
class DraftModelDrafter:
    """One sequence of the small model: committed tokens, of which the cache holds a prefix and maybe drafts behind."""

    sequence: Sequence
    max_positions: int
    forwards: int = 0
    _committed: list[int] = field(default_factory=list)
    _drafted: list[int] = field(default_factory=list)

    def propose(self, bonus: int, position: int, count: int) -> Draft:
        """Decode ``count`` tokens ahead of the bonus."""
        if position + count >= self.max_positions:
            return Draft(skipped="the context is past what the draft model holds")
        self._catch_up()
        tokens: list[int] = []
        for outcome, _ in self.sequence.decode_ahead(bonus, count):
            self.forwards += 1
            if not outcome.tokens:
                break
            tokens.append(outcome.tokens[0])
        self._drafted = [bonus, *tokens[:-1]]
        if not tokens:
            return Draft(skipped="the draft model has no usable next token")
        return Draft(tokens=tuple(tokens), count=len(tokens))

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Keep the cache rows of drafts that were committed and drop the others."""
        del features
        kept = 0
        while kept < min(len(tokens), len(self._drafted)) and tokens[kept] == self._drafted[kept]:
            kept += 1
        if self.sequence.length > start + kept:
            self.sequence.crop(start + kept)
        self._drafted.clear()
        self._committed.extend(tokens)

    def measured_bytes(self) -> int:
        """Return the bytes of the small model's cache."""
        return self.sequence.measured_bytes()

    def fallbacks(self) -> dict[str, int]:
        """Return by reason how many of the small model's forwards did not run as its backend was asked to."""
        return {f"draft model: {reason}": count for reason, count in self.sequence.fallbacks().items()}

    def _catch_up(self) -> None:
        """Forward the committed tokens that the cache does not hold, dropping drafts that nobody observed."""
        known = len(self._committed)
        if self.sequence.length > known:
            self.sequence.crop(known)
        missing = tuple(self._committed[self.sequence.length :])
        if not missing:
            return
        if self.sequence.length == 0:
            self.forwards += sum(1 for _ in self.sequence.prefill(missing, CHUNK_TOKENS))
            return
        for begin in range(0, len(missing), CHUNK_TOKENS):
            part = missing[begin : begin + CHUNK_TOKENS]
            length = self.sequence.length + len(part)
            self.sequence.forward_block(part[0], Draft(tokens=part[1:], count=len(part) - 1))
            self.sequence.crop(length)
            self.forwards += 1


def check_fits(draft: TargetInfo, target: TargetInfo) -> None:
    """Check that a small model speaks the target's tokens.

    Raises:
        ModelMismatchError: If their vocabularies differ in size.
    """
    if draft.vocab_size != target.vocab_size:
        raise ModelMismatchError(
            f"draft model {draft.name!r} has {draft.vocab_size} token ids; the target {target.name!r} has "
            f"{target.vocab_size}. Use a model with the same tokenizer."
        )
