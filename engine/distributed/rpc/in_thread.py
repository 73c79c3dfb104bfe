"""A server or a node in a thread of this process, on its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
STOP_S = 60.0
"""How long a server may take to start or to end: on a machine that is busy otherwise some seconds."""


class Served(Protocol):
    """What is started at an address and stopped."""

    async def start(self, address: str) -> str:
        """Serve; return the address with the port that was found for port 0."""
        ...

    async def stop(self) -> None:
        """End it."""
        ...


@contextmanager
def serving(server: Served, address: str = "127.0.0.1:0") -> Iterator[str]:
    """Serve while the block runs; yield the address.

    Raises:
        UsageError: If other machines would reach the address, or it cannot be had.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="kakeya-server", daemon=True)
    thread.start()

    def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(STOP_S)

    try:
        yield run(server.start(address))
    finally:
        run(server.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_S)
        loop.close()
