"""The end of standard input, which a server that was started over a pipe ends with."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress

_INPUT = 0
_READ_BYTES = 1 << 16


async def input_ends() -> None:
    """Return once standard input has ended; what is written there is dropped.

    Nobody waits for the thread that reads: one of asyncio's own would keep a server that is interrupted until its input
    ends, too.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        # By its descriptor: a thread that holds the lock of `sys.stdin` aborts Python at its end.
        with suppress(OSError):
            while os.read(_INPUT, _READ_BYTES):
                pass
        with suppress(RuntimeError):  # the loop is closed, since the server was interrupted before
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, name="kakeya-input", daemon=True).start()
    await ended.wait()
