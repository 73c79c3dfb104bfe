"""The turn pipe: orders to a program, answers from it, one JSON object a line. See docs/turns.md.

The program writes the answers, so every line is bounded and checked, and a wrong one ends the launch.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable
from typing import Any, Final

PROTOCOL: Final = 1
LINE_MAX_BYTES: Final = 4096
_POLL_MS: Final = 100
_UNASKED: Final = "it answered what nobody asked"


class TurnPipeError(Exception):
    """The program's side of the pipe ended, or said what it may not say; the text is one line for people."""


class TurnPipe:
    """The supervisor's ends of both pipes of one launch.

    Args:
        orders: descriptor that orders are written to; blocking.
        answers: descriptor that answers are read from; it does not block from here on.
        over: asked while waiting; True ends the wait.
    """

    def __init__(self, orders: int, answers: int, over: Callable[[], bool]) -> None:
        self._orders, self._answers, self._over = orders, answers, over
        self._pending = b""
        os.set_blocking(answers, False)

    def order(self, **fields: object) -> float:
        """Write one order; return the stamp taken just before.

        Raises:
            TurnPipeError: the program does not read any more, or has answered before it was asked: its turn would be
                over as it begins.
        """
        if self._answered():
            raise TurnPipeError(_UNASKED)
        line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        stamp_s = time.monotonic()
        try:
            os.write(self._orders, line)  # shorter than PIPE_BUF: whole or not at all
        except OSError as error:
            raise TurnPipeError(f"it takes no orders: {error.strerror}") from error
        return stamp_s

    def answer(self, event: str) -> tuple[dict[str, Any], float]:
        """Wait for the next answer, which must be this event; return it with the stamp of its arrival.

        Raises:
            TurnPipeError: the pipe ended, or another thing was said.
        """
        line, stamp_s = self._line()
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TurnPipeError(f"{event} was expected, not {line[:80]!r}") from error
        if not isinstance(answer, dict) or answer.get("event") != event:
            raise TurnPipeError(f"{event} was expected, not {line[:80]!r}")
        return answer, stamp_s

    def _line(self) -> tuple[bytes, float]:
        stamp_s = time.monotonic()
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        while b"\n" not in self._pending:
            if not poll.poll(_POLL_MS):
                if self._over():
                    raise TurnPipeError("the launch was ended")
                continue
            try:
                block = os.read(self._answers, LINE_MAX_BYTES)
            except BlockingIOError:
                continue
            stamp_s = time.monotonic()
            if not block:
                raise TurnPipeError("it ended before its last turn")
            self._pending += block
            if len(self._pending) > LINE_MAX_BYTES:
                raise TurnPipeError(f"an answer is longer than {LINE_MAX_BYTES} bytes")
        line, _, self._pending = self._pending.partition(b"\n")
        if self._pending:
            raise TurnPipeError(_UNASKED)
        return line, stamp_s

    def _answered(self) -> bool:
        """Return whether anything was said; a pipe that ended is for whoever waits for an answer."""
        try:
            return bool(self._pending or os.read(self._answers, 1))
        except BlockingIOError:
            return False
