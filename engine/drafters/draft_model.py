"""A smaller causal model as drafter: it decodes ahead greedily, and what was not accepted is cropped.

Knows no tensors: the small model is a target like any other, opened with every row kept, because drafts are appended
one by one and a crop may have to reach behind several of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.drafters.local import LocalDrafter
from engine.errors import ModelMismatchError, ObservationError
from engine.protocols import Sequence, TargetModel
from engine.structure.layout import CacheLayout
from engine.types import Draft, DrafterInfo, Features, TargetInfo
from engine.verification.greedy import accepted_length

CHUNK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A loaded small model; ``open`` starts it on a sequence."""

    model: TargetModel

    @property
    def info(self) -> DrafterInfo:
        """Name, digest and size of the small model."""
        info = self.model.info
        return DrafterInfo(info.name, info.digest, "draft-model", info.parameters, block_size=None)

    @property
    def capture(self) -> tuple[int, ...]:
        """Return no layers: token ids are all it reads."""
        return ()

    def open(self) -> DraftModelDrafter:
        """Start with an empty cache."""
        info = self.model.info
        return DraftModelDrafter(self.model.open((), CacheLayout.FULL), info.max_positions, info.vocab_size)


@dataclass(slots=True)
class DraftModelDrafter(LocalDrafter):
    """One sequence of the small model: committed tokens, of which the cache holds a prefix and maybe drafts behind."""

    sequence: Sequence
    max_positions: int
    vocab_size: int
    forwards: int = 0
    _committed: list[int] = field(default_factory=list)
    _largest: int = 0
    _bonus: int = 0
    _draft: Draft = field(default_factory=Draft)

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Decode ``count`` tokens ahead of the bonus; they stay on the device."""
        del wait_s
        if position + count >= self.max_positions:
            return Draft(skipped="the context is past what the draft model holds")
        if max(self._largest, bonus) >= self.vocab_size:
            return Draft(skipped="the text holds a token that the draft model has no row for")
        # What the cache does not hold yet goes into the first forward, before the bonus.
        tokens = self.sequence.draft_ahead((*self._catch_up(), bonus), count)
        self.forwards += count
        self._bonus, self._draft = bonus, Draft(tokens=tokens, count=count)
        return self._draft

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Keep the cache rows of drafts that were committed and drop the others."""
        del features
        ObservationError.check(start, len(self._committed))
        accepted = 0
        if self._draft.count:
            # Read only where there is something to compare: a draft that was verified has long been computed.
            drafted = (self._bonus, *(self._draft.ids() if len(tokens) > 1 else ()))[: self._draft.count]
            accepted = accepted_length(drafted, tokens)
            self._draft = Draft()
        # Also when nothing is dropped: behind a crop a sequence need not keep what putting a draft back would take.
        self.sequence.crop(min(self.sequence.length, start + accepted))
        self._committed.extend(tokens)
        self._largest = max((self._largest, *tokens))

    def expect(self, new_tokens: int) -> None:
        """Forward what the cache does not hold of the prompt, and have recorded what is replayed behind it."""
        self.sequence.expect(new_tokens)
        rest = tuple(self._committed[self.sequence.length :])
        if rest and len(self._committed) < self.max_positions and self._largest < self.vocab_size:
            self.forwards += sum(1 for _ in self.sequence.prefill(rest, CHUNK_TOKENS))

    def rewind(self, length: int) -> int:
        """Forget what came after the first ``length`` tokens, and the draft behind them; return how many are left."""
        self._draft = Draft()
        del self._committed[length:]
        self._largest = max(self._committed, default=0)
        if self.sequence.length > len(self._committed):
            self.sequence.rewind(len(self._committed))
        return len(self._committed)

    def measured_bytes(self) -> int:
        """Return the bytes of the small model's cache."""
        return self.sequence.measured_bytes()

    def fallbacks(self) -> dict[str, int]:
        """Return by reason how many of the small model's forwards did not run as its backend was asked to."""
        return {f"draft model: {reason}": count for reason, count in self.sequence.fallbacks().items()}

    def _catch_up(self) -> tuple[int, ...]:
        """Forward the committed tokens that the cache does not hold in chunks, and return the rest of under a chunk.

        Drafts that nobody observed are dropped.
        """
        committed = len(self._committed)
        if self.sequence.length > committed:
            self.sequence.crop(committed)
        if self.sequence.length == 0 and committed:
            self.forwards += sum(1 for _ in self.sequence.prefill(tuple(self._committed), CHUNK_TOKENS))
        while committed - self.sequence.length >= CHUNK_TOKENS:
            length = self.sequence.length + CHUNK_TOKENS
            part = tuple(self._committed[self.sequence.length : length])
            self.sequence.forward_block(part[0], Draft(tokens=part[1:], count=len(part) - 1))
            self.sequence.crop(length)
            self.forwards += 1
        return tuple(self._committed[self.sequence.length :])


def check_fits(draft: TargetInfo, target: TargetInfo, same_words: Callable[[], bool]) -> None:
    """Check that a small model speaks the target's tokens.

    Args:
        draft: The small model, which may have fewer rows: larger models of a family may have some behind their last
            token.
        target: What it drafts for.
        same_words: Says whether both tokenizers give every token the same id; as many tokens are not the same ones.

    Raises:
        ModelMismatchError: If their vocabularies differ.
    """
    if draft.vocab_size > target.vocab_size or not same_words():
        raise ModelMismatchError(
            f"draft model {draft.name!r} has {draft.vocab_size} token ids; the target {target.name!r} has "
            f"{target.vocab_size}, and the same word must have the same id. Use a model with the same tokenizer."
        )
