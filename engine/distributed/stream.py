"""A session's stream as its client sees it: what it carries, and how it tells that it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engine.distributed.kakeya.v1 import proposer_pb2 as pb

Message = pb.Open | pb.Block | pb.Chunk | pb.Renew | pb.Close | pb.Shown | pb.Wanted
Reply = pb.Opened | pb.BlockDraft | pb.Made | pb.Chunk


@dataclass(frozen=True, slots=True)
class Listener:
    """What a line tells its client, from threads of its own.

    Attributes:
        heard: Takes a reply.
        ended: Takes gRPC's name of the status that ended the stream, and what it said; called once.
        left: Takes that one more of the messages sent has gone into the connection.
    """

    heard: Callable[[Reply], None]
    ended: Callable[[str, str], None]
    left: Callable[[], None] = lambda: None


class DraftStream(Protocol):
    """One stream, from its first message to its end."""

    def send(self, message: Message) -> None:
        """Queue a message; never waits."""

    def close(self, message: pb.Close | None) -> None:
        """End the stream, after ``message`` where there is one, without waiting for it; nothing more is heard."""


Connect = Callable[[Listener], DraftStream]


@dataclass(slots=True)
class Traffic:
    """What went over the streams of one sequence: bytes by kind, and for each draft the seconds from its ask to it.

    ``drafting_s`` is how much of that the server says it computed.
    """

    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    drafting_s: list[float] = field(default_factory=list)
    sessions: int = 0

    def count_sent(self, message: Message) -> None:
        """Count one message; rows are counted apart from what tells of them."""
        size = message.ByteSize()
        rows = len(message.rows.data) if isinstance(message, pb.Block) else 0
        rows = len(message.data) if isinstance(message, pb.Chunk) else rows
        self.sent["rows"] += rows
        self.sent[type(message).__name__.lower()] += size - rows

    def count_received(self, reply: Reply) -> None:
        """Count one reply."""
        self.received[type(reply).__name__.lower()] += reply.ByteSize()
