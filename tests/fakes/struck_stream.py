"""A session's stream on which a block arrives other than it was sent: one change for each thing that can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.distributed.compatibility import FORMATS
from engine.distributed.kakeya.v1 import proposer_pb2 as pb

Fault = Callable[[pb.Block], None]


class StruckStream:
    """A stream that applies the faults waiting in ``faults`` to its next blocks with rows, one each."""

    def __init__(self, inner: Any, faults: list[Fault]) -> None:
        self._inner, self._faults = inner, faults

    def send(self, message: Any) -> None:
        if isinstance(message, pb.Block) and message.HasField("rows") and self._faults:
            changed = pb.Block.FromString(message.SerializeToString())
            self._faults.pop()(changed)
            message = changed
        self._inner.send(message)

    def close(self, message: pb.Close | None) -> None:
        self._inner.close(message)


def wrong_checksum(block: pb.Block) -> None:
    block.rows.crc32 ^= 1


def wrong_dtype(block: pb.Block) -> None:
    block.rows.format = FORMATS["float16"]


def wrong_shape(block: pb.Block) -> None:
    block.rows.width += 1


def wrong_size(block: pb.Block) -> None:
    block.rows.total_bytes += 4


def truncated(block: pb.Block) -> None:
    block.rows.data = block.rows.data[:-1]


def too_much(block: pb.Block) -> None:
    block.rows.data += b"\0"


def unknown_session(block: pb.Block) -> None:
    block.session = "0" * 32


def another_text(block: pb.Block) -> None:
    block.ask.token_hash = bytes(16)


FAULTS = (
    *(wrong_checksum, wrong_dtype, wrong_shape, wrong_size),
    *(truncated, too_much, unknown_session, another_text),
)
