"""The client's end: a channel to a server of this machine, and a stream for each session."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import grpc

from engine.distributed.compatibility import DrafterOffer
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.loopback import check_loopback
from engine.distributed.restoration_offer import RestorationOffer
from engine.distributed.rpc.methods import MESSAGE_BYTES, DraftingService
from engine.distributed.stream import DraftStream, Listener, Message
from engine.errors import SessionError

OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # A server that was restarted is found within a second, not after minutes of doubling pauses.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
RENEWALS = 6
"""In one lease."""
LEAST_RENEWAL_S = 0.1
"""However short a server says its leases are: one that has to be told more often is not worth a thread's time."""
DESCRIBE_S = 10.0
LINGER_S = 5.0
"""How long a stream that was closed may take to hear that the server closed it too."""


class DrafterChannel:
    """A connection to a drafter's server, for any number of sessions."""

    def __init__(self, address: str, service: DraftingService) -> None:
        """Connect when first used.

        Raises:
            UsageError: If the address is not one of this machine.
        """
        self._service = service
        self.address = check_loopback(address, "a drafter at")
        self._channel = grpc.insecure_channel(self.address, OPTIONS)
        self._lease_s = 0.0
        self._closing: deque[tuple[float, GrpcStream]] = deque()

    def describe(self, wait_s: float = DESCRIBE_S) -> DrafterOffer:
        """Return what the server drafts with.

        Raises:
            SessionError: If it does not answer.
            ModelMismatchError: If it speaks another version of the protocol.
        """
        offer = DrafterOffer.read(self._described(wait_s, "no drafter answers").drafter)
        self._lease_s = offer.lease_s
        return offer

    def describe_restoration(self, wait_s: float = DESCRIBE_S) -> RestorationOffer:
        """Return which f_theta the server makes rows with.

        Raises:
            SessionError: If it does not answer, or makes none.
            ModelMismatchError: If it speaks another version of the protocol.
        """
        offer = RestorationOffer.read(self._described(wait_s, "nobody makes rows again").restoration)
        self._lease_s = offer.lease_s
        return offer

    def _described(self, wait_s: float, nobody: str) -> Any:
        """Return what the server says of itself.

        Raises:
            SessionError: If it does not answer.
        """
        call = self._channel.unary_unary(
            self._service.path(self._service.describe),
            request_serializer=self._service.describe_request.SerializeToString,
            response_deserializer=self._service.described.FromString,
        )
        try:
            return call(self._service.describe_request(), timeout=wait_s, wait_for_ready=True)
        except grpc.RpcError as error:
            raise SessionError(
                error.code().name, f"{nobody} at {self.address}: {error.details()}; is it served there?"
            ) from error

    def round_trip_s(self, wait_s: float = DESCRIBE_S) -> float:
        """Return the seconds that a call takes which nothing is computed for.

        Raises:
            SessionError: If the server does not answer.
        """
        began_s = time.perf_counter()
        self.describe(wait_s)
        return time.perf_counter() - began_s

    def connect(self, listener: Listener) -> DraftStream:
        """Open a stream for a session."""
        now_s = time.monotonic()
        while self._closing and self._closing[0][0] < now_s - LINGER_S:
            self._closing.popleft()[1].cancel()
        renew_s = max(self._lease_s / RENEWALS, LEAST_RENEWAL_S) if self._lease_s else None
        return GrpcStream(self, self._channel, self._service, renew_s, listener)

    def linger(self, line: GrpcStream) -> None:
        """Let a stream that was closed end by itself for a while."""
        self._closing.append((time.monotonic(), line))

    def close(self) -> None:
        """End every stream and the connection."""
        self._channel.close()


class GrpcStream:
    """One stream; a thread of its own hears what comes, and another of gRPC sends what is queued."""

    def __init__(
        self,
        owner: DrafterChannel,
        channel: grpc.Channel,
        service: DraftingService,
        renew_s: float | None,
        listener: Listener,
    ) -> None:
        self._owner = owner
        self._service = service
        self._renew_s = renew_s
        self._listener = listener
        self._session = ""
        self._waiting: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        call = channel.stream_stream(
            service.path(service.stream),
            request_serializer=service.request.SerializeToString,
            response_deserializer=service.response.FromString,
        )
        self._call: Any = call(self._requests())
        threading.Thread(target=self._read, name="kakeya-drafts", daemon=True).start()

    def send(self, message: Message) -> None:
        """Queue a message."""
        self._waiting.put(message)

    def close(self, message: pb.Close | None) -> None:
        """Say that the session is over and let the stream end, or without a message cancel it."""
        if message is None:
            self._waiting.put(None)
            self.cancel()
            return
        self._waiting.put(message)
        self._waiting.put(None)
        self._owner.linger(self)

    def cancel(self) -> None:
        """End the stream at once."""
        self._call.cancel()

    def _requests(self) -> Iterator[Any]:
        while True:
            try:
                message = self._waiting.get(timeout=self._renew_s)
            except queue.Empty:
                if self._session:
                    yield self._service.wrapped(pb.Renew(session=self._session))
                continue
            if message is None:
                return
            yield self._service.wrapped(message)
            # gRPC comes back for another once this one has gone into the connection.
            self._listener.left()

    def _read(self) -> None:
        status, said = "OK", ""
        try:
            for response in self._call:
                reply = self._service.unwrapped(response)
                if isinstance(reply, pb.Opened):
                    self._session = reply.session
                if reply is not None:
                    self._listener.heard(reply)
        except grpc.RpcError as error:
            status, said = error.code().name, error.details() or ""
        self._listener.ended(status, said)
