"""A drafting session as its server holds it: what it was shown, and the block it works on.

Knows neither streams nor threads: a server feeds it messages in order and runs ``work`` wherever it computes.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.distributed.compatibility import FORMATS, DrafterOffer
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.tensors import INVALID, Assembly, Budget
from engine.errors import CacheCropError, ObservationError, SessionError, UsageError
from engine.protocols import Drafter
from engine.types import Features, Proposal, Rows
from engine.verification.rejection import Sampling

MOST_BLOCK_TOKENS = 1 << 16
"""Committed tokens that one block may carry."""
MOST_POSITIONS = 1 << 24
"""Behind which no block may begin or end: array libraries count positions in 32 bits and compute with floats."""
MOST_KEPT_TOKENS = 1 << 18
"""Of one session where the drafter keeps all that it was shown: about a kilobyte each in prompt lookup's index."""
KEPT_AT_ONCE = 1 << 12
"""Tokens for which such a session takes room at a time."""
MOST_DRAFTED = 64
"""Tokens that may be asked for at once where the drafter itself has no fixed block."""
HASH_BYTES = 16
NAMES = {number: name for name, number in FORMATS.items()}


class TokenHash:
    """A hash over token ids, kept as they come; both ends of a session keep one."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=HASH_BYTES)

    def add(self, tokens: tuple[int, ...]) -> None:
        """Take committed tokens."""
        self._hash.update(struct.pack(f"<{len(tokens)}I", *tokens))

    def copy(self) -> TokenHash:
        """Return one that goes on by itself."""
        made = TokenHash()
        made._hash = self._hash.copy()
        return made

    def with_bonus(self, bonus: int) -> bytes:
        """Return the hash over the tokens so far and the bonus."""
        ended = self._hash.copy()
        ended.update(struct.pack("<I", bonus))
        return ended.digest()


@dataclass(frozen=True, slots=True)
class Drawing:
    """How a served drafter tells distributions: the client draws from them, so that a lie costs it drafts alone.

    Attributes:
        open: Starts a drafter that draws, whose first observed position is the one given.
        proposals: Reads of a draft's probabilities for each row at most so many ids.
    """

    open: Callable[[int, Sampling], Drafter]
    proposals: Callable[[Rows, int], list[Proposal]]


@dataclass(frozen=True, slots=True)
class Served:
    """A drafter as a server offers it.

    Attributes:
        offer: What clients are told.
        open: Starts a drafter whose first observed position is the one given.
        unpacked: Makes the backend's features of bytes, a shape and the name of a dtype; None where no rows are read.
        drawing: How it tells distributions, None where it proposes tokens only.
    """

    offer: DrafterOffer
    open: Callable[[int], Drafter]
    unpacked: Callable[[bytearray, tuple[int, int], str], Features] | None = None
    drawing: Drawing | None = None

    @property
    def most_bytes(self) -> int:
        """Bytes of rows that one block may carry: what is fed again to a context that begins anew, twice."""
        return 2 * (self.offer.context_tokens or MOST_BLOCK_TOKENS) * self.offer.width * 4

    def check_opened(self, opened: pb.Open) -> str:
        """Return the name of the format of rows that a client agreed on.

        Raises:
            SessionError: FAILED_PRECONDITION if it expects another drafter, target or protocol than this one.
        """
        name = NAMES.get(opened.row_format, "")
        if not name or opened.compatibility != self.offer.compatibility(name):
            raise SessionError(
                "FAILED_PRECONDITION",
                f"the client agreed on another drafter, tokenizer, layers, rows or protocol than {self.offer.info.name}"
                " is served with; describe it again",
            )
        return name

    def shaping(self, opened: pb.Open) -> Sampling | None:
        """Return how a client wants distributions shaped, None where it wants tokens.

        Raises:
            SessionError: FAILED_PRECONDITION if this drafter tells none, INVALID_ARGUMENT if there is no such shape.
        """
        if not opened.HasField("shaping"):
            return None
        most, asked = self.offer.most_proposed, opened.shaping
        if self.drawing is None or not most:
            raise SessionError("FAILED_PRECONDITION", f"{self.offer.info.name} tells no distributions; ask for tokens")
        if not 1 <= asked.top_k <= most:
            raise SessionError(INVALID, f"distributions of {asked.top_k} ids; expected 1 to {most}")
        try:
            return Sampling(asked.temperature, asked.top_k, asked.top_p)
        except UsageError as error:
            raise SessionError(INVALID, str(error)) from error


class DraftSession:
    """One session of a served drafter; messages come in order, one block at a time."""

    def __init__(
        self,
        served: Served,
        identity: str,
        row_format: str,
        shaping: Sampling | None = None,
        budget: Budget | None = None,
        *,
        kept: Budget | None = None,
    ) -> None:
        self.identity = identity
        self.newest_ask = 0
        """The sequence number of the newest ask that has come: an older one is not worth computing any more."""
        self._served = served
        self._row_format = FORMATS[row_format]
        self._shaping = shaping
        self._budget = budget
        self._kept = kept
        self._room = 0
        self._drafter: Drafter | None = None
        self._seen = 0
        self._hash = TokenHash()
        self._sequence = 0

    @property
    def context_length(self) -> int:
        """Positions observed so far."""
        return self._seen

    def begin(self, block: pb.Block) -> Assembly | None:
        """Check a block before any of it is kept; return what its rows come together in, None if it has none.

        Raises:
            SessionError: If it is not of this session, out of turn, malformed, or more than there is room for.
        """
        if block.session != self.identity:
            raise SessionError("NOT_FOUND", "a block of another session than this stream's; open one first")
        if block.sequence <= self._sequence:
            raise SessionError(INVALID, f"block {block.sequence} after {self._sequence}; expected a later number")
        self._sequence = block.sequence
        tokens = sum(len(segment.tokens) for segment in block.segments)
        if tokens > MOST_BLOCK_TOKENS:
            raise SessionError(INVALID, f"{tokens} tokens in one block; expected at most {MOST_BLOCK_TOKENS}")
        self._check_positions(block)
        vocabulary = self._served.offer.vocab_size
        if vocabulary and any(token >= vocabulary for segment in block.segments for token in segment.tokens):
            raise SessionError(INVALID, f"a token id outside the vocabulary of {vocabulary}")
        if block.HasField("ask"):
            self._check_ask(block.ask)
            self.newest_ask = block.sequence
        if self._served.offer.context_tokens is None:
            self._take_room(tokens)
        if not self._served.offer.capture or not tokens:
            if block.HasField("rows"):
                raise SessionError(INVALID, "rows where none belong: this drafter reads none, or there are no tokens")
            return None
        width, most_bytes = self._served.offer.width, self._served.most_bytes
        return Assembly(block.rows, self._row_format, tokens, width, most_bytes, budget=self._budget)

    def work(self, block: pb.Block, rows: Assembly | None) -> pb.BlockDraft | None:
        """Observe what a block brings and draft what it asks for; None where it asks for nothing.

        Raises:
            SessionError: If what it says was observed before is not what was.
        """
        began = time.perf_counter()
        try:
            self._observe(block, rows)
        except (CacheCropError, ObservationError) as error:
            raise SessionError("FAILED_PRECONDITION", f"{error}; open a new session") from error
        if not block.HasField("ask"):
            return None
        ask, drafter = block.ask, self._opened(block.ask.context_length)
        if ask.context_length != self._seen or ask.token_hash != self._hash.with_bonus(ask.bonus):
            raise SessionError(
                "FAILED_PRECONDITION",
                f"an ask behind {ask.context_length} positions; {self._seen} were observed here, or other tokens. Open "
                "a new session",
            )
        if block.sequence < self.newest_ask:
            return pb.BlockDraft(sequence=block.sequence, skipped="overtaken by a newer ask")
        draft = drafter.ask(ask.bonus, ask.context_length, ask.count)
        drawn = self._shaping is not None and draft.probs is not None
        return pb.BlockDraft(
            sequence=block.sequence,
            tokens=() if drawn else draft.ids(),
            proposals=self._proposals(draft.probs) if drawn else (),
            skipped=draft.skipped or "",
            draft_us=int((time.perf_counter() - began) * 1e6),
            forwards=drafter.forwards,
            held_bytes=drafter.measured_bytes(),
        )

    def close(self) -> None:
        """Let the drafter go."""
        if self._drafter is not None:
            self._drafter.close()

    def _proposals(self, probs: Rows) -> list[pb.Proposal]:
        drawing = self._served.drawing
        told = [] if drawing is None else drawing.proposals(probs, self._served.offer.most_proposed)
        return [pb.Proposal(tokens=ids, probabilities=likely) for ids, likely in told]

    def _check_positions(self, block: pb.Block) -> None:
        """Check where the block's segments lie before anything is computed of them."""
        if not all(segment.tokens for segment in block.segments):
            raise SessionError(INVALID, "a segment without tokens; expected at least one in each")
        ends = [segment.start + len(segment.tokens) for segment in block.segments]
        ends += [block.ask.context_length] if block.HasField("ask") else []
        if max(ends, default=0) > MOST_POSITIONS:
            raise SessionError(INVALID, f"position {max(ends)}; expected at most {MOST_POSITIONS}")
        if self._served.offer.context_tokens is None and max(ends, default=0) > MOST_KEPT_TOKENS:
            raise SessionError(
                "RESOURCE_EXHAUSTED",
                f"{max(ends)} tokens in one session; {self._served.offer.info.name} keeps every one, at most "
                f"{MOST_KEPT_TOKENS}",
            )

    def _take_room(self, tokens: int) -> None:
        """Take room for tokens that are kept to the session's end.

        Raises:
            SessionError: RESOURCE_EXHAUSTED if all sessions together keep too many.
        """
        while self._kept is not None and self._room < tokens:
            self._kept.take(KEPT_AT_ONCE, self)
            self._room += KEPT_AT_ONCE
        self._room -= tokens

    def _check_ask(self, ask: pb.Ask) -> None:
        offer = self._served.offer
        longest = offer.info.block_size - 1 if offer.info.block_size else MOST_DRAFTED
        if not 1 <= ask.count <= longest:
            raise SessionError(INVALID, f"{ask.count} tokens asked for; expected 1 to {longest}")
        if offer.vocab_size and ask.bonus >= offer.vocab_size:
            raise SessionError(INVALID, f"bonus {ask.bonus} outside the vocabulary of {offer.vocab_size}")
        if len(ask.token_hash) != HASH_BYTES:
            raise SessionError(INVALID, f"a token hash of {len(ask.token_hash)} bytes; expected {HASH_BYTES}")

    def _observe(self, block: pb.Block, rows: Assembly | None) -> None:
        features: Any = None
        if rows is not None and self._served.unpacked is not None:
            shape = (rows.rows, rows.width)
            features = self._served.unpacked(rows.buffer, shape, NAMES[self._row_format])
        row = 0
        for segment in block.segments:
            tokens = tuple(segment.tokens)
            drafter = self._opened(segment.start)
            # The cuts of the client are kept: rows projected together are projected together here, bit for bit.
            drafter.observe(segment.start, tokens, None if features is None else features[row : row + len(tokens)])
            self._seen, row = segment.start + len(tokens), row + len(tokens)
            self._hash.add(tokens)

    def _opened(self, begin: int) -> Drafter:
        """Return the drafter, started at ``begin`` by the first block that needs it."""
        if self._drafter is None:
            drawing, shaping = self._served.drawing, self._shaping
            if drawing is None or shaping is None:
                self._drafter = self._served.open(begin)
            else:
                self._drafter = drawing.open(begin, shaping)
            self._seen = begin
        return self._drafter
