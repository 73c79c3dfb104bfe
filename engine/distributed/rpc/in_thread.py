"""A drafter's server in a thread of this process, on its own event loop: for tests and for trying the protocol."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from engine.distributed.rpc.server import DrafterServer

Result = TypeVar("Result")
STOP_S = 10.0


@contextmanager
def serving(server: DrafterServer, address: str = "127.0.0.1:0") -> Iterator[str]:
    """Serve while the block runs; yield the address.

    Raises:
        UsageError: If other machines would reach the address, or it cannot be had.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="kakeya-drafter-server", daemon=True)
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
