"""A target's end of rows made again elsewhere: it shows hidden states, and waits for the rows that it asks for.

Knows bytes only. An answer is handed over whole or not at all: a host that goes, lies or is silent ends the sequence
with one error, and every later call repeats that. Nothing stands in for rows that do not come, as they are part of what
the target says.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from engine.distributed.compatibility import FORMATS
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.replies import printable
from engine.distributed.restoration_offer import RestorationOffer
from engine.distributed.restoring import MOST_SHOWN_ROWS, MOST_WANTED_ROWS
from engine.distributed.stream import Connect, DraftStream, Listener, Message, Reply
from engine.distributed.tensors import CHUNK_BYTES, Assembly, chunks, described
from engine.errors import EngineError, SessionError

Heard = TypeVar("Heard")
PATIENCE_S = 60.0
"""How long a host may be silent with rows that were asked for, once all that was shown before has left."""
LEAST_BYTES, SPARE_BYTES = 64, 1024
"""What a message counts for at least, and what is said beside the bytes of its rows at most."""
UNASKED = "it said more than it was asked"


@dataclass(slots=True)
class RestoreTraffic:
    """What rows cost that were made elsewhere.

    Attributes:
        sent: bytes of hidden states and what tells of them.
        received: bytes of rows and what tells of them.
        positions: rows that came, each counted once a layer.
        asks: how often was waited.
        waited_s: seconds of that.
    """

    sent: int = 0
    received: int = 0
    positions: int = 0
    asks: int = 0
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Ended:
    status: str
    message: str


@dataclass(frozen=True, slots=True)
class RemoteRestoration:
    """An f_theta served at an address.

    Attributes:
        offer: what its host says of it.
        address: where it is asked.
        connect: opens a stream to it.
        patience_s: how long it may be silent with an ask.
        traffic: what all sequences together cost.
    """

    offer: RestorationOffer
    address: str
    connect: Connect
    patience_s: float = PATIENCE_S
    traffic: RestoreTraffic = field(default_factory=RestoreTraffic)

    def open(self, row_format: str) -> RemoteRows:
        """Begin a sequence whose rows are sent in a dtype.

        Raises:
            SessionError: If the host is away, or refuses.
        """
        return RemoteRows(self, row_format)


class RemoteRows:
    """One sequence that a host makes rows for."""

    def __init__(self, served: RemoteRestoration, row_format: str) -> None:
        self._served = served
        self._row_format = row_format
        self._heard: queue.SimpleQueue[Reply | _Ended] = queue.SimpleQueue()
        self._counting = threading.Lock()
        self._due_bytes = SPARE_BYTES
        """What may still come: whoever sends more than was asked for fills no memory here."""
        self._sequence = 0
        self._left = 0
        """Messages that have gone into the connection."""
        self._error: SessionError | None = None
        self._line: DraftStream | None = None
        self._line = served.connect(Listener(self._hear, lambda *why: self._heard.put(_Ended(*why)), self._leave))
        agreed = served.offer.compatibility(row_format)
        self._tell(pb.Open(compatibility=agreed, row_format=FORMATS[row_format]))
        self._guarded(self._begun)

    def show(self, start: int, count: int, data: bytes) -> None:
        """Send hidden states of ``count`` positions from ``start`` on; never waits.

        Raises:
            SessionError: If the stream has ended.
        """
        self._check()
        row = len(data) // count
        for first in range(0, count, MOST_SHOWN_ROWS):
            rows = min(MOST_SHOWN_ROWS, count - first)
            part = data[first * row : (first + rows) * row]
            self._sequence += 1
            width = self._served.offer.width
            head = described(part, FORMATS[self._row_format], rows, width)
            self._tell(pb.Shown(sequence=self._sequence, start=start + first, rows=head))
            for chunk in chunks(part, self._sequence):
                self._tell(chunk)

    def rows(self, layers: Sequence[int], begin: int, end: int) -> list[tuple[int, bytearray]]:
        """Return the rows of positions [begin, end) on layers: for each run of positions its length and its bytes.

        Raises:
            SessionError: If they do not come, or are not those that were asked for.
        """
        self._check()
        asks = []
        for first in range(begin, end, MOST_WANTED_ROWS):
            self._sequence += 1
            run = (self._sequence, first, min(end, first + MOST_WANTED_ROWS))
            self._expect((run[2] - first) * self._served.offer.row_width(layers) * 4)
            self._tell(pb.Wanted(sequence=run[0], layers=layers, begin=run[1], end=run[2]))
            asks.append(run)
        began_s = time.perf_counter()
        runs = self._guarded(
            lambda: [(stop - start, self._made(layers, number, stop - start)) for number, start, stop in asks]
        )
        traffic = self._served.traffic
        traffic.waited_s += time.perf_counter() - began_s
        traffic.asks += 1
        traffic.positions += (end - begin) * len(layers)
        return runs

    def close(self) -> None:
        """End the stream; later calls are refused."""
        if self._error is None:
            self._error = SessionError("CANCELLED", "rows of a sequence that was closed; open another")
            self._end(pb.Close())

    def _expect(self, size: int) -> None:
        """Let so many bytes of rows come."""
        with self._counting:
            self._due_bytes += size + (2 + size // CHUNK_BYTES) * SPARE_BYTES

    def _hear(self, reply: Reply) -> None:
        """Take a reply, in the thread of the stream; what nobody asked for ends it and is let go."""
        with self._counting:
            was_due, self._due_bytes = self._due_bytes, self._due_bytes - max(reply.ByteSize(), LEAST_BYTES)
        if self._due_bytes >= 0:
            self._heard.put(reply)
        elif was_due >= 0:
            self._heard.put(_Ended("INVALID_ARGUMENT", UNASKED))
            self._end(None)

    def _leave(self) -> None:
        """Count a message that has left, in the thread that sends them."""
        self._left += 1

    def _end(self, message: pb.Close | None) -> None:
        if self._line is not None:
            self._line.close(message)

    def _begun(self) -> None:
        if not isinstance(self._next(), pb.Opened):
            raise SessionError("INVALID_ARGUMENT", "it said something else before the sequence was opened")

    def _made(self, layers: Sequence[int], number: int, count: int) -> bytearray:
        made = self._next()
        if not isinstance(made, pb.Made) or made.sequence != number:
            raise SessionError("INVALID_ARGUMENT", f"it said something else than rows, which ask {number} is for")
        width = self._served.offer.row_width(layers)
        most_bytes = count * width * 4
        rows = Assembly(made.rows, FORMATS[self._row_format], count, width, most_bytes)
        while not rows.complete:
            chunk = self._next()
            if not isinstance(chunk, pb.Chunk) or chunk.sequence != number:
                raise SessionError(
                    "INVALID_ARGUMENT", f"it said something else before the rows of ask {number} were whole"
                )
            rows.add(chunk.offset, chunk.data)
        return rows.buffer

    def _next(self) -> Reply:
        """Return the next reply; what is shown takes its time over a slow link, and is no silence of the host's."""
        while True:
            left = self._left
            try:
                heard = self._heard.get(timeout=self._served.patience_s)
                break
            except queue.Empty:
                if self._left == left:
                    raise SessionError(
                        "DEADLINE_EXCEEDED", f"it was silent for {self._served.patience_s:g} s"
                    ) from None
        if isinstance(heard, _Ended):
            raise SessionError(heard.status, f"the stream ended: {heard.status}: {printable(heard.message)}")
        self._served.traffic.received += heard.ByteSize()
        return heard

    def _check(self) -> None:
        """Raise what ended the sequence, or ends it now, if the stream did."""
        if self._error is not None:
            raise self._error
        if not self._heard.empty():
            self._guarded(self._unasked)

    def _unasked(self) -> None:
        self._next()
        raise SessionError("INVALID_ARGUMENT", UNASKED)

    def _guarded(self, listen: Callable[[], Heard]) -> Heard:
        """Return what listening gives; whatever it trips over ends the sequence.

        Raises:
            SessionError: In the words of every such error: where, what, and what to do.
        """
        try:
            return listen()
        except EngineError as error:
            status = error.status if isinstance(error, SessionError) else "INTERNAL"
            self._error = SessionError(
                status,
                f"rows made again at {self._served.address} did not come: {error}. Nothing of them was used; see to "
                "the host of the f_theta and begin again, or take a --cache without @remote",
            )
            self._end(None)
            raise self._error from error

    def _tell(self, message: Message) -> None:
        self._served.traffic.sent += message.ByteSize()
        if self._line is not None:
            self._line.send(message)
