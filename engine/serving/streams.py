"""One answer on its way: a request's steps, one forward a turn, and what of them its client is told."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from engine.errors import EngineError
from engine.generation.answer import Answer, GenerationRequest, answering, sampled
from engine.generation.conversation import Conversation
from engine.generation.score import Score, scoring
from engine.loading import Engine
from engine.protocols import Accept, Depth
from engine.tokenizer import Tokenizer
from engine.types import StopReason
from engine.verification.rejection import Sampling

LENGTH_REASONS: Final = frozenset({StopReason.BUDGET, StopReason.CONTEXT})
"""What OpenAI calls `length`; all other reasons are `stop`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one client wants decoded.

    Attributes:
        request: prompt, budget and stops; a budget of 0 scores the prompt alone.
        sampling: how to draw, None for greedy decoding.
        score_answer: whether the log probability of each token of the answer is wanted.
        score_prompt: whether those of the prompt's tokens are.
    """

    request: GenerationRequest
    sampling: Sampling | None = None
    score_answer: bool = False
    score_prompt: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that will not be taken back.

    Attributes:
        thought: whether it belongs to what the model thinks and not to its answer.
    """

    text: str
    thought: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer.

    Attributes:
        answer: None where only the prompt was scored.
        score: of what was asked to be scored.
    """

    answer: Answer | None
    score: Score | None

    @property
    def text(self) -> str:
        """The answer's text."""
        return "" if self.answer is None else self.answer.text

    @property
    def tokens(self) -> tuple[int, ...]:
        """The answer's tokens."""
        return () if self.answer is None else self.answer.tokens

    @property
    def reason(self) -> str:
        """Why it ended, in OpenAI's word."""
        ended_by_length = self.answer is None or self.answer.stop_reason in LENGTH_REASONS
        return "length" if ended_by_length else "stop"


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer that could not be made.

    Attributes:
        error: what the engine says, in one sentence.
    """

    error: EngineError


Event = Piece | Finished | Failed
Deliver = Callable[[Event], None]


@dataclass(eq=False)
class Ticket:
    """A request that was handed over: its client may leave it at any time.

    Attributes:
        ask: what is wanted.
        deliver: called with each event in the thread that steps; must return at once.
    """

    ask: Ask
    deliver: Deliver
    _left: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Say that nobody waits for the answer any more."""
        self._left.set()

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it."""
        return self._left.is_set()


class Stream:
    """An answer that is being made, a forward a turn.

    Args:
        engine: what decodes it.
        tokenizer: of its target.
        ticket: what is wanted, and by whom.
        depth: makes a policy for this answer alone; its counts and pauses are the answer's own.
        conversation: caches that may hold the beginning of the prompt, None to begin with empty ones.

    Attributes:
        measured_bytes: of its caches, after its last turn.
        failed: whether it ended without an answer.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        ticket: Ticket,
        depth: Callable[[], Depth],
        conversation: Conversation | None,
    ) -> None:
        self.ticket = ticket
        self.answer: Answer | None = None
        self.failed = False
        self.measured_bytes = 0
        self._engine, rule = sampled(engine, ticket.ask.sampling)
        # A drafter that draws belongs to one rule, and its caches to one answer.
        self.conversation = conversation or Conversation(self._engine, ticket.ask.request.layout)
        self._forwards = self._make(tokenizer, (rule, depth()))

    def step(self) -> bool:
        """Take one more forward; return whether there is another to take."""
        try:
            try:
                next(self._forwards)
            finally:
                # Where memory ran out this may fail again: what is measured first takes in the rows that wait.
                self.measured_bytes = self.conversation.measured_bytes()
        except StopIteration:
            return False
        except Exception as error:  # noqa: BLE001 - a fault in one answer is no other's
            self.failed = True
            self.ticket.deliver(Failed(_told(error)))
            return False
        return True

    def close(self) -> None:
        """Leave the answer where it is."""
        self._forwards.close()

    def _make(self, tokenizer: Tokenizer, rule: tuple[Accept, Depth]) -> Generator[None, None, None]:
        ask, answer, score = self.ticket.ask, None, None
        request = ask.request
        if request.max_new_tokens:
            steps = answering(
                self._engine,
                tokenizer,
                request,
                rule,
                lambda text: self.ticket.deliver(Piece(text)),
                conversation=self.conversation,
                think=lambda text: self.ticket.deliver(Piece(text, thought=True)),
            )
            while answer is None:
                try:
                    next(steps)
                except StopIteration as end:
                    answer = end.value
                yield
        if ask.score_prompt or (ask.score_answer and answer is not None and answer.tokens):
            tokens = request.prompt if answer is None else (*request.prompt, *answer.tokens)
            first = 1 if ask.score_prompt else len(request.prompt)
            if len(tokens) > first:
                score = yield from scoring(self._engine, tokens, request.layout, first, request.chunk_tokens)
        self.answer = answer
        self.ticket.deliver(Finished(answer, score))


def _told(error: Exception) -> EngineError:
    """Return what a client is told; a fault of this program is printed here and not there."""
    if isinstance(error, EngineError):
        return error
    traceback.print_exception(error, file=sys.stderr)
    return EngineError(f"a fault of the server ({type(error).__name__}); its log says more")
