"""A host's end of rows made again for one sequence elsewhere: what it was shown, and rows of that.

Knows neither streams nor threads, nor what an array is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine.distributed.compatibility import FORMATS
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.restoration_offer import RestorationOffer
from engine.distributed.session import MOST_POSITIONS, NAMES
from engine.distributed.tensors import INVALID, Assembly, Budget
from engine.errors import SessionError
from engine.types import Features

MOST_SHOWN_ROWS = 1 << 13
"""Positions that one message may show."""
MOST_WANTED_ROWS = 1 << 10
"""Positions whose rows one message may ask for."""
MOST_WAITING_BYTES = 1 << 30
MOST_LATENT_BYTES = 1 << 31
"""Of all sequences together, and no longer than they last."""
KEPT_AT_ONCE = 1 << 10
"""Positions for which a sequence takes room at a time."""
_NUMBER_BYTES = 4


class KeptLatents(Protocol):
    """What is kept of the positions of one sequence."""

    def append(self, start: int, features: Any) -> None:
        """Keep positions from ``start`` on: hidden states ``[rows, values]``."""

    def rows(self, layer: int, begin: int, end: int) -> tuple[Any, Any]:
        """Return keys and values of positions [begin, end), each ``[rows, values]``."""


@dataclass(frozen=True, slots=True)
class ServedRestoration:
    """An f_theta as a host offers it.

    Attributes:
        offer: what clients are told.
        open: begins to keep a sequence.
        unpacked: makes features of bytes, a shape and the name of a dtype.
        packed: makes bytes of arrays one after the other, in a dtype.
    """

    offer: RestorationOffer
    open: Callable[[], KeptLatents]
    unpacked: Callable[[bytearray, tuple[int, int], str], Features]
    packed: Callable[[list[Any], str], bytes]

    def check_opened(self, opened: pb.Open) -> str:
        """Return the name of the format of rows that a client agreed on.

        Raises:
            SessionError: FAILED_PRECONDITION if it expects another f_theta or protocol than this one.
        """
        name = NAMES.get(opened.row_format, "")
        if not name or opened.compatibility != self.offer.compatibility(name):
            raise SessionError(
                "FAILED_PRECONDITION",
                f"the client agreed on another f_theta, rows or protocol than {self.offer.name} is served with; "
                "describe it again",
            )
        return name


class RestoringSession:
    """One sequence that rows are made for; messages come in order."""

    def __init__(self, served: ServedRestoration, row_format: str, waiting: Budget, latents: Budget) -> None:
        self._served = served
        self._row_format = row_format
        self._waiting, self._latents = waiting, latents
        self._maker = served.open()
        self._length = self._room = 0
        self._sequence = 0

    def begin(self, shown: pb.Shown) -> Assembly:
        """Check what is shown before any of it is kept; return what its rows come together in.

        Raises:
            SessionError: If it is out of turn, leaves a gap, or is more than there is room for.
        """
        self._in_turn(shown.sequence)
        count = int(shown.rows.rows)
        if not 1 <= count <= MOST_SHOWN_ROWS:
            raise SessionError(INVALID, f"{count} positions shown at once; expected 1 to {MOST_SHOWN_ROWS}")
        if shown.start > self._length or shown.start + count > MOST_POSITIONS:
            raise SessionError(INVALID, f"positions from {shown.start} on; {self._length} were shown before")
        offer, row_format = self._served.offer, FORMATS[self._row_format]
        most_bytes = MOST_SHOWN_ROWS * offer.width * _NUMBER_BYTES
        self._take_room(int(shown.start) + count)
        return Assembly(shown.rows, row_format, count, offer.width, most_bytes, budget=self._waiting)

    def show(self, shown: pb.Shown, rows: Assembly) -> None:
        """Keep what came together."""
        features = self._served.unpacked(rows.buffer, (rows.rows, rows.width), self._row_format)
        self._maker.append(int(shown.start), features)
        self._length = int(shown.start) + rows.rows

    def made(self, ask: pb.Wanted) -> tuple[bytes, int, int]:
        """Make rows; return their bytes, how many positions they are of, and how many values each has.

        Raises:
            SessionError: If they are of positions that were not shown, of layers that are not restored, or too many.
        """
        self._in_turn(ask.sequence)
        layers, settings = list(ask.layers), self._served.offer.settings
        if not layers or layers != sorted(set(layers)) or not set(layers) <= set(settings.layers):
            raise SessionError(
                INVALID, f"rows of layers {layers[:8]}; expected of {sorted(settings.layers)}, ascending"
            )
        begin, end = int(ask.begin), int(ask.end)
        if not begin < end <= self._length:
            raise SessionError(INVALID, f"rows of positions {begin} to {end}; {self._length} were shown")
        if end - begin > MOST_WANTED_ROWS:
            raise SessionError(INVALID, f"rows of {end - begin} positions at once; expected at most {MOST_WANTED_ROWS}")
        parts = [
            self._served.packed([side], self._row_format)
            for layer in layers
            for side in self._maker.rows(layer, begin, end)
        ]
        return b"".join(parts), end - begin, self._served.offer.row_width(layers)

    def _in_turn(self, sequence: int) -> None:
        if sequence <= self._sequence:
            raise SessionError(INVALID, f"message {sequence} after {self._sequence}; expected a later number")
        self._sequence = sequence

    def _take_room(self, positions: int) -> None:
        """Take room for latents to the session's end.

        Raises:
            SessionError: RESOURCE_EXHAUSTED if all sequences together keep too many.
        """
        while self._room < positions:
            self._latents.take(KEPT_AT_ONCE * self._served.offer.settings.kept * _NUMBER_BYTES, self)
            self._room += KEPT_AT_ONCE
