"""A drafter elsewhere that is away or another target's: decoding goes on plainly, and it is looked for meanwhile.

What it reads of the target is not known before it answers. ``expected`` is what the target's own drafter reads: rows of
these layers are kept meanwhile, so that one that reads them drafts for the answer under way, and one that reads nothing
anyway. Any other drafts from the next answer on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engine.distributed.remote_drafter import RemoteModel
from engine.drafters.local import LocalDrafter
from engine.errors import CacheCropError, EngineError, ObservationError
from engine.protocols import Drafter
from engine.types import Draft, DrafterInfo, Features

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 8.0
MOST_KEPT = 4096
"""Positions whose rows are kept for a drafter that may come; beyond them it drafts from the next answer on."""
Find = Callable[[], RemoteModel]


class AwayModel:
    """A drafter at an address, looked for in a thread of its own until it answers and fits.

    Args:
        address: where it will be.
        why: it cannot draft now.
        find: returns it; raises an `EngineError` while it cannot.
        expected: target layers that the target's own drafter reads, none where there is none.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        address: str,
        why: str,
        find: Find,
        expected: tuple[int, ...] = (),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.why = why
        self.there: RemoteModel | None = None
        self._address, self._expected = address, expected
        self._told: tuple[int, ...] | None = None
        self._find, self._sleep = find, sleep
        threading.Thread(target=self._look, name="kakeya-away-drafter", daemon=True).start()

    @property
    def info(self) -> DrafterInfo:
        """What the drafter says of itself, an address before that."""
        if self.there is not None:
            return self.there.info
        return DrafterInfo(self._address, None, "remote", 0, None)

    @property
    def capture(self) -> tuple[int, ...]:
        """Target layers it reads, or is expected to: the ones that whoever asks keeps rows of, until it asks again."""
        self._told = self._expected if self.there is None else self.there.capture
        return self._told

    def open(self) -> Drafter:
        """Start on an empty sequence: with the drafter where it has come, else in its place.

        One that came since its layers were asked for would miss the rows that it reads.
        """
        there, layers = self.there, self._expected if self._told is None else self._told
        if there is None or (self._told is not None and there.capture and there.capture != layers):
            return AwayDrafter(self, layers)
        return there.open()

    def _look(self) -> None:
        pause_s = FIRST_PAUSE_S
        while self.there is None:
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            try:
                self.there = self._find()
            except EngineError as error:
                self.why = str(error)


class AwayDrafter(LocalDrafter):
    """One sequence that a drafter may come for: what is committed is kept until it does."""

    def __init__(self, model: AwayModel, capture: tuple[int, ...]) -> None:
        self._model, self._capture = model, capture
        self._kept: list[tuple[int, tuple[int, ...], Features]] | None = []
        self._length = 0
        self._inner: Drafter | None = None

    @property
    def forwards(self) -> int:
        """Forwards of the drafter once it is there."""
        return 0 if self._inner is None else self._inner.forwards

    def round_trip_s(self, source: str) -> float | None:
        """Return how far away it is, 0 as long as nobody knows."""
        return 0.0 if self._inner is None else self._inner.round_trip_s(source)

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Keep committed tokens and rows, or hand them on.

        Raises:
            ObservationError: If the positions do not follow those observed so far.
        """
        if self._inner is not None:
            self._inner.observe(start, tokens, features)
            return
        ObservationError.check(start, self._length)
        self._length += len(tokens)
        if self._kept is not None:
            self._kept.append((start, tokens, features))
            if self._length > MOST_KEPT:
                self._kept = None

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Ask the drafter if it has come, else say why it has not."""
        inner, why = self._come()
        return Draft(skipped=why) if inner is None else inner.ask(bonus, position, count, wait_s)

    def ready(self, bonus: int) -> Draft:
        """Return what is left of the draft under way."""
        return super().ready(bonus) if self._inner is None else self._inner.ready(bonus)

    def rewind(self, length: int) -> int:
        """Go back to the first ``length`` positions.

        Raises:
            CacheCropError: If rows before are gone that the drafter needs: it has come, and drafts for a new sequence.
        """
        inner, _ = self._come()
        if inner is not None:
            return inner.rewind(length)
        if self._model.there is not None:
            raise CacheCropError("the remote drafter came too late to be shown the rows before")
        self._length = min(length, self._length)
        if self._kept is not None:
            cut = [(start, min(len(tokens), length - start), tokens, rows) for start, tokens, rows in self._kept]
            self._kept = [
                (start, tokens[:count], None if rows is None else rows[:count])
                for start, count, tokens, rows in cut
                if count > 0
            ]
        return self._length

    def close(self) -> None:
        """Let go of the drafter's session."""
        if self._inner is not None:
            self._inner.close()

    def measured_bytes(self) -> int:
        """Return the bytes of its context, of the rows that are kept for it as long as it is away."""
        if self._inner is not None:
            return self._inner.measured_bytes()
        return sum(int(rows.nbytes) for _, _, rows in self._kept or () if rows is not None)

    def _come(self) -> tuple[Drafter | None, str]:
        """Return the drafter, shown all that was committed, or why it cannot draft here."""
        there = self._model.there
        if self._inner is not None or there is None:
            return self._inner, f"the remote drafter is away: {self._model.why}"
        if self._kept is None or (there.capture and there.capture != self._capture):
            return None, "the remote drafter came too late for this answer, and drafts for the next"
        self._inner = there.open()
        for start, tokens, features in self._kept:
            self._inner.observe(start, tokens, features if there.capture else None)
        self._kept = None
        return self._inner, ""
