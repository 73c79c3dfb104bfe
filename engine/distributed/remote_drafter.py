"""A drafter on another machine, as the decoding loop sees it: asked over a stream, waited for no longer than said.

It keeps the books of a draft that comes late: what was committed since the ask, and what of the draft that leaves.
Whatever goes wrong with the stream is a draft that does not come, with its reason; the next ask opens another session
and shows it what the context needs. Knows streams through ``engine.distributed.stream`` alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.distributed.compatibility import FORMATS, DrafterOffer
from engine.distributed.history import Observed, ObservedRows, Pack
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.patience import Patience
from engine.distributed.replies import Draw, Proposed, printable, read_reply
from engine.distributed.session import MOST_BLOCK_TOKENS, TokenHash
from engine.distributed.stream import Connect, DraftStream, Listener, Message, Reply, Traffic
from engine.distributed.tensors import chunks, described
from engine.drafters.local import LocalDrafter
from engine.drafters.overtaken import Overtaken
from engine.types import Draft, DrafterInfo, Features
from engine.verification.rejection import Sampling, Uniforms

PATIENCE_S = 5.0
"""How long a server may be silent with an ask before it is given up."""
FIRST_RETRY_S, LONGEST_RETRY_S = 0.1, 8.0
MOST_PARTS = 1 << 16
"""Blocks that one ask may be sent in: sequence numbers leave room for them."""
MOST_MARKS = 64
"""Ends of blocks at which a session that lost its stream can be gone on with."""
MOST_IDENTITY_CHARS = 128
"""Of a session's id, which every block repeats."""
UNREACHED = "no connection to the remote drafter"
LOST = "the remote drafter's stream ended"
SILENT = "the remote drafter was silent"
UNASKED = "the remote drafter said more than it was asked"


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A drafter served elsewhere, for targets of one vocabulary.

    Attributes:
        offer: What its server says of it.
        vocab_size: Ids that the target knows.
        connect: Opens a stream to it.
        row_format: The dtype rows are sent in.
        pack: Makes bytes of rows of the target's features in that dtype, None where the drafter reads none.
        patience_s: How long its server may be silent with an ask: before any draft came, or where nothing else goes on
            meanwhile. Beside plain decoding it is twice the slowest draft of late, where that is less. It begins anew
            whenever something of the ask leaves: the rows of a long prompt take their time over a slow link.
        now_s: Monotonic seconds.
        draw: Draws from proposals, in the array library of the target.
        shaping: How the proposals are shaped that tokens are drawn from, None for the likeliest tokens.
        round_trip_s: Seconds that a call takes which nothing is computed for, 0 where nobody measured it.
    """

    offer: DrafterOffer
    vocab_size: int
    connect: Connect
    row_format: str
    pack: Pack | None
    patience_s: float = PATIENCE_S
    now_s: Callable[[], float] = time.monotonic
    draw: Draw | None = None
    shaping: Sampling | None = None
    round_trip_s: float = 0.0

    @property
    def info(self) -> DrafterInfo:
        """Name, digest and settings of the drafter served."""
        return self.offer.info

    @property
    def capture(self) -> tuple[int, ...]:
        """Target layers it reads."""
        return self.offer.capture

    def sampling(self, settings: Sampling) -> RemoteModel:
        """Return the proposer drawing from the likeliest ids that its server tells; itself where it tells none.

        Tokens that were not drawn are no less exact, and rejected more often.
        """
        most = self.offer.most_proposed
        if self.draw is None or not most:
            return self
        return replace(self, shaping=replace(settings, top_k=min(settings.top_k or most, most)))

    def open(self) -> RemoteDrafter:
        """Start on an empty sequence, and open a session for it meanwhile."""
        return RemoteDrafter(self)


@dataclass(frozen=True, slots=True)
class _Wanted:
    sequence: int
    bonus: int
    position: int
    count: int
    asked_s: float

    @property
    def number(self) -> int:
        """The number of the block that asks: one ask may be sent in several blocks, and this is the last of them."""
        return (self.sequence + 1) * MOST_PARTS - 1


@dataclass(slots=True)
class _Session:
    """An open line: the session's id once it is known, what was sent in it, and the hash at each end of a block.

    ``owed`` counts the asks that were sent and not answered, ``queued`` the messages, ``left`` those that have left.
    ``due`` is how many were queued up to the first ask since anything was heard.
    """

    line: DraftStream
    identity: str = ""
    sent: int = 0
    owed: int = 0
    queued: int = 0
    left: int = 0
    due: int = 0
    marks: dict[int, TokenHash] | None = None


class RemoteDrafter(LocalDrafter):
    """One sequence drafted for elsewhere. Its reader's thread only stores replies and sends what was packed."""

    def __init__(self, model: RemoteModel) -> None:
        self.traffic = Traffic()
        self._model = model
        self._history = ObservedRows(model.offer.context_tokens, model.pack)
        self._changed = threading.Condition()
        self._session: _Session | None = None
        self._resumable: tuple[str, dict[int, TokenHash]] | None = None
        self._sequence = 0
        self._wanted: _Wanted | None = None
        self._answer: Draft | Proposed | None = None
        self._overtaken = Overtaken(0)
        shaping = model.shaping
        self._uniforms = None if shaping is None else Uniforms(shaping.seed, "drafter")
        self._silent_since_s: float | None = None
        self._retry_s, self._retry_at_s = FIRST_RETRY_S, 0.0
        self._patience = Patience(model.patience_s)
        self._why, self._lost = UNREACHED, False
        self._forwards = self._forwards_before = 0
        with self._changed:
            self._connect()

    @property
    def forwards(self) -> int:
        """Forwards that the server says its drafter ran for this sequence, over all of its sessions."""
        return self._forwards

    def round_trip_s(self, source: str) -> float | None:
        """Return what a call took when the connection was made."""
        del source
        return self._model.round_trip_s

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Keep committed tokens and their rows until an ask takes them along.

        Raises:
            ObservationError: If the positions do not follow those observed so far.
        """
        with self._changed:  # the reader's thread sends from it when a session opens
            self._history.add(start, tokens, features)
            self._overtaken.observe(start, tokens)

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Send what the context lacks, ask, and wait for the draft at most ``wait_s`` seconds.

        Without a bound it is waited for until the server was silent for the patience.

        Once a session was lost nothing is asked before another is open, so that a fault is waited for once.
        """
        block = self._model.offer.info.block_size
        count = min(count, block - 1) if block else count
        with self._changed:
            # In this thread: an array belongs to the thread that made it.
            self._history.pack()
            now_s = self._model.now_s()
            if self._silent_since_s is not None and now_s - self._silent_since_s > self._patience_s(wait_s):
                self._drop(SILENT)
            session = self._session
            if session is not None and session.sent and not self._history.reaches(session.sent):
                # Nothing was asked for so long that rows are gone which it was not shown: it would refuse the next.
                self._begin_anew(session, session.identity)
            if self._session is None and now_s >= self._retry_at_s:
                self._connect()
            self._sequence += 1
            self._answer = self._wanted = None
            self._overtaken = Overtaken(position)
            if self._session is not None and self._silent_since_s is None:
                self._silent_since_s = now_s
            if self._session is None or (self._lost and not self._session.identity):
                return Draft(skipped=self._why)
            wanted = self._wanted = _Wanted(self._sequence, bonus, position, count, now_s)
            if self._session.identity:
                self._send(self._session, wanted)
            return self._taken(wait_s)

    def ready(self, bonus: int) -> Draft:
        """Return what is left of the draft behind ``bonus``, or why none comes; never waits."""
        with self._changed:
            return self._overtaken.left(self._taken(0.0), bonus)

    def rewind(self, length: int) -> int:
        """Go back to the first ``length`` positions; the next ask opens a session that was shown no more.

        Raises:
            CacheCropError: If rows that the context would show then are gone.
        """
        with self._changed:
            left = self._history.rewind(length)
            self.close()
        return left

    def close(self) -> None:
        """End the session; a later ask opens another."""
        with self._changed:
            session, self._session, self._wanted = self._session, None, None
            self._resumable, self._silent_since_s, self._retry_at_s = None, None, 0.0
            self._changed.notify_all()
        if session is not None:
            session.line.close(pb.Close(session=session.identity))

    def measured_bytes(self) -> int:
        """Return the bytes of rows kept for a session that begins anew; the context itself is elsewhere."""
        with self._changed:
            return self._history.measured_bytes()

    def _taken(self, wait_s: float | None) -> Draft:
        """Return the draft of the newest ask, waiting for it; called with the lock held."""
        if self._answer is None and self._wanted is not None:
            if wait_s != 0.0:
                self._await(wait_s)
            over = wait_s is None or self._patience_left_s(wait_s) <= 0.0
            if over and self._answer is None and self._wanted is not None:
                self._drop(SILENT)
        if self._answer is not None:
            self._answer = self._drawn(self._answer)
            return self._answer
        if self._wanted is not None:
            return Draft(under_way=True, came_s=self._model.now_s() - self._wanted.asked_s)
        return Draft(skipped=self._why)

    def _await(self, wait_s: float | None) -> None:
        """Wait for an answer, or until the ask is given up: at most ``wait_s`` and the patience, without a bound."""
        while True:
            since_s, left_s = self._silent_since_s, self._patience_left_s(wait_s)
            awaited_s = left_s if wait_s is None else min(wait_s, left_s)
            settled = self._changed.wait_for(lambda: self._answer is not None or self._wanted is None, awaited_s)
            if settled or wait_s is not None or self._silent_since_s == since_s:
                return

    def _drawn(self, answer: Draft | Proposed) -> Draft:
        if isinstance(answer, Draft) or self._uniforms is None or self._model.draw is None:
            return answer if isinstance(answer, Draft) else Draft(skipped=self._why)
        return answer.drawn(self._model.draw, self._uniforms.take(len(answer.proposals)))

    def _patience_s(self, wait_s: float | None) -> float:
        """Return how long the server may be silent: a draft that is waited for without a bound slows nothing."""
        return self._model.patience_s if wait_s is None else self._patience.seconds

    def _patience_left_s(self, wait_s: float | None) -> float:
        """Return for how many seconds the server may still be silent."""
        since_s = self._silent_since_s
        if since_s is None:  # it said something since, but not what is awaited
            since_s = self._model.now_s() if self._wanted is None else self._wanted.asked_s
        return max(0.0, self._patience_s(wait_s) - (self._model.now_s() - since_s))

    def _connect(self) -> None:
        """Open a stream and say who is there; called with the lock held, like all below."""
        resume = self._resumable[0] if self._resumable is not None else ""
        self.traffic.sessions += 1

        def heard(reply: Reply) -> None:
            with self._changed:
                if self._session is session:
                    self._hear(session, reply)

        def ended(status: str, message: str) -> None:
            with self._changed:
                if self._session is session:
                    self._end(session, status, message)

        def left() -> None:
            with self._changed:
                if self._session is session:
                    self._leave(session)

        session = _Session(self._model.connect(Listener(heard, ended, left)))
        self._session = session
        name = self._model.row_format
        agreed = self._model.offer.compatibility(name)
        row_format = FORMATS[name]
        opening = pb.Open(compatibility=agreed, row_format=row_format, resume=resume)
        shaping = self._model.shaping
        if shaping is not None:
            shape = pb.Shaping(temperature=shaping.temperature, top_k=shaping.top_k, top_p=shaping.top_p)
            opening.shaping.CopyFrom(shape)
        self._tell(session, opening)

    def _hear(self, session: _Session, reply: Reply) -> None:
        self.traffic.count_received(reply)
        self._silent_since_s, session.due = None, 0
        if isinstance(reply, pb.Opened):
            self._begin(session, reply)
            return
        session.owed -= 1
        if session.owed < 0:
            # Whoever answers what nobody asked could keep this thread, and with it the target's, busy for ever.
            self._drop(UNASKED)
        elif self._wanted is not None and reply.sequence == self._wanted.number:
            self._retry_s, self._lost = FIRST_RETRY_S, False
            self._forwards = max(self._forwards, self._forwards_before + reply.forwards)
            came_s = self._model.now_s() - self._wanted.asked_s
            self._patience.learn(came_s)
            self.traffic.seconds.append(came_s)
            self.traffic.drafting_s.append(reply.draft_us / 1e6)
            most = 0 if self._model.shaping is None else self._model.offer.most_proposed
            self._answer = read_reply(reply, self._wanted.count, self._model.vocab_size, most, came_s)
            self._wanted = None
            self._changed.notify_all()

    def _begin(self, session: _Session, opened: pb.Opened) -> None:
        """Go on where the server is, or have it shown what its context needs, and send what is asked by now."""
        resumes, marks = self._resumable is not None, self._resumable[1] if self._resumable is not None else {}
        self._resumable = None
        known = opened.context_length
        named = 0 < len(opened.session) <= MOST_IDENTITY_CHARS
        if session.identity or not named or (known and not resumes):
            self._drop(UNASKED)
            return
        if known and not (known in marks and self._history.reaches(known)):
            self._begin_anew(session, opened.session)
            return
        if not known:  # its count begins anew
            self._forwards_before = self._forwards
        session.identity, session.sent = opened.session, known
        session.marks = {known: marks[known]} if known else {}
        if self._wanted is not None:
            self._send(session, self._wanted)

    def _begin_anew(self, session: _Session, identity: str) -> None:
        """End a session that cannot be gone on with, and open another."""
        session.line.close(pb.Close(session=identity))
        self._session = self._resumable = None
        self._connect()

    def _send(self, session: _Session, wanted: _Wanted) -> None:
        """Send what was committed since the last block, cut into blocks, and the ask with the last of them."""
        parts = _blocks_of(self._history.since(session.sent, wanted.position))
        marks = session.marks if session.marks is not None else {}
        token_hash = marks[session.sent].copy() if session.sent in marks else TokenHash()
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            block = pb.Block(session=session.identity, sequence=wanted.sequence * MOST_PARTS + index)
            data = b"".join(observed.data or b"" for observed in part)
            for observed in part:
                block.segments.add(start=observed.start, tokens=observed.tokens)
                token_hash.add(observed.tokens)
            rows = sum(len(observed.tokens) for observed in part)
            if data:
                row_format = FORMATS[self._model.row_format]
                block.rows.CopyFrom(described(data, row_format, rows, self._model.offer.width))
            if last:
                block.sequence = wanted.number
                block.ask.bonus, block.ask.context_length = wanted.bonus, wanted.position
                block.ask.count, block.ask.token_hash = wanted.count, token_hash.with_bonus(wanted.bonus)
                session.owed += 1
            self._tell(session, block)
            for chunk in chunks(data, block.sequence):
                self._tell(session, chunk)
        # Also where all rows before it are gone, since a session that opens late: its context begins there, too.
        session.sent = wanted.position
        session.marks = dict(list({**marks, session.sent: token_hash}.items())[-MOST_MARKS:])
        session.due = session.due or session.queued
        if self._silent_since_s is None:
            self._silent_since_s = self._model.now_s()

    def _tell(self, session: _Session, message: Message) -> None:
        self.traffic.count_sent(message)
        session.queued += 1
        session.line.send(message)

    def _leave(self, session: _Session) -> None:
        """Take that a message has left: what is still on its way to a server cannot be answered yet."""
        session.left += 1
        if session.left <= session.due and self._silent_since_s is not None:
            self._silent_since_s = self._model.now_s()

    def _end(self, session: _Session, status: str, message: str) -> None:
        """Take that a stream ended: what was asked will not come; try again later."""
        keep = status in {"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL", "OK"}
        why = LOST if session.identity else UNREACHED
        if status == "FAILED_PRECONDITION" and not session.identity:
            # Other weights: its server may be started with these again.
            why = f"the remote drafter was refused: {printable(message)}"
        self._drop(why, resumable=keep)

    def _drop(self, why: str, resumable: bool = False) -> None:
        """Give a session up; nothing is asked until the next ask after a pause that doubles."""
        session, self._session, self._why, self._lost = self._session, None, why, True
        self._wanted, self._silent_since_s, self._resumable = None, None, None
        if session is not None:
            if resumable and session.identity and session.marks:
                self._resumable = session.identity, session.marks
            session.line.close(None)
        self._retry_at_s = self._model.now_s() + self._retry_s
        self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)
        self._changed.notify_all()


def _blocks_of(observed: list[Observed]) -> list[list[Observed]]:
    """Return what was observed in blocks of bounded tokens, at least one."""
    parts: list[list[Observed]] = [[]]
    tokens = 0
    for each in observed:
        if tokens + len(each.tokens) > MOST_BLOCK_TOKENS and parts[-1]:
            parts.append([])
            tokens = 0
        parts[-1].append(each)
        tokens += len(each.tokens)
    return parts
