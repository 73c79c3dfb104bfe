"""The one thread that touches arrays: it steps the answers in turn, and lets another begin where its bytes fit.

HTTP only hands over tickets and gets events. Every answer takes one forward a turn, so a short one behind a long one
waits for turns and not for its end; a prompt's prefill is one turn. Caches of ended conversations stay until their
bytes are needed, and a prompt that begins like one of them goes on from there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from engine.errors import EngineError, PromptError
from engine.generation.conversation import Conversation
from engine.loading import Engine
from engine.protocols import Depth
from engine.serving.streams import Failed, Stream, Ticket
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

IDLE_MAX: Final = 8
"""Ended conversations whose caches stay."""


class BusyError(EngineError):
    """Report a server that takes no more requests now."""


class ClosingError(BusyError):
    """Report a server that is shutting down."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a server holds at once.

    Attributes:
        streams: answers that are stepped in turn.
        waiting: requests beyond them that wait.
        cache_bytes: of all caches and drafters' states, idle ones included.
    """

    streams: int = 8
    waiting: int = 64
    cache_bytes: int = 4 << 30


@dataclass
class Counts:
    """What has happened since the start; read by any thread, written by the one that steps."""

    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    answer_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    target_forwards: int = 0


@dataclass(frozen=True, slots=True)
class Decoder:
    """What answers are made with.

    Attributes:
        engine: the target and its drafter.
        tokenizer: the target's.
        depths: makes the depth policy of one answer, by whether its rule draws.
    """

    engine: Engine
    tokenizer: Tokenizer
    depths: Callable[[bool], Depth]


class Scheduler:
    """Steps answers in turn.

    Args:
        load: opens what decodes; called in the stepping thread, for MLX's arrays belong to the thread that made them.
        layout: of every cache.
        bounds: what is held at once.

    Attributes:
        counts: what has happened since the start.
        held_bytes: measured bytes of all caches after the last round of turns, those of ended conversations included.
    """

    def __init__(self, load: Callable[[], Decoder], layout: CacheLayout, bounds: Bounds) -> None:
        self.bounds = bounds
        self.counts = Counts()
        self._load, self._layout = load, layout
        self._loaded: Future[Decoder] = Future()
        self._change = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._active: deque[Stream] = deque()
        self._idle: list[Conversation] = []
        self._position_bytes: dict[int, float] = {}
        """By the bits of a number of positions, the most that one was seen to take in a cache of as many."""
        self.held_bytes = 0
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)

    def start(self) -> Decoder:
        """Begin to step; return what decodes, once it is open.

        Raises:
            EngineError: What opening it raised.
        """
        self._thread.start()
        return self._loaded.result()

    def submit(self, ticket: Ticket) -> None:
        """Hand a request over; its events come in the stepping thread.

        Raises:
            BusyError: As many wait as may, or the server ends.
        """
        with self._change:
            if self._ends:
                raise ClosingError("the server is shutting down; ask again in a moment")
            if len(self._waiting) >= self.bounds.waiting:
                raise BusyError(f"{len(self._waiting)} requests wait already; ask again in a moment")
            self._waiting.append(ticket)
            self._change.notify()

    def stop(self) -> None:
        """End every answer that is still being made, and the thread."""
        with self._change:
            self._ends = True
            self._change.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether answers are being stepped: the thread has not ended by a fault."""
        return self._thread.is_alive()

    @property
    def active(self) -> int:
        """How many answers are being made."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """How many requests have not begun."""
        return len(self._waiting)

    @property
    def idle(self) -> int:
        """How many ended conversations hold caches."""
        return len(self._idle)

    def _run(self) -> None:
        try:
            decoder = self._load()
        except BaseException as error:  # noqa: BLE001 - it is raised where the server is started
            self._loaded.set_exception(error)
            return
        self._loaded.set_result(decoder)
        with decoder.engine.resident():
            try:
                while self._await_work():
                    self._admit(decoder)
                    for _ in range(len(self._active)):
                        self._take_turn(self._active[0])
                    self._measure()
            finally:
                self._dismiss()
        decoder.engine.backend.leave_thread()

    def _dismiss(self) -> None:
        """Tell everybody who still waits that nothing comes, whatever ended the thread: else they would for ever."""
        with self._change:
            self._ends = True
        for stream in self._active:
            stream.ticket.deliver(Failed(ClosingError("the server was shut down before the answer was whole")))
        for ticket in self._waiting:
            ticket.deliver(Failed(ClosingError("the server was shut down before the answer began")))
        self._waiting.clear()
        self._idle.clear()
        while self._active:
            self._active.popleft().close()

    def _await_work(self) -> bool:
        """Wait for something to do; return whether to go on."""
        with self._change:
            while not (self._ends or self._waiting or self._active):
                self._change.wait()
            return not self._ends

    def _take_turn(self, stream: Stream) -> None:
        """Step the first of the active answers and put it behind the others, or take it out when it has ended."""
        if stream.ticket.cancelled:
            stream.close()
            self._active.popleft()
            self.counts.cancelled += 1
        elif stream.step():
            self._active.rotate(-1)
        else:
            self._active.popleft()
            self._end(stream)

    def _end(self, stream: Stream) -> None:
        counts, answer = self.counts, stream.answer
        counts.failed += stream.failed
        counts.finished += not stream.failed
        if answer is not None:
            counts.prompt_tokens += answer.prompt_tokens
            counts.reused_tokens += answer.reused_tokens
            counts.answer_tokens += len(answer.tokens)
            counts.drafted_tokens += answer.drafted_tokens
            counts.accepted_tokens += answer.accepted_tokens
            counts.target_forwards += answer.target_forwards
        if answer is not None and not stream.failed and stream.ticket.ask.sampling is None:
            self._idle.append(stream.conversation)
            del self._idle[:-IDLE_MAX]
        self._learn(stream)

    def _learn(self, stream: Stream) -> None:
        """Learn from a live cache what a position of one so long takes."""
        if positions := stream.conversation.positions:
            size = positions.bit_length()
            self._position_bytes[size] = max(self._position_bytes.get(size, 0.0), stream.measured_bytes / positions)

    def _measure(self) -> None:
        """Measure what is held after a round of turns; end an answer that takes more than all caches may."""
        for stream in self._active:
            self._learn(stream)
        live = sum(stream.measured_bytes for stream in self._active)
        if live > self.bounds.cache_bytes and len(self._active) == 1:
            self._give_up(self._active.popleft())
            live = 0
        self.held_bytes = live + self._idle_bytes()

    def _give_up(self, stream: Stream) -> None:
        """End an answer by what was measured: what it may come to take is reckoned too high where little is known."""
        self.counts.failed += 1
        text = f"the answer takes {stream.measured_bytes} bytes of cache and the server has {self.bounds.cache_bytes}"
        stream.ticket.deliver(Failed(PromptError(f"{text}; lower max_tokens or shorten the prompt")))
        stream.close()

    def _admit(self, decoder: Decoder) -> None:
        """Begin the requests that have waited longest, as far as they fit."""
        self._forget_left()
        while self._waiting and len(self._active) < self.bounds.streams:
            ticket = self._waiting[0]
            if not self._make_room(self._bytes_of(ticket)):
                return
            self._active.append(self._begin(decoder, ticket))
            self._waiting.popleft()

    def _forget_left(self) -> None:
        """Take out the requests that their clients left, wherever they wait: they keep nobody else from waiting."""
        with self._change:
            staying = [ticket for ticket in self._waiting if not ticket.cancelled]
            self.counts.cancelled += len(self._waiting) - len(staying)
            self._waiting = deque(staying)

    def _bytes_of(self, ticket: Ticket) -> int:
        """Return what an answer may come to take, 0 before any cache was measured.

        It goes by live caches about as long, else by the next shorter ones, whose positions take no less: a cache grows
        by many positions at once, and sliding layers keep a window alone.
        """
        ask = ticket.ask
        caches = 2 if ask.score_prompt or ask.score_answer else 1  # scoring fills a cache of its own
        positions = len(ask.request.prompt) + ask.request.max_new_tokens
        shorter = [size for size in self._position_bytes if size <= positions.bit_length()]
        nearest = max(shorter, default=min(self._position_bytes, default=0))
        return int(self._position_bytes.get(nearest, 0.0) * caches * positions)

    def _make_room(self, needed: int) -> bool:
        """Let go of idle caches, oldest first, until so many bytes fit; return whether to begin.

        What may never fit goes alone: only what it is measured to take tells whether it is too much.
        """
        if self._active and not self._position_bytes:
            return False  # nothing is known yet of what an answer takes: the first goes alone until it is measured
        reckoned_bytes = needed + sum(self._bytes_of(stream.ticket) for stream in self._active)
        if self._active and reckoned_bytes > self.bounds.cache_bytes:
            return False
        while self._idle and reckoned_bytes + self._idle_bytes() > self.bounds.cache_bytes:
            del self._idle[0]
        return True

    def _idle_bytes(self) -> int:
        return sum(each.measured_bytes() for each in self._idle)

    def _begin(self, decoder: Decoder, ticket: Ticket) -> Stream:
        drawn = ticket.ask.sampling is not None
        conversation = None if drawn else self._take_idle(ticket.ask.request.prompt)
        return Stream(decoder.engine, decoder.tokenizer, ticket, lambda: decoder.depths(drawn), conversation)

    def _take_idle(self, prompt: tuple[int, ...]) -> Conversation | None:
        """Take the ended conversation that holds most of a prompt's beginning, if that is at least half of its own."""
        best = max(self._idle, key=lambda each: each.shared(prompt), default=None)
        if best is None or 2 * best.shared(prompt) < best.positions:
            return None
        self._idle.remove(best)
        return best
