"""The server's end: sessions over streams, drafts in a worker thread, health beside them.

The event loop only passes messages: whatever computes runs in one thread, as one device computes one thing at a time,
so that a probe of the server's health never waits for a draft.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.loopback import check_loopback, check_unserved
from engine.distributed.restoring import ServedRestoration
from engine.distributed.rpc.methods import MESSAGE_BYTES, RESTORATION, DraftingService
from engine.distributed.rpc.restoring import RestorationHandlers
from engine.distributed.session import DraftSession, Served
from engine.distributed.sessions import LEASE_S, MOST_SESSIONS, SessionTable
from engine.distributed.tensors import Assembly
from engine.errors import EngineError, SessionError, UsageError

OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # Two servers that share a port would take turns: a client's second stream would meet another table of sessions.
    ("grpc.so_reuseport", 0),
]
MOST_WAITING_BLOCKS = 4
"""Blocks of one session that may wait for their turn; a client that sends more is read no further meanwhile."""
GRACE_S = 1.0


class DrafterServer:
    """Serves drafters by service on one address of this machine, and rows made again beside them."""

    def __init__(
        self,
        served: Mapping[DraftingService, Served],
        lease_s: float = LEASE_S,
        most_sessions: int = MOST_SESSIONS,
        *,
        restoration: ServedRestoration | None = None,
    ) -> None:
        self.tables = {
            service: SessionTable(each, time.monotonic, lease_s, most_sessions) for service, each in served.items()
        }
        self._lease_s = lease_s
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kakeya-drafting")
        self._restoring: RestorationHandlers | None = None
        if restoration is not None:
            self._restoring = RestorationHandlers(restoration, self._worker, lease_s, most_sessions)
        self._server: grpc.aio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self, address: str) -> str:
        """Listen; return the address with the port that was found for port 0.

        Raises:
            UsageError: If other machines would reach the address, or it cannot be had.
        """
        checked = check_loopback(address, "serving a drafter at")
        check_unserved(checked)
        server = grpc.aio.server(options=OPTIONS)
        beside = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(beside, server)
        for service, table in self.tables.items():
            server.add_generic_rpc_handlers((self._handlers(service, table),))
            await beside.set(service.name, health_pb2.HealthCheckResponse.SERVING)
        if self._restoring is not None:
            server.add_generic_rpc_handlers((self._restoring.generic(),))
            await beside.set(RESTORATION.name, health_pb2.HealthCheckResponse.SERVING)
        try:
            port = server.add_insecure_port(checked)
        except RuntimeError as error:
            raise UsageError(f"cannot listen at {checked}: {error}; name another address, or port 0 for any") from error
        await server.start()
        self._server = server
        self._sweeping = asyncio.create_task(self._sweep())
        return checked if checked.startswith("unix:") else f"{checked.rpartition(':')[0]}:{port}"

    async def stop(self) -> None:
        """End every stream, then the worker."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._server is not None:
            await self._server.stop(GRACE_S)
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def wait(self) -> None:
        """Serve until stopped."""
        if self._server is not None:
            await self._server.wait_for_termination()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 6)
            for table in self.tables.values():
                table.sweep()

    def _handlers(self, service: DraftingService, table: SessionTable) -> grpc.GenericRpcHandler:
        async def describe(_request: Any, _context: Any) -> Any:
            return service.described(drafter=table.served.offer.message())

        async def stream(requests: AsyncIterator[Any], context: Any) -> None:
            await _Stream(service, table, self._worker).run(requests, context)

        return grpc.method_handlers_generic_handler(
            service.name,
            {
                service.describe: grpc.unary_unary_rpc_method_handler(
                    describe, service.describe_request.FromString, service.described.SerializeToString
                ),
                service.stream: grpc.stream_stream_rpc_method_handler(
                    stream, service.request.FromString, service.response.SerializeToString
                ),
            },
        )


class _Stream:
    """One stream: a task reads messages and checks them, another has blocks computed in turn."""

    def __init__(self, service: DraftingService, table: SessionTable, worker: ThreadPoolExecutor) -> None:
        self._service = service
        self._table = table
        self._worker = worker
        self._session: DraftSession | None = None
        self._rows: tuple[Any, Assembly] | None = None
        self._blocks: asyncio.Queue[tuple[Any, Assembly | None] | None] = asyncio.Queue(MOST_WAITING_BLOCKS)
        self._closed = False

    async def run(self, requests: AsyncIterator[Any], context: Any) -> None:
        """Serve the stream to its end; what it is refused for ends it with that status."""
        reading = asyncio.ensure_future(self._read(requests, context))
        computing = asyncio.ensure_future(self._compute(context))
        try:
            done, _ = await asyncio.wait({reading, computing}, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        except SessionError as error:
            # What was refused is never gone on with: kept for its lease it would take a place from others.
            self._closed = True
            await context.abort(grpc.StatusCode[error.status], str(error))
        except EngineError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        finally:
            reading.cancel()
            computing.cancel()
            await self._leave()

    async def _read(self, requests: AsyncIterator[Any], context: Any) -> None:
        """Take messages in order until the client has no more."""
        coming = aiter(requests)
        while True:
            try:
                async with asyncio.timeout(self._table.lease_s):
                    request = await anext(coming)
            except StopAsyncIteration:
                break
            except TimeoutError as error:
                raise SessionError("NOT_FOUND", "the session's lease ran out: nothing was heard in time") from error
            kind = request.WhichOneof("kind")
            message = getattr(request, kind) if kind else None
            if kind == "open":
                await self._open(message, context)
            elif self._session is None:
                raise SessionError("INVALID_ARGUMENT", f"{kind or 'an unknown message'} before the session was opened")
            elif kind == "close":
                self._closed = True
                break
            else:
                self._table.renew(self._session)
                await self._take(self._session, kind, message)
        await self._blocks.put(None)

    async def _open(self, message: Any, context: Any) -> None:
        if self._session is not None:
            raise SessionError("INVALID_ARGUMENT", "a stream is one session; open another stream for another")
        self._session = self._table.open(message)
        opened = self._service.response()
        opened.opened.session = self._session.identity
        opened.opened.context_length = self._session.context_length
        await context.write(opened)

    async def _take(self, session: DraftSession, kind: str | None, message: Any) -> None:
        """Put a block together, and queue it when its rows are all there."""
        if kind == "block":
            if self._rows is not None:
                raise SessionError("INVALID_ARGUMENT", "a block before the rows of the last were all there")
            rows = session.begin(message)
            if rows is None or rows.complete:
                await self._blocks.put((message, rows))
            else:
                self._rows = message, rows
        elif kind == "chunk":
            if self._rows is None or message.sequence != self._rows[0].sequence:
                raise SessionError("INVALID_ARGUMENT", f"a chunk of block {message.sequence}, which lacks no rows")
            block, rows = self._rows
            rows.add(message.offset, message.data)
            if rows.complete:
                self._rows = None
                await self._blocks.put((block, rows))
        elif kind != "renew":
            raise SessionError("INVALID_ARGUMENT", "an unknown message; use the same version at both ends")

    async def _compute(self, context: Any) -> None:
        """Have blocks computed one by one and send what was asked for."""
        loop = asyncio.get_running_loop()
        while (waiting := await self._blocks.get()) is not None:
            if self._session is None:
                return
            draft = await loop.run_in_executor(self._worker, self._session.work, *waiting)
            waiting = None  # its rows are budgeted for as long as anything holds them, and the next may never come
            if draft is not None:
                await self._answer(context, draft)

    async def _answer(self, context: Any, draft: pb.BlockDraft) -> None:
        """Send a draft; a client that reads none for as long as its lease is let go."""
        try:
            async with asyncio.timeout(self._table.lease_s):
                await context.write(self._service.response(draft=draft))
        except TimeoutError as error:
            raise SessionError("NOT_FOUND", "the session's lease ran out: nothing was read in time") from error

    async def _leave(self) -> None:
        """End the session that was closed; keep one that lost its stream for its lease."""
        if self._session is None:
            return
        if self._closed:
            self._table.close(self._session)
        else:
            self._table.detach(self._session)
