"""A TCP proxy on loopback that can be told to fail: cut, reset, or go on accepting and pass nothing on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class FaultProxy:
    """Passes bytes both ways until it is told otherwise; new connections are passed on again unless it is ``deaf``."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self.deaf = False
        self.address = ""
        self._passing: asyncio.Event
        self._server: asyncio.Server

    async def start(self) -> None:
        self._passing = asyncio.Event()
        self._passing.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.deaf:
            writer.close()
            return
        host, _, port = self._target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, back}
        with contextlib.suppress(asyncio.CancelledError):  # the proxy ends: asyncio would print each connection
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await reader.read(1 << 16):
                await self._passing.wait()
                writer.write(data)
        writer.close()

    def tell(self, fault: str) -> None:
        """Cut or reset every connection, or pass nothing on (``half-open``) until told to ``pass``."""
        done = threading.Event()

        def act() -> None:
            if fault == "half-open":
                self._passing.clear()
            elif fault == "pass":
                self._passing.set()
            else:
                for writer in self._writers:
                    connection = writer.get_extra_info("socket")
                    if fault == "reset" and connection is not None and connection.fileno() >= 0:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
                self._writers.clear()
            done.set()

        self._loop.call_soon_threadsafe(act)
        done.wait()


@contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """Yield a proxy in front of an address."""
    proxy = FaultProxy(target)
    thread = threading.Thread(target=proxy._loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(proxy.start(), proxy._loop).result()
    try:
        yield proxy
    finally:
        proxy.tell("pass")
        proxy.tell("cut")

        async def drain() -> None:
            proxy._server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(drain(), proxy._loop).result()
        proxy._loop.call_soon_threadsafe(proxy._loop.stop)
        thread.join()
        proxy._loop.close()
