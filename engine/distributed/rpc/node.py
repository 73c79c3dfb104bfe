"""A node that tells others of itself and hears of them: exchanges over gRPC, one round a second."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc

from engine.distributed.gossip.membership import (
    MOST_CARD_BYTES,
    MOST_NODES,
    ROUND_S,
    TTL_S,
    Membership,
    asked_next,
    unreadable,
)
from engine.distributed.kakeya.v1 import capability_pb2 as pb
from engine.distributed.loopback import check_loopback, check_unserved
from engine.errors import SessionError, UsageError

GOSSIP = "gossip"
"""The endpoint of a card at which its node is asked."""
SERVICE = "kakeya.v1.CapabilityService"
MESSAGE_BYTES = MOST_NODES * (MOST_CARD_BYTES + 512)
LIMITS = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]
DIRECT = [*LIMITS, ("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 1000)]
ASK_S = 1.0
"""How long an exchange may take before its round goes on without it."""
STOP_S = 0.5


class GossipNode:
    """One node on one address of this machine; ``seeds`` are asked in every round, whether or not they are known.

    ``said`` hears, once each, that another node has this one's name, why a card was refused and how a round failed.
    """

    def __init__(
        self,
        card: pb.Card,
        seeds: tuple[str, ...] = (),
        *,
        ttl_s: float = TTL_S,
        round_s: float = ROUND_S,
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Raise UsageError where a seed is another machine's address, or other nodes would refuse the card."""
        self.membership = Membership(card, time.monotonic, ttl_s)
        self._seeds = tuple(check_loopback(seed, "a node at") for seed in seeds)
        self._round_s = round_s
        self._said = said
        self._warned: set[str] = set()
        self._chooser = random.Random(f"{card.node}/{card.generation}")  # noqa: S311 - whom to ask is no secret
        self._channels: dict[str, Any] = {}
        self._server: Any = None
        self._rounds: asyncio.Task[None] | None = None
        self._address = ""

    async def start(self, address: str) -> str:
        """Serve and begin to ask; return the address with the port that was found for port 0.

        Raises:
            UsageError: If other machines would reach the address, it cannot be had, or the card has no room for it.
        """
        checked = check_loopback(address, "serving a node at")
        check_unserved(checked)
        server = grpc.aio.server(options=[*LIMITS, ("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            port = server.add_insecure_port(checked)
        except RuntimeError as error:
            raise UsageError(f"cannot listen at {checked}: {error}; name another address, or port 0 for any") from error
        self._address = checked if checked.startswith("unix:") else f"{checked.rpartition(':')[0]}:{port}"
        card = self.membership.cards()[self.membership.node]
        card.endpoints[GOSSIP] = self._address
        self.membership.rewrite(card)
        await server.start()
        self._server = server
        self._rounds = asyncio.create_task(self._go_round())
        return self._address

    async def stop(self) -> None:
        """Ask nobody any more, then end the server."""
        if self._rounds is not None:
            self._rounds.cancel()
        for channel in self._channels.values():
            await channel.close()
        if self._server is not None:
            await self._server.stop(STOP_S)

    async def wait(self) -> None:
        """Serve until stopped."""
        await self._server.wait_for_termination()

    async def round(self) -> None:
        """Exchange with up to three nodes and one seed; who does not answer is left out."""
        self.membership.beat()
        known = set(self._neighbours())
        asked = set(asked_next(sorted(known), self._chooser))
        strangers = [seed for seed in self._seeds if seed not in known]
        asked |= set(asked_next(strangers, self._chooser)[:1])
        for gone in self._channels.keys() - known - set(self._seeds):
            await self._channels.pop(gone).close()
        await asyncio.gather(*(self._exchange(address) for address in asked), return_exceptions=True)
        self._warn()

    def _warn(self) -> None:
        """Say what is wrong with others, each kind once."""
        membership = self.membership
        warnings = [f"a card was refused: {reason}" for reason in membership.refused]
        if membership.clashes:
            name = membership.node
            warnings.append(f"another node says that it is {name!r}, so that both come and go; give one another --name")
        for warning in warnings:
            self._say_once(warning)

    def _say_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            self._said(warning)

    def _neighbours(self) -> list[str]:
        found = []
        for name, card in self.membership.cards().items():
            address = card.endpoints.get(GOSSIP, "")
            if name == self.membership.node or not address:
                continue
            with suppress(UsageError):  # another machine's: whoever carries it here names it as a seed
                found.append(check_loopback(address, "a node at"))
        return found

    async def _exchange(self, address: str) -> None:
        request: pb.ExchangeRequest | None = self.membership.ask()
        while request is not None:
            try:
                answer = await self._call(address)(request, timeout=ASK_S)
            except grpc.RpcError:
                return
            request = self.membership.take(answer) if request.known else None

    def _call(self, address: str) -> Any:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.aio.insecure_channel(address, options=DIRECT)
        return channel.unary_unary(
            f"/{SERVICE}/Exchange",
            request_serializer=pb.ExchangeRequest.SerializeToString,
            response_deserializer=pb.ExchangeResponse.FromString,
        )

    async def _go_round(self) -> None:
        while True:
            try:
                await self.round()
            except Exception as error:  # noqa: BLE001 (nobody is above this task; the next round is gone all the same)
                # The kind alone: a text that others may choose would be kept, and said, in each of its forms.
                self._say_once(f"a round of asking others failed: {type(error).__name__}")
            await asyncio.sleep(self._round_s)

    def _handlers(self) -> Any:
        async def exchange(request: pb.ExchangeRequest, _context: Any) -> pb.ExchangeResponse:
            return self.membership.answer(request)

        async def list_cards(_request: pb.ListCardsRequest, _context: Any) -> pb.ListCardsResponse:
            return pb.ListCardsResponse(told=self.membership.told())

        def handler(answer: Any, request: Any, response: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                answer, request_deserializer=request.FromString, response_serializer=response.SerializeToString
            )

        methods = {
            "Exchange": handler(exchange, pb.ExchangeRequest, pb.ExchangeResponse),
            "ListCards": handler(list_cards, pb.ListCardsRequest, pb.ListCardsResponse),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)


def listed(address: str, wait_s: float = 5.0) -> list[pb.ToldCard]:
    """Ask a node whom it knows; return what it tells.

    Raises:
        SessionError: If it does not answer.
        UsageError: If other machines would be asked.
    """
    checked = check_loopback(address, "a node at")
    with grpc.insecure_channel(checked, DIRECT) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ListCards",
            request_serializer=pb.ListCardsRequest.SerializeToString,
            response_deserializer=pb.ListCardsResponse.FromString,
        )
        try:
            answer = call(pb.ListCardsRequest(), timeout=wait_s, wait_for_ready=True)
        except grpc.RpcError as error:
            raise SessionError(
                error.code().name, f"no node answers at {checked}: {error.details()}; is it served there?"
            ) from error
    return list(answer.told)


def known_cards(address: str, wait_s: float = 5.0) -> list[pb.Card]:
    """Return the cards that a node knows; one that nobody can read is left out.

    Raises:
        SessionError: If it does not answer.
        UsageError: If other machines would be asked.
    """
    return [pb.Card.FromString(each.card) for each in listed(address, wait_s) if not unreadable(each.card)]
