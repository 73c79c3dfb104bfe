"""Decodes that take turns of a few tokens, so that a machine whose speed wanders slows all of them alike.

Whole decodes one after the other are compared across seconds in which a shared machine may change its speed by half.
Here a decode goes on for ``SLICE_TOKENS`` tokens, waits until its device is idle, and lets the next one go on; only its
own turns count as its time. The prefill is the first turn.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from engine.protocols import Clock

SLICE_TOKENS = 16
Arrival = tuple[int, tuple[int, ...]]
"""Host nanoseconds at which tokens were there, and the tokens."""


class HeldDecode(Protocol):
    """A decode that can be held between tokens."""

    def advance(self, tokens: int) -> list[Arrival]:
        """Go on until ``tokens`` tokens have come in all, or to the end; return what came now."""

    def close(self) -> None:
        """End, finished or not."""


class Pulled:
    """A decode that is a generator of the tokens of each step."""

    def __init__(self, steps: Generator[tuple[int, ...]], clock: Clock) -> None:
        self._steps = steps
        self._clock = clock
        self._have = 0

    def advance(self, tokens: int) -> list[Arrival]:
        """Take steps until enough tokens have come."""
        arrivals: list[Arrival] = []
        while self._have < tokens and (step := next(self._steps, None)) is not None:
            self._have += len(step)
            arrivals.append((self._clock.host_ns(), step))
        return arrivals

    def close(self) -> None:
        """Close the generator."""
        self._steps.close()


class Pushed:
    """A decode inside one call that hands each token to a ``put``: it runs in a thread and is held inside ``put``.

    It is held only where a turn ends, so within a turn the call runs as if it were alone.
    """

    def __init__(self, decode: Callable[[Callable[[tuple[int, ...]], None]], None], clock: Clock) -> None:
        self._decode = decode
        self._clock = clock
        self._orders: SimpleQueue[int | None] = SimpleQueue()
        self._answered: SimpleQueue[BaseException | None] = SimpleQueue()
        self._allowed = self._have = 0
        self._arrivals: list[Arrival] = []
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def advance(self, tokens: int) -> list[Arrival]:
        """Let the call go on until enough tokens have come.

        Raises:
            BaseException: What the call raised.
        """
        if not self._ended and self._have < tokens:
            self._orders.put(tokens)
            error = self._answered.get()
            if error is not None:
                raise error
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def close(self) -> None:
        """Make a call that is held leave through an exception, and wait for its thread."""
        if not self._ended:
            self._orders.put(None)
        self._thread.join()

    def _put(self, tokens: tuple[int, ...]) -> None:
        self._arrivals.append((self._clock.host_ns(), tokens))
        self._have += len(tokens)
        if self._have >= self._allowed:
            self._answered.put(None)
            self._hold()

    def _hold(self) -> None:
        allowed = self._orders.get()
        if allowed is None:
            raise _ClosedError
        self._allowed = allowed

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._hold()
            self._decode(self._put)
        except _ClosedError:
            return
        except BaseException as raised:  # noqa: BLE001 - whatever it is belongs to the thread that asked
            error = raised
        self._ended = True
        self._answered.put(error)


class _ClosedError(Exception):
    """The decode is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One decode: seconds from the first token to the moment when ``tokens[i]`` tokens were there."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]

    def until(self, tokens: int) -> tuple[int, float]:
        """Return the first (tokens, seconds) at which at least ``tokens`` were there."""
        return next((have, at) for have, at in zip(self.tokens, self.seconds, strict=True) if have >= tokens)


class Decode:
    """The account of one decode: only its own turns count, each with the work it leaves queued.

    ``first_s`` are the seconds from the idle device to the first token.
    """

    def __init__(self, running: HeldDecode, clock: Clock) -> None:
        self._running = running
        self._clock = clock
        self._spent_ns = 0
        self._counts: list[int] = []
        self._seconds: list[float] = []
        self.tokens: list[int] = []
        began_ns = clock.now_ns()
        self._take(running.advance(1), 0, None)
        self.first_s = (clock.host_ns() - began_ns) / 1e9
        clock.now_ns()

    @property
    def arrivals(self) -> Arrivals:
        """The seconds at which each count of tokens was on the host."""
        return Arrivals(tuple(self._counts), tuple(self._seconds))

    def advance(self, tokens: int) -> bool:
        """Decode until there are ``tokens`` tokens, or to the end; return whether there may be more."""
        began_ns = self._clock.now_ns()
        self._take(self._running.advance(tokens), self._spent_ns, began_ns)
        self._spent_ns += self._clock.now_ns() - began_ns
        return len(self.tokens) >= tokens

    def close(self) -> None:
        """End, finished or not."""
        self._running.close()

    def _take(self, arrivals: Sequence[Arrival], spent_ns: int, began_ns: int | None) -> None:
        for at_ns, tokens in arrivals:
            self.tokens.extend(tokens)
            self._counts.append(len(self.tokens))
            self._seconds.append(0.0 if began_ns is None else (spent_ns + at_ns - began_ns) / 1e9)


def take_turns(decodes: Sequence[Decode], chooser: random.Random, slice_tokens: int = SLICE_TOKENS) -> None:
    """Decode all to their ends in turns of ``slice_tokens``, each round in a freshly drawn order."""
    going = list(decodes)
    tokens = 1
    while going:
        tokens += slice_tokens
        chooser.shuffle(going)
        going = [decode for decode in going if decode.advance(tokens)]
