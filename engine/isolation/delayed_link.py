"""A link with a round-trip time, between two ports of this machine: each way keeps its order and takes half of it.

A program of its own, so that it takes no time from either end: ``python -m engine.isolation.delayed_link TARGET MS``
prints the port it listens at and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
import time

from engine.isolation.children import ServingChild

READ_BYTES = 1 << 18
UNIX = "unix:"


class DelayedLink(ServingChild):
    """The proxy as a process in front of an address ``127.0.0.1:PORT``, ``[::1]:PORT`` or ``unix:/PATH``."""

    def __init__(self, address: str, round_trip_ms: float) -> None:
        super().__init__("the delayed link", "engine.isolation.delayed_link", [address, f"{round_trip_ms:g}"])
        self.address = f"127.0.0.1:{int(self.first_line)}"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one_way_s: float) -> None:
    """Pass on what comes, each piece ``one_way_s`` after it came."""
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due_s, data = await pieces.get()
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            if not data:
                writer.close()
                return
            writer.write(data)

    delivering = asyncio.create_task(deliver())
    try:
        while data := await reader.read(READ_BYTES):
            pieces.put_nowait((time.perf_counter() + one_way_s, data))
    except ConnectionError:
        writer.close()
    pieces.put_nowait((0.0, b""))
    await delivering


async def _connection(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to what the link leads to."""
    if target.startswith(UNIX):
        return await asyncio.open_unix_connection(target.removeprefix(UNIX))
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host.removeprefix("[").removesuffix("]"), int(port))


async def _serve(target: str, one_way_s: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await _connection(target)
            pumps = _pump(reader, back, one_way_s), _pump(there, writer, one_way_s)
            await asyncio.gather(*pumps, return_exceptions=True)
        except asyncio.CancelledError:
            pass  # the program ends: asyncio would print the traceback of each connection
        except OSError:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Serve until standard input ends."""
    target, round_trip_ms = sys.argv[1:3]
    asyncio.run(_serve(target, float(round_trip_ms) / 2e3))


if __name__ == "__main__":
    main()
