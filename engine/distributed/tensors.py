"""Rows of hidden states on the wire: cut into chunks here, checked and put together there.

Knows bytes only. A receiver believes nothing before it has checked it, and reserves memory only for a size that it
would have expected.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Iterator

from engine.distributed.compatibility import row_bytes
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.errors import SessionError

CHUNK_BYTES = 1 << 20
"""Of a message: one this large moves a tensor several times faster than a single large one."""
INVALID = "INVALID_ARGUMENT"


def described(data: bytes, row_format: pb.RowFormat, rows: int, width: int) -> pb.Rows:
    """Return the head of rows with their first bytes."""
    return pb.Rows(
        format=row_format,
        rows=rows,
        width=width,
        total_bytes=len(data),
        crc32=zlib.crc32(data),
        data=data[:CHUNK_BYTES],
    )


def chunks(data: bytes, sequence: int) -> Iterator[pb.Chunk]:
    """Yield what of the data did not fit into its head."""
    for offset in range(CHUNK_BYTES, len(data), CHUNK_BYTES):
        yield pb.Chunk(sequence=sequence, offset=offset, data=data[offset : offset + CHUNK_BYTES])


class Budget:
    """How much of something all sessions of a server may hold together: ``what`` names it where it runs out."""

    def __init__(self, most: int, what: str) -> None:
        self.most = most
        self.taken = 0
        self._what = what
        # Re-entrant: a collection may come in the middle of a change, in this very thread, and give some back.
        self._changing = threading.RLock()

    def take(self, size: int, holder: object) -> None:
        """Take ``size`` of it for as long as ``holder`` lives.

        Raises:
            SessionError: RESOURCE_EXHAUSTED if there is not as much left.
        """
        with self._changing:
            if self.taken + size > self.most:
                raise SessionError(
                    "RESOURCE_EXHAUSTED",
                    f"{size} {self._what} beside {self.taken} in all sessions, which hold at most {self.most}. Try "
                    "again later",
                )
            self.taken += size
        weakref.finalize(holder, self._give, size)

    def _give(self, size: int) -> None:
        with self._changing:
            self.taken -= size


class Assembly:
    """The rows of one block, put together in a buffer of the size declared; ``tokens`` of them, ``width`` numbers each.

    Raises:
        SessionError: INVALID_ARGUMENT if they are not the rows this session exchanges, RESOURCE_EXHAUSTED if they are
            more than ``most_bytes``, or than ``budget`` has left.
    """

    def __init__(
        self,
        head: pb.Rows,
        row_format: pb.RowFormat,
        tokens: int,
        width: int,
        most_bytes: int,
        *,
        budget: Budget | None = None,
    ) -> None:
        names = pb.RowFormat.Name(row_format)
        if head.format != row_format:
            raise SessionError(INVALID, f"rows of format {head.format}; expected {names}, as the session was opened")
        if (head.rows, head.width) != (tokens, width):
            raise SessionError(
                INVALID, f"{head.rows} rows of {head.width} numbers; expected {tokens} of {width}: one for each token"
            )
        size = tokens * row_bytes(row_format, width)
        if head.total_bytes != size:
            raise SessionError(INVALID, f"rows of {head.total_bytes} bytes; {tokens} of {width} numbers take {size}")
        if size > most_bytes:
            raise SessionError(
                "RESOURCE_EXHAUSTED", f"{size} bytes of rows in one block; at most {most_bytes} are taken. Send fewer."
            )
        if budget is not None:
            budget.take(size, self)
        self.rows, self.width = tokens, width
        self._crc32 = head.crc32
        self.buffer = bytearray(size)
        self._filled = 0
        self.add(0, head.data)

    @property
    def complete(self) -> bool:
        """Whether every byte has come."""
        return self._filled == len(self.buffer)

    def add(self, offset: int, data: bytes) -> None:
        """Take the bytes that follow: as many as fit into a message, or all that are left.

        Fewer are refused at once: whoever waited for the rest would wait until its client gives up.

        Raises:
            SessionError: INVALID_ARGUMENT if they leave a gap, come twice, are too many or too few, or all together are
                not those whose checksum was sent.
        """
        end = offset + len(data)
        due = min(CHUNK_BYTES, len(self.buffer) - self._filled)
        if offset != self._filled or len(data) != due:
            raise SessionError(
                INVALID,
                f"bytes {offset} to {end} of {len(self.buffer)}; expected {due} from {self._filled} on",
            )
        self.buffer[offset:end] = data
        self._filled = end
        if self.complete and zlib.crc32(self.buffer) != self._crc32:
            raise SessionError(INVALID, "the checksum of the rows is another than was sent; send the block again")
