"""A sequence whose blocks are replayed from recordings; prefill and whatever no slot holds runs as it does without.

Rows move into a slot before the first block and back out for a prefill, a block that is too long, or a slot that cannot
be had. Every forward that ran without a recording is counted with its reason.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch

from engine.backends.torch.caches import Held, LayerCaches
from engine.backends.torch.graphs.slots import NoSlot, Slot, Slots
from engine.backends.torch.models.decoder import Weights
from engine.backends.torch.models.sequence import TorchSequence
from engine.restoration.elsewhere import ElsewhereRestorer
from engine.restoration.restorers import Restorer
from engine.structure.layout import CacheLayout
from engine.types import Forward, StoredError


class GraphedSequence(TorchSequence):
    """A sequence that borrows a slot while it decodes and gives it back when it is gone."""

    def __init__(
        self,
        target: Weights,
        capture: tuple[int, ...],
        layout: CacheLayout,
        slots: Slots,
        restorer: Restorer | ElsewhereRestorer | None = None,
    ) -> None:
        super().__init__(target, capture, layout, restorer)
        self._slots = slots
        self._slot: Slot | None = None
        self._inside = False
        self._give_back: weakref.finalize | None = None
        self._expected: int | None = None
        self._end: int | None = None

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return super().length if self._static is None else self._static.length

    def expect(self, new_tokens: int) -> None:
        """Take how many tokens may follow the prompt: a slot is made with room for them."""
        self._expected = new_tokens

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        """Forward the prompt chunk by chunk, then have everything recorded: that time belongs to no token.

        Raises:
            PromptError: If the prompt is empty, too long for the model or holds ids outside the vocabulary.
        """
        self._leave()
        yield from super().prefill(ids, chunk)
        self._end = None if self._expected is None else self.length + self._expected
        self._reserve(may_record=True)

    def crop(self, length: int) -> None:
        """Crop every cache.

        Raises:
            CacheCropError: If rows needed to be exact are gone.
        """
        if self._static is None:
            super().crop(length)
        else:
            self._static.crop(length)

    def rewind(self, length: int) -> None:
        """Go back to an earlier length, outside of a recording's fixed rows."""
        self._leave()
        super().rewind(length)

    def measured_bytes(self) -> int:
        """Return the bytes of every cache buffer, of the whole slot once rows are in it."""
        return super().measured_bytes() if self._static is None else self._static.measured_bytes()

    def stored_errors(self, layout: CacheLayout) -> tuple[StoredError, ...]:
        """Return what storing every row held now in ``layout`` would change, by layer and side.

        Raises:
            UsageError: If the sequence does not keep every row.
        """
        self._leave()
        return super().stored_errors(layout)

    @property
    def _static(self) -> Slot | None:
        return self._slot if self._inside else None

    def _block(self, ids_S: torch.Tensor) -> Forward:
        rows = ids_S.shape[0]
        refusal = self._too_long(rows) or self._reserve(may_record=False)
        if refusal is not None or self._slot is None:
            self._count_slow(rows, refusal or "no slot")
            self._leave()
            return self._forward(ids_S, logits_rows=rows)
        if not self._inside:
            self._slot.load(self._held(), self.length)
            self._inside = True
            self.caches = self._empty()
        start = self._slot.length
        self._count_slow(rows)
        self.positions_forwarded += rows
        logits, features = self._slot.forward(ids_S)
        return Forward(logits=logits, features=features, start=start, rows=rows)

    def _too_long(self, rows: int) -> str | None:
        most = self._slots.block_rows
        return f"a block of {rows} rows; graphs are recorded up to {most}" if rows > most else None

    def _reserve(self, *, may_record: bool) -> str | None:
        """Hold a slot with room for one more block; return why there is none.

        Within an answer none is recorded, which would take longer than the rest of it: only one that is there is taken.
        """
        if self.target.family.structure.recurrent and self.layout.every_row:
            return "recurrent states that go back over several blocks are not kept at fixed addresses"
        if self.layout.bits is not None or self.layout.window is not None:
            return f"cache layout {self.layout} is not kept at fixed addresses"
        length = self.length
        if length == 0:
            return "nothing is cached yet"
        if self._slot is not None and length + self._slots.block_rows <= self._slot.capacity:
            return None
        self._leave()
        left = None if self._end is None else max(0, self._end - length)
        capacity = self._slots.capacity_for(length, self.target.info.max_positions, left)
        key = self.capture, self.layout, capacity
        found = self._slots.take(self.target.family, key, self._held(), may_record=may_record)
        if isinstance(found, NoSlot):
            return found.reason
        self._slot, self._give_back = found, weakref.finalize(self, found.release)
        self._give_back.atexit = False
        return None

    def _leave(self) -> None:
        """Move the rows back into growing caches and give the slot back."""
        if self._static is not None:
            static = self._static
            self.caches = self._empty()
            self.caches.resume(static.held(), static.floor)
            self._inside = False
        self._release()

    def _release(self) -> None:
        if self._give_back is not None:
            self._give_back()
        self._slot, self._give_back = None, None

    @torch.inference_mode()
    def _held(self) -> Held:
        return self.caches.held() if self._static is None else self._static.held()

    def _empty(self) -> LayerCaches:
        return self.target.family.caches(self.layout)
