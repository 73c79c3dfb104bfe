"""One request on a torch target: its caches, rotary tables and capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import torch

from engine.backends.evicting import PageCounts
from engine.backends.layers import close_all, held_rows, page_counts
from engine.backends.rows import stored_errors
from engine.backends.torch.accept import GreedyAccept, predictions
from engine.backends.torch.caches import GROW_ROWS
from engine.backends.torch.models.decoder import Weights
from engine.backends.torch.models.rotary import RotaryTable
from engine.backends.torch.rows import LIBRARY, squared
from engine.backends.torch.sending import send
from engine.decoding.prompt import check_prompt
from engine.restoration.elsewhere import ElsewhereRestorer
from engine.restoration.restorers import Restorer
from engine.restoration.rows import restore
from engine.structure.layout import CacheLayout
from engine.types import Decision, Draft, Forward, Ids, StoredError


class TorchSequence:
    """Caches, rotary tables and capture of one request."""

    def __init__(
        self,
        target: Weights,
        capture: tuple[int, ...],
        layout: CacheLayout,
        restorer: Restorer | ElsewhereRestorer | None = None,
    ) -> None:
        """Begin with empty caches; ``restorer`` makes rows again where the layout says so.

        Raises:
            UsageError: If the target cannot have the layout, or nothing restores what it evicts.
        """
        self.target = target
        self.capture = capture
        self.layout = layout
        self.caches = target.family.caches(layout)
        self.latents = restore(self.caches.layers, layout, restorer, LIBRARY, GROW_ROWS)
        self._chunk_rows = None if self.latents is None or layout.evicts else layout.window
        read = () if self.latents is None else self.latents.restorer.capture
        self._reads = tuple(sorted({*capture, *read}))
        self._rotary = RotaryTable(target.family.rotary, target.device, target.info.max_positions)
        self._accept = GreedyAccept(target.info.vocab_size)
        self._reasons: Counter[str] = Counter()
        self.positions_forwarded = 0
        """Rows of all forwards so far, those that were cropped later too."""

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return self.caches.length

    @property
    def max_positions(self) -> int:
        """Positions that the target holds."""
        return self.target.info.max_positions

    def expect(self, new_tokens: int) -> None:
        """Ignore how many tokens may follow: caches grow as they come."""
        del new_tokens

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        """Forward the prompt chunk by chunk.

        Raises:
            PromptError: If the prompt is empty, too long for the model or holds ids outside the vocabulary.
        """
        check_prompt(ids, self.target.info, self.length)
        chunk = min(chunk, self._chunk_rows or chunk)
        for start in range(0, len(ids), chunk):
            part = send(ids[start : start + chunk], self.target.device)
            yield self._forward(part, logits_rows=1 if start + chunk >= len(ids) else 0)

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        """Queue the verify forward of ``[bonus, *draft]``; nothing is read here.

        Raises:
            UsageError: If it has more rows than a pool of pages.
        """
        self.layout.check_block(1 + draft.count)
        if isinstance(draft.tokens, torch.Tensor):
            first = send([bonus], self.target.device)
            ids = torch.cat([first, draft.tokens.to(first.dtype)])
        else:
            ids = send([bonus, *draft.tokens], self.target.device)
        return self._block(ids)

    @torch.inference_mode()
    def draft_ahead(self, ids: tuple[int, ...], count: int) -> Ids:
        """Queue ``count`` greedy forwards, the first over ``ids``; return what they predict, on the device."""
        block, drafted = send(ids, self.target.device), []
        for _ in range(count):
            block = self._block(block).logits[-1:].argmax(dim=-1)
            drafted.append(block)
        return torch.cat(drafted)

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        """Decode greedily; on an accelerator one forward is always queued behind the one being read."""
        forward, packed = self._queue(send([bonus], self.target.device))
        for left in range(limit - 1, -1, -1):
            following = self._queue(packed[0].long()) if left and self.target.ahead and goes_on() else None
            yield self._accept.read(Draft(), packed), forward
            if following is None and not (left and goes_on()):
                return
            forward, packed = following or self._queue(packed[0].long())

    def committed(self, forward: Forward, rows: int) -> torch.Tensor | None:
        """Return the first ``rows`` rows of the captured states."""
        return None if forward.features is None else forward.features[:rows]

    def crop(self, length: int) -> None:
        """Crop every cache."""
        self.caches.crop(length)

    def rewind(self, length: int) -> None:
        """Go back to an earlier length."""
        self.caches.rewind(length)

    def measured_bytes(self) -> int:
        """Return the bytes of every cache buffer, and of what rows are made of again."""
        return self.latent_bytes() + self.caches.measured_bytes()

    def latent_bytes(self) -> int:
        """Return the bytes of what rows are made of again."""
        return 0 if self.latents is None else self.latents.measured_bytes()

    def page_counts(self) -> PageCounts:
        """Return what became of the evicted pages so far."""
        return page_counts(self.caches.layers)

    def close(self) -> None:
        """Let go of evicted pages, and of who makes rows again; may be called again."""
        close_all(self.caches.layers)
        if self.latents is not None:
            self.latents.close()

    def fallbacks(self) -> dict[str, int]:
        """Return by reason how many forwards of blocks ran in a slower way than the engine has."""
        return dict(self._reasons)

    @torch.inference_mode()
    def stored_errors(self, layout: CacheLayout) -> tuple[StoredError, ...]:
        """Return what storing every row held now in ``layout`` would change, by layer and side.

        Raises:
            UsageError: If the sequence does not keep every row.
        """
        return stored_errors(held_rows(self.caches.layers), layout, LIBRARY, squared)

    def _block(self, ids_S: torch.Tensor) -> Forward:
        self._count_slow(ids_S.shape[0])
        return self._forward(ids_S, logits_rows=ids_S.shape[0])

    def _count_slow(self, rows: int, refusal: str | None = None) -> None:
        """Count a block that runs in a slower way than the engine has: one reason a forward, whatever it is made of."""
        reasons = [reason for reason in (refusal, self.target.family.slow_way(rows)) if reason is not None]
        if reasons:
            self._reasons["; ".join(reasons)] += 1

    @torch.inference_mode()
    def _forward(self, ids_S: torch.Tensor, logits_rows: int) -> Forward:
        family, start, rows = self.target.family, self.length, ids_S.shape[0]
        tables = self._rotary.rows(start, rows)
        self.positions_forwarded += rows
        hidden, outputs = family.forward(ids_S, self.caches, tables, self._reads)
        captured = dict(zip(self._reads, outputs, strict=True))
        if self.latents is not None:
            self.latents.append(start, torch.cat([captured[layer] for layer in self.latents.restorer.capture], dim=-1))
        return Forward(
            logits=family.head(hidden[-logits_rows:]) if logits_rows else None,
            features=torch.cat([captured[layer] for layer in self.capture], dim=-1) if self.capture else None,
            start=start,
            rows=rows,
        )

    @torch.inference_mode()
    def _queue(self, ids_S: torch.Tensor) -> tuple[Forward, torch.Tensor]:
        forward = self._block(ids_S)
        return forward, predictions(forward.logits)
