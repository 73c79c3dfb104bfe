"""Slots: static caches with a forward recorded once per block length and replayed at every position.

Any replay overwrites the outputs of all others, so whatever leaves is cloned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from engine.backends.torch.caches import Held
from engine.backends.torch.graphs.recording import NotRecordableError, Outputs, Recorder, Run
from engine.backends.torch.graphs.static import StaticCaches
from engine.backends.torch.models.decoder import Decoder
from engine.structure.layout import CacheLayout

HEADROOM_ROWS = 512
"""Positions beyond the prompt that a new slot has at least where nobody says how long the answer may be."""
LARGEST_HEADROOM_ROWS = 8192
"""And at most: what lies beyond is decoded without recordings, for slots hold memory as long as their target."""
SMALLEST_ROWS = 1024
"""The smallest slot's positions; larger ones double, so that few sizes are recorded."""


class Slot(StaticCaches):
    """Static caches with the recordings made on them, lent to one sequence at a time."""

    def __init__(
        self, family: Decoder, capture: tuple[int, ...], caches: tuple[Held, int, int], recorder: Recorder
    ) -> None:
        like, capacity, block_rows = caches
        super().__init__(like.rows, capacity, block_rows, family.fixed_states(like.states, block_rows))
        self.busy = False
        self.recorded = 0
        self._family, self._capture, self._recorder = family, capture, recorder
        self._ids = torch.zeros(self.block_rows, dtype=torch.int64, device=self._steps.device)
        self._replays: dict[int, Run] = {}
        self._replay_back: Run | None = None

    @torch.inference_mode()
    def record(self) -> None:
        """Record every block length that is not recorded yet, and how states are taken back.

        Raises:
            NotRecordableError: If the model's forward cannot be recorded.
        """
        if self.states and self._replay_back is None:
            self._replay_back = self._recorder.record(self._back)
        for rows in range(1, self.block_rows + 1):
            if rows not in self._replays:
                self._replays[rows] = self._recorder.record(partial(self._run, rows))
                self.recorded += 1

    @torch.inference_mode()
    def forward(self, ids_S: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Append ``S`` rows; return logits ``[S, V]`` and captured states ``[S, K * D]``, None without a capture."""
        rows = ids_S.shape[0]
        self.stand_at(rows)
        self._ids[:rows].copy_(ids_S)
        outputs = [output.clone() for output in self._replays[rows]()]
        return outputs[0], outputs[1] if self._capture else None

    def take_back(self) -> None:
        """Take every state back as recorded."""
        if self._replay_back is None:
            super().take_back()
        else:
            self._replay_back()

    def release(self) -> None:
        """Let another sequence have it."""
        self.busy = False

    def _back(self) -> Outputs:
        super().take_back()
        return ()

    def _run(self, rows: int) -> Outputs:
        positions = self.begin(rows)
        tables = self._family.rotary(positions[None])
        hidden, captured = self._family.forward(self._ids[:rows], self, tables, self._capture)
        logits = self._family.head(hidden)
        return (logits, torch.cat(captured, dim=-1)) if captured else (logits,)


@dataclass(frozen=True, slots=True)
class NoSlot:
    """Why a sequence gets no slot."""

    reason: str


class Slots:
    """The slots of one target: one for each capture, layout and capacity.

    ``refused`` is why the target's forward cannot be recorded, None as long as it can.
    """

    def __init__(
        self,
        recorder: Callable[[], Recorder],
        block_rows: int,
        smallest: int = SMALLEST_ROWS,
        room: int = HEADROOM_ROWS,
    ) -> None:
        self.block_rows = block_rows
        self._smallest, self._room = smallest, room
        self.refused: str | None = None
        self._recorder = recorder
        self.lent: dict[tuple[tuple[int, ...], CacheLayout, int], Slot] = {}
        """By capture, layout and capacity."""
        self._missing: dict[tuple[tuple[int, ...], CacheLayout, int], str] = {}
        """Why there is none of those that could not be made when they were last asked for."""
        self._lock = threading.Lock()

    def capacity_for(self, length: int, most: int, new_tokens: int | None = None) -> int:
        """Return how many positions a slot for ``length`` and what follows holds: few sizes, none beyond ``most``.

        Args:
            length: Positions that are cached.
            most: Positions of the model.
            new_tokens: How many may follow, None where nobody said.
        """
        room = self._room if new_tokens is None else min(new_tokens, LARGEST_HEADROOM_ROWS)
        capacity = self._smallest
        while capacity < length + room + self.block_rows:
            capacity *= 2
        return max(min(capacity, most + self.block_rows), length + self.block_rows)

    def take(
        self,
        family: Decoder,
        key: tuple[tuple[int, ...], CacheLayout, int],
        like: Held,
        *,
        may_record: bool = True,
    ) -> Slot | NoSlot:
        """Return a free slot with everything recorded, or why there is none; made and recorded where that may be."""
        capture, _, capacity = key
        with self._lock:
            if self.refused is not None:
                return NoSlot(self.refused)
            slot = self.lent.get(key)
            if not may_record and (slot is None or not (slot.busy or slot.recorded == self.block_rows)):
                unrecorded = f"no slot of {capacity} positions was recorded before the answer"
                return NoSlot(self._missing.get(key, unrecorded))
            if slot is None:
                self._let_go(key)
                try:
                    with torch.inference_mode():
                        slot = Slot(family, capture, (like, capacity, self.block_rows), self._recorder())
                except torch.OutOfMemoryError:
                    self._missing[key] = f"no memory for static caches of {capacity} positions"
                    return NoSlot(self._missing[key])
                self.lent[key] = slot
                self._missing.pop(key, None)
            if slot.busy:
                return NoSlot("another sequence holds the static caches")
            slot.busy = True
        try:
            slot.record()
        except NotRecordableError as error:
            self.refused = f"the forward cannot be recorded: {error}"
            self.lent.clear()
            return NoSlot(self.refused)
        return slot

    def _let_go(self, key: tuple[tuple[int, ...], CacheLayout, int]) -> None:
        """Drop the idle slots of the same capture and layout that a larger one makes needless."""
        for other, slot in list(self.lent.items()):
            if other[:2] == key[:2] and other[2] < key[2] and not slot.busy:
                del self.lent[other]
