"""One request on an MLX target: its caches and capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from engine.backends.caches import LayerRows
from engine.backends.evicting import PageCounts
from engine.backends.layers import close_all, crop_all, held_rows, page_counts
from engine.backends.mlx.accept import predictions, read
from engine.backends.mlx.caches import GROW_ROWS
from engine.backends.mlx.models.compiled import CompiledSteps, lending, sound_rows
from engine.backends.mlx.models.decoder import Weights
from engine.backends.mlx.rows import LIBRARY, squared
from engine.backends.rows import stored_errors
from engine.decoding.prompt import check_prompt
from engine.restoration.elsewhere import ElsewhereRestorer
from engine.restoration.restorers import Restorer
from engine.restoration.rows import restore
from engine.structure.layout import CacheLayout
from engine.types import Decision, Draft, Forward, Ids, StoredError
from engine.verification import greedy


class MlxSequence:
    """Caches and capture of one request."""

    def __init__(
        self,
        target: Weights,
        capture: tuple[int, ...],
        layout: CacheLayout,
        restorer: Restorer | ElsewhereRestorer | None = None,
        steps: CompiledSteps | None = None,
    ) -> None:
        """Begin with empty caches; ``restorer`` makes rows again where the layout says so, ``steps`` replays forwards.

        Raises:
            UsageError: If the target cannot have the layout, or nothing restores what it evicts.
        """
        self.target = target
        self.capture = capture
        self.layout = layout
        self.caches = target.family.caches(layout)
        self.latents = restore(self.caches, layout, restorer, LIBRARY, GROW_ROWS)
        self._chunk_rows = None if self.latents is None or layout.evicts else layout.window
        read = () if self.latents is None else self.latents.restorer.capture
        self._reads = tuple(sorted({*capture, *read}))
        self.steps = steps if self.latents is None and lending(self.caches) else None
        self._sound: mx.array | None = None
        self._forwarded_at = 0
        self._grown = 0
        self._forwards_to_clearing: int | None = None
        self.positions_forwarded = 0
        """Rows of all forwards so far, those that were cropped later too."""

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return self.caches[0].length

    @property
    def max_positions(self) -> int:
        """Positions that the target holds."""
        return self.target.info.max_positions

    def expect(self, new_tokens: int) -> None:
        """Ignore how many tokens may follow: caches grow as they come."""
        del new_tokens

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        """Forward the prompt chunk by chunk; a chunk is evaluated before the next is built, which bounds memory.

        Raises:
            PromptError: If the prompt is empty, too long for the model or holds ids outside the vocabulary.
        """
        check_prompt(ids, self.target.info, self.length)
        chunk = min(chunk, self._chunk_rows or chunk)
        for start in range(0, len(ids), chunk):
            part = ids[start : start + chunk]
            hidden, features = self._run(mx.array(part), self.capture)
            last = start + len(part) == len(ids)
            logits = self.target.family.head(hidden[0, -1:]) if last else None
            pending = [array for cache in self.caches for array in cache.buffers()]
            pending += [] if self.latents is None else self.latents.buffers()
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
        if isinstance(draft.tokens, mx.array):
            ids = mx.concatenate([mx.array([bonus], draft.tokens.dtype), draft.tokens])
        else:
            ids = mx.array([bonus, *draft.tokens], mx.int32)
        forward = self._forward(ids)
        if self._sound is not None:
            mx.async_eval(forward.logits, self._sound)
        return forward

    def draft_ahead(self, ids: tuple[int, ...], count: int) -> Ids:
        """Queue ``count`` greedy forwards, the first over ``ids``; return what they predict, on the device."""
        family, block = self.target.family, mx.array(ids, mx.int32)
        drafted: list[mx.array] = []
        for _ in range(count):
            hidden, _ = self._run(block, ())
            block = mx.argmax(family.head(hidden[0, -1:]), axis=-1)
            mx.async_eval(block)
            drafted.append(block)
        return mx.concatenate(drafted)

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        """Decode greedily with one forward always queued behind the one being read."""
        forward, answer = self._queue(mx.array([bonus], mx.int32))
        for index in range(limit):
            following = self._queue(answer[0]) if index + 1 < limit and goes_on() else None
            answered = read(answer)
            if self._forwards_to_clearing == 1:
                # The forward that grew the caches was run, and the one that is queued reads the new buffers.
                self._clear()
            yield greedy.settle(answered, 1, (), self.target.info.vocab_size), forward
            if following is None:
                return
            forward, answer = following

    def committed(self, forward: Forward, rows: int) -> mx.array | None:
        """Return the first ``rows`` rows of the captured states."""
        return forward.features if forward.features is None or rows == forward.rows else forward.features[:rows]

    def crop(self, length: int) -> None:
        """Crop every cache, or none of them."""
        end = self.length
        crop_all(self.caches, length)
        sound, self._sound = self._sound, None
        finite: Any = [] if sound is None or length == end else sound.tolist()
        if length < self._forwarded_at or not all(finite):  # of rows of earlier forwards nothing is known any more
            self._blank(end)

    def rewind(self, length: int) -> None:
        """Go back to an earlier length."""
        end = self.length
        for cache in self.caches:
            cache.rewind(length)
        self._sound = None
        self._blank(end)

    def _blank(self, end: int) -> None:
        """Forget what lies up to ``end``: a replayed step multiplies rows that it must not see by zero."""
        if self.steps is None:
            return
        for cache in self.caches:
            if isinstance(cache, LayerRows):
                cache.blank(end)

    def measured_bytes(self) -> int:
        """Return the bytes of every cache buffer, and of what rows are made of again."""
        return self.latent_bytes() + sum(cache.measured_bytes() for cache in self.caches)

    def latent_bytes(self) -> int:
        """Return the bytes of what rows are made of again."""
        return 0 if self.latents is None else self.latents.measured_bytes()

    def page_counts(self) -> PageCounts:
        """Return what became of the evicted pages so far."""
        return page_counts(self.caches)

    def close(self) -> None:
        """Let go of evicted pages, and of who makes rows again; may be called again."""
        close_all(self.caches)
        if self.latents is not None:
            self.latents.close()

    def fallbacks(self) -> dict[str, int]:
        """Return nothing: there is one way to run a forward."""
        return {}

    def stored_errors(self, layout: CacheLayout) -> tuple[StoredError, ...]:
        """Return what storing every row held now in ``layout`` would change, by layer and side.

        Raises:
            UsageError: If the sequence does not keep every row.
        """
        return stored_errors(held_rows(self.caches), layout, LIBRARY, squared)

    def _let_go(self) -> None:
        """Give buffers back that caches have outgrown, two forwards later, when nothing that is queued reads them.

        MLX keeps a freed buffer for another of its size, and a cache that grows never asks for its old one.
        """
        grown = self.length // GROW_ROWS
        if grown != self._grown:
            self._grown, self._forwards_to_clearing = grown, 2
        elif self._forwards_to_clearing is not None:
            self._forwards_to_clearing -= 1
            if self._forwards_to_clearing == 0:
                self._clear()

    def _clear(self) -> None:
        self._forwards_to_clearing = None
        mx.clear_cache()

    def _forward(self, ids: mx.array) -> Forward:
        self._let_go()
        start, steps = self.length, self.steps
        self._forwarded_at = start
        stepped = None if steps is None else steps.forward(ids, self.caches, self.capture)
        if stepped is None:
            hidden, features = self._run(ids, self.capture)
            logits = self.target.family.head(hidden[0])
            self._sound = None if steps is None else sound_rows(hidden[0])
        else:
            self.positions_forwarded += int(ids.shape[0])
            logits, features, self._sound = stepped
        return Forward(logits, features, start, ids.shape[0])

    def _run(self, ids: mx.array, capture: tuple[int, ...]) -> tuple[mx.array, mx.array | None]:
        """Append rows; return the normed output and the captured states, None where none are wanted."""
        family, latents = self.target.family, self.latents
        self.positions_forwarded += int(ids.shape[0])
        if latents is None:
            return family.forward(ids, self.caches, capture)
        start = self.length
        hidden, outputs = family.forward(ids, self.caches, self._reads)
        by_layer = dict(zip(self._reads, mx.split(outputs, len(self._reads), axis=-1), strict=True))
        latents.append(start, mx.concatenate([by_layer[layer] for layer in latents.restorer.capture], axis=-1))
        features = [by_layer[layer] for layer in capture]
        return hidden, mx.concatenate(features, axis=-1) if features else None

    def _queue(self, ids: mx.array) -> tuple[Forward, list[mx.array]]:
        """Start one forward; return it and what to read: the next id and its min-entropy."""
        forward = self._forward(ids)
        answer = list(predictions(forward.logits))
        mx.async_eval(*answer, *([] if self._sound is None else [self._sound]))
        return forward, answer
