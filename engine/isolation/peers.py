"""Ask an untrusted process to decode, over pipes: every byte it sends is checked before it is believed.

The peer gets token ids and a tag, and answers token ids with that tag; it never sees what its answer is compared with.
When the first and the last token arrived is read from our own clock. Knows no model.
"""

from __future__ import annotations

import json
import os
import secrets
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.errors import PeerError, UsageError
from engine.measurement.arms import Running
from engine.types import Step, StopReason

LINE_MAX_BYTES = 1 << 16
REPLY_S = 120.0
"""A reply that takes longer is none: loading models included."""
_NAMES = ("KAKEYA_PEER_ASK", "KAKEYA_PEER_REPLY", "KAKEYA_PEER_ORDER", "KAKEYA_PEER_DONE")


@dataclass(frozen=True, slots=True)
class Ends:
    """Descriptors: asks to the peer and its replies, orders to the runner and what it says."""

    ask: int
    reply: int
    order: int
    done: int

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Ends:
        """Read the descriptors the runner gave.

        Raises:
            UsageError: there are none; only a runner can keep the two sides apart.
        """
        given = [environ.get(name, "") for name in _NAMES]
        if not all(text.isascii() and text.isdigit() for text in given):
            raise UsageError(
                f"{', '.join(_NAMES)} are not set; only a runner can start the other side as another user: "
                "kakeya-mac run k3-request-code"
            )
        return cls(*map(int, given))


class PipedPeer:
    """The other side, asked one thing at a time."""

    def __init__(self, ends: Ends, vocab_size: int, reply_s: float = REPLY_S) -> None:
        self._ends = ends
        self._vocab_size = vocab_size
        self._reply_s = reply_s
        self._buffer = b""

    def hold(self) -> None:
        """Have all of the peer's processes stopped: whatever is timed now, it does not share the machine with them."""
        self._order(b"h")

    def release(self) -> None:
        """Let the peer's processes run again."""
        self._order(b"r")

    def open(self) -> None:
        """Wait until the peer has loaded what it needs.

        Raises:
            PeerError: it ended, said something else, or nothing.
        """
        tag = self._ask("open")
        if self._reply(tag).get("ready") is not True:
            raise PeerError("the peer did not say that it is ready")

    def start(self, ids: tuple[int, ...], budget: int, stop_ids: frozenset[int]) -> Running:
        """Begin decoding; nothing is asked until the first step is wanted."""
        return Running(steps=self._steps(ids, budget, stop_ids), kv_bytes=lambda: 0, drafter_bytes=lambda: None)

    def _steps(self, ids: tuple[int, ...], budget: int, stop_ids: frozenset[int]) -> Iterator[Step]:
        tag = self._ask("decode", ids=list(ids), budget=budget, stop_ids=sorted(stop_ids))
        count, stop = 0, None
        while stop is None:
            tokens = self._tokens(self._reply(tag))
            if count == 0 and len(tokens) != 1:
                raise PeerError(f"the first reply holds {len(tokens)} tokens; expected the first token alone")
            count += len(tokens)
            if count > budget or any(token in stop_ids for token in tokens[:-1]):
                raise PeerError(f"the peer went on after the end, {count} tokens of at most {budget}")
            if tokens[-1] in stop_ids:
                stop = StopReason.EOS
            elif count == budget:
                stop = StopReason.BUDGET
            yield _step(tokens, is_first=count == 1, stop=stop)

    def _tokens(self, reply: Mapping[str, object]) -> tuple[int, ...]:
        tokens = reply.get("tokens")
        if not isinstance(tokens, list) or not tokens or any(type(token) is not int for token in tokens):
            raise PeerError(f"the peer replied {str(tokens)[:80]!r}; expected a list of token ids")
        if not all(0 <= token < self._vocab_size for token in tokens):
            raise PeerError(f"the peer replied a token outside of a vocabulary of {self._vocab_size}")
        return tuple(tokens)

    def _ask(self, verb: str, **values: object) -> str:
        if self._buffer or select.select([self._ends.reply], [], [], 0)[0]:
            raise PeerError("the peer has ended, or replied to more than it was asked")
        tag = secrets.token_hex(16)
        left = json.dumps({"ask": verb, "tag": tag, **values}, separators=(",", ":")).encode() + b"\n"
        try:
            while left:
                if not select.select([], [self._ends.ask], [], self._reply_s)[1]:
                    raise PeerError(f"the peer did not read what it was asked within {self._reply_s:g} s")
                left = left[os.write(self._ends.ask, left[: select.PIPE_BUF]) :]
        except BrokenPipeError as error:
            raise PeerError("the peer has closed its pipe") from error
        return tag

    def _reply(self, tag: str) -> Mapping[str, object]:
        try:
            value = json.loads(self._line())
        except (ValueError, RecursionError) as error:
            raise PeerError(f"the peer's reply is no JSON: {error}") from error
        if not isinstance(value, dict) or value.get("tag") != tag:
            raise PeerError("the peer's reply does not carry the tag of what was asked")
        return value

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > LINE_MAX_BYTES:
                raise PeerError(f"the peer's reply is longer than {LINE_MAX_BYTES} bytes")
            if not select.select([self._ends.reply], [], [], self._reply_s)[0]:
                raise PeerError(f"the peer did not reply within {self._reply_s:g} s")
            block = os.read(self._ends.reply, LINE_MAX_BYTES)
            if not block:
                raise PeerError("the peer has ended or closed its pipe")
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _order(self, order: bytes) -> None:
        try:
            os.write(self._ends.order, order)
            done = os.read(self._ends.done, 1)
        except BrokenPipeError:
            done = b""
        if done != b"k":
            raise PeerError("the runner could not stop the peer, or it ran while it was to stand still")


def _step(tokens: tuple[int, ...], *, is_first: bool, stop: StopReason | None) -> Step:
    """Return what is seen of a step from outside: its tokens, and nothing of how they came about."""
    return Step(tokens=tokens, committed=len(tokens), prefill=is_first, stop=stop)
