"""One request on an MLX target: its caches and capture."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from engine.backends.evicting import PageCounts
from engine.backends.layers import close_all, crop_all, held_rows, page_counts, watch
from engine.backends.mlx.accept import predictions, read
from engine.backends.mlx.models.decoder import Weights
from engine.backends.mlx.rows import LIBRARY, squared
from engine.backends.rows import stored_errors
from engine.decoding.prompt import check_prompt
from engine.structure.layout import CacheLayout
from engine.types import Decision, Draft, Forward, Ids, StoredError
from engine.verification import greedy


class MlxSequence:
    """Caches and capture of one request."""

    def __init__(self, target: Weights, capture: tuple[int, ...], layout: CacheLayout) -> None:
        self.target = target
        self.capture = capture
        self.layout = layout
        self.caches = target.family.caches(layout)

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return self.caches[0].length

    @property
    def max_positions(self) -> int:
        """Positions that the target holds."""
        return self.target.info.max_positions

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        """Forward the prompt chunk by chunk; a chunk is evaluated before the next is built, which bounds memory.

        Raises:
            PromptError: If the prompt is empty, too long for the model or holds ids outside the vocabulary.
        """
        check_prompt(ids, self.target.info, self.length)
        for start in range(0, len(ids), chunk):
            part = ids[start : start + chunk]
            hidden, features = self.target.family.forward(mx.array(part), self.caches, self.capture)
            last = start + len(part) == len(ids)
            logits = self.target.family.head(hidden[0, -1:]) if last else None
            pending = [array for cache in self.caches for array in cache.buffers()]
            pending += [array for array in (logits, features) if array is not None]
            if last:
                mx.async_eval(*pending)
            else:
                mx.eval(*pending)
                mx.clear_cache()
            yield Forward(logits=logits, features=features, start=start, rows=len(part))

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        """Queue the verify forward of ``[bonus, *draft]``; nothing is read here.

        Raises:
            UsageError: If it has more rows than a pool of pages.
        """
        self.layout.check_block(1 + draft.count)
        watch(self.caches, draft)
        if isinstance(draft.tokens, mx.array):
            ids = mx.concatenate([mx.array([bonus], draft.tokens.dtype), draft.tokens])
        else:
            ids = mx.array([bonus, *draft.tokens], mx.int32)
        return self._forward(ids)

    def draft_ahead(self, ids: tuple[int, ...], count: int) -> Ids:
        """Queue ``count`` greedy forwards, the first over ``ids``; return what they predict, on the device."""
        family, block = self.target.family, mx.array(ids, mx.int32)
        drafted: list[mx.array] = []
        for _ in range(count):
            hidden, _ = family.forward(block, self.caches, ())
            block = mx.argmax(family.head(hidden[0, -1:]), axis=-1)
            mx.async_eval(block)
            drafted.append(block)
        return mx.concatenate(drafted)

    def decode_ahead(self, bonus: int, limit: int) -> Iterator[tuple[Decision, Forward]]:
        """Decode greedily with one forward always queued behind the one being read."""
        forward, answer = self._queue(mx.array([bonus], mx.int32))
        for index in range(limit):
            following = self._queue(answer[0]) if index + 1 < limit else None
            yield greedy.settle(read(answer), 1, (), self.target.info.vocab_size), forward
            if following is not None:
                forward, answer = following

    def committed(self, forward: Forward, rows: int) -> mx.array | None:
        """Return the first ``rows`` rows of the captured states."""
        return forward.features if forward.features is None or rows == forward.rows else forward.features[:rows]

    def crop(self, length: int) -> None:
        """Crop every cache, or none of them."""
        crop_all(self.caches, length)

    def rewind(self, length: int) -> None:
        """Go back to an earlier length."""
        for cache in self.caches:
            cache.rewind(length)

    def measured_bytes(self) -> int:
        """Return the bytes of every cache buffer."""
        return sum(cache.measured_bytes() for cache in self.caches)

    def page_counts(self) -> PageCounts:
        """Return what became of the evicted pages so far."""
        return page_counts(self.caches)

    def close(self) -> None:
        """Let go of evicted pages; may be called again."""
        close_all(self.caches)

    def fallbacks(self) -> dict[str, int]:
        """Return nothing: there is one way to run a forward."""
        return {}

    def stored_errors(self, layout: CacheLayout) -> tuple[StoredError, ...]:
        """Return what storing every row held now in ``layout`` would change, by layer and side.

        Raises:
            UsageError: If the sequence does not keep every row.
        """
        return stored_errors(held_rows(self.caches), layout, LIBRARY, squared)

    def _forward(self, ids: mx.array) -> Forward:
        start = self.length
        hidden, features = self.target.family.forward(ids, self.caches, self.capture)
        return Forward(self.target.family.head(hidden[0]), features, start, ids.shape[0])

    def _queue(self, ids: mx.array) -> tuple[Forward, list[mx.array]]:
        """Start one forward; return it and what to read: the next id and its min-entropy."""
        forward = self._forward(ids)
        answer = list(predictions(forward.logits))
        mx.async_eval(*answer)
        return forward, answer
