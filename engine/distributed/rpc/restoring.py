"""The server's end of rows made again: a stream a sequence, worked through in order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from engine.distributed.compatibility import FORMATS
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.restoring import (
    MOST_LATENT_BYTES,
    MOST_WAITING_BYTES,
    RestoringSession,
    ServedRestoration,
)
from engine.distributed.rpc.methods import RESTORATION
from engine.distributed.sessions import ID_BYTES
from engine.distributed.tensors import INVALID, Assembly, Budget, chunks, described
from engine.errors import EngineError, SessionError


class RestorationHandlers:
    """Serves one f_theta to at most so many sequences; what computes runs in the worker given."""

    def __init__(self, served: ServedRestoration, worker: ThreadPoolExecutor, lease_s: float, most: int) -> None:
        self._served, self._worker = served, worker
        self._lease_s, self._most = lease_s, most
        self._open = 0
        self._waiting = Budget(MOST_WAITING_BYTES, "bytes of hidden states")
        self._latents = Budget(MOST_LATENT_BYTES, "bytes of latents")

    def generic(self) -> grpc.GenericRpcHandler:
        """Return the service's methods."""
        service = RESTORATION

        async def describe(_request: Any, _context: Any) -> Any:
            return service.described(restoration=self._served.offer.message())

        return grpc.method_handlers_generic_handler(
            service.name,
            {
                service.describe: grpc.unary_unary_rpc_method_handler(
                    describe, service.describe_request.FromString, service.described.SerializeToString
                ),
                service.stream: grpc.stream_stream_rpc_method_handler(
                    self._stream, service.request.FromString, service.response.SerializeToString
                ),
            },
        )

    async def _stream(self, requests: AsyncIterator[Any], context: Any) -> None:
        self._open += 1
        try:
            self._check_room()
            await self._run(aiter(requests), context)
        except SessionError as error:
            await context.abort(grpc.StatusCode[error.status], str(error))
        except EngineError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        finally:
            self._open -= 1

    def _check_room(self) -> None:
        if self._open > self._most:
            raise SessionError("RESOURCE_EXHAUSTED", f"{self._most} sequences are open; no more are kept")

    async def _run(self, requests: AsyncIterator[Any], context: Any) -> None:
        """Take messages in order until the client has no more."""
        row_format = ""
        session: RestoringSession | None = None
        shown: tuple[pb.Shown, Assembly] | None = None
        while (request := await self._heard(requests)) is not None:
            kind = request.WhichOneof("kind")
            message: Any = getattr(request, kind) if kind else None
            if (kind == "open") != (session is None):
                raise SessionError(INVALID, f"{kind or 'an unknown message'} out of turn; a stream is one sequence")
            if kind == "open":
                row_format = self._served.check_opened(message)
                session = RestoringSession(self._served, row_format, self._waiting, self._latents)
                await context.write(pb.RestoreResponse(opened=pb.Opened(session=secrets.token_hex(ID_BYTES))))
            elif kind == "close" or session is None:
                return
            elif kind == "wanted":
                if shown is not None:
                    raise SessionError(INVALID, "rows wanted before the hidden states shown last were all there")
                await self._answer(session, message, row_format, context)
            elif kind in {"shown", "chunk"}:
                shown = _taken(session, kind, message, shown)
                if shown[1].complete:
                    await self._computed(session.show, *shown)
                    shown = None
            elif kind != "renew":
                raise SessionError(INVALID, "an unknown message; use the same version at both ends")

    async def _heard(self, requests: AsyncIterator[Any]) -> Any:
        try:
            async with asyncio.timeout(self._lease_s):
                return await anext(requests, None)
        except TimeoutError as error:
            raise SessionError("NOT_FOUND", "the lease of the sequence ran out: nothing was heard in time") from error

    async def _answer(self, session: RestoringSession, ask: pb.Wanted, row_format: str, context: Any) -> None:
        """Send rows; a client that reads none for as long as its lease is let go."""
        data, rows, width = await self._computed(session.made, ask)
        head = described(data, FORMATS[row_format], rows, width)
        await self._sent(context, pb.RestoreResponse(made=pb.Made(sequence=ask.sequence, rows=head)))
        for chunk in chunks(data, ask.sequence):
            await self._sent(context, pb.RestoreResponse(chunk=chunk))

    async def _sent(self, context: Any, response: pb.RestoreResponse) -> None:
        """Send one message: all of an answer may take longer than a lease, over a slow link."""
        try:
            async with asyncio.timeout(self._lease_s):
                await context.write(response)
        except TimeoutError as error:
            raise SessionError("NOT_FOUND", "the lease of the sequence ran out: nothing was read in time") from error

    async def _computed(self, work: Any, *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *given)


def _taken(
    session: RestoringSession, kind: str, message: Any, shown: tuple[pb.Shown, Assembly] | None
) -> tuple[pb.Shown, Assembly]:
    """Return what is shown with the bytes of a message.

    Raises:
        SessionError: If they are out of turn, or not what was said.
    """
    if kind == "shown":
        if shown is not None:
            raise SessionError(INVALID, "hidden states before those shown last were all there")
        return message, session.begin(message)
    if shown is None or message.sequence != shown[0].sequence:
        raise SessionError(INVALID, f"a chunk of message {message.sequence}, which lacks none")
    shown[1].add(message.offset, message.data)
    return shown
