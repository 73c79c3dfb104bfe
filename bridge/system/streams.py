"""Feed one stream and drain others at the same time, bounded in bytes and in time.

Knows no process: the caller says whether the other side has ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Final

from bridge.system.clock import SystemClock

_DRAIN_S: Final = 1.0  # how long a grandchild may hold the pipes open after its parent's end
_READ_BYTES: Final = 65536
_CLOCK: Final = SystemClock()


@dataclass(frozen=True)
class Exchanged:
    """The outcome of an exchange.

    Attributes:
        outputs: the first bytes of each drained stream, up to the bound.
        timed_out: whether the time was up before the other side had ended.
        truncated: whether bytes beyond the bound were thrown away.
    """

    outputs: tuple[bytes, ...]
    timed_out: bool
    truncated: bool


def exchange(
    feed: IO[bytes] | None,
    drain: Sequence[IO[bytes]],
    data: bytes | None,
    *,
    has_ended: Callable[[], bool],
    deadline_s: float,
    max_bytes: int,
) -> Exchanged:
    """Feed and drain until every drained stream is at its end, the time is up, or a second after the other side's end.

    Args:
        feed: takes the data and is closed then; None for nothing.
        drain: streams that are read.
        data: what is fed.
        has_ended: whether the other side has ended.
        deadline_s: steady time at which nothing more is waited for.
        max_bytes: how much of each stream is kept; the rest is read and thrown away.
    """
    blocks: dict[IO[bytes], bytearray] = {stream: bytearray() for stream in drain}
    pending = memoryview(data or b"")
    truncated = timed_out = False
    ended: float | None = None
    with selectors.DefaultSelector() as selector:
        for stream in blocks:
            selector.register(stream, selectors.EVENT_READ)
        if feed is not None:
            os.set_blocking(feed.fileno(), False)
            selector.register(feed, selectors.EVENT_WRITE)
        while any(stream in selector.get_map() for stream in blocks):
            now = _CLOCK.steady_s()
            if ended is None and has_ended():
                ended = now
            if (ended is None and now >= deadline_s) or (ended is not None and now >= ended + _DRAIN_S):
                timed_out = ended is None
                break
            for key, _events in selector.select(min(0.1, max(0.0, deadline_s - now))):
                if key.fileobj is feed and feed is not None:
                    pending = _feed(selector, feed, pending)
                else:
                    truncated |= _collect(selector, key.fileobj, blocks, max_bytes)  # type: ignore[arg-type]
    return Exchanged(tuple(bytes(block) for block in blocks.values()), timed_out, truncated)


def _feed(selector: selectors.BaseSelector, stream: IO[bytes], pending: memoryview) -> memoryview:
    """Write what fits; close the stream at the end or when the reader has gone."""
    try:
        written = os.write(stream.fileno(), pending[:_READ_BYTES])
    except BlockingIOError:
        return pending
    except BrokenPipeError:
        written = len(pending)
    if written == len(pending):
        selector.unregister(stream)
        with contextlib.suppress(BrokenPipeError):
            stream.close()
    return pending[written:]


def _collect(
    selector: selectors.BaseSelector, stream: IO[bytes], blocks: dict[IO[bytes], bytearray], bound: int
) -> bool:
    """Read once; return whether bytes beyond the bound were thrown away."""
    block = os.read(stream.fileno(), _READ_BYTES)
    if not block:
        selector.unregister(stream)
        return False
    room = max(0, bound - len(blocks[stream]))
    blocks[stream] += block[:room]
    return len(block) > room
