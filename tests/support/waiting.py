"""Waiting until something holds, without asking so often that asking is most of the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 240.0
PAUSE_S = 0.05
_Answer = TypeVar("_Answer")


def until(
    question: Callable[[], _Answer],
    *,
    patience_s: float = PATIENCE_S,
    why: str | Callable[[], str] = "it did not happen",
) -> _Answer:
    """Return the first true answer; how long that takes is nobody's promise, only that it happens.

    After a question that took long, one that starts git or a command, the pause is three times as long as that.

    Args:
        question: what is asked again and again.
        patience_s: only ends a broken test.
        why: what is said then.
    """
    deadline = time.monotonic() + patience_s
    while True:
        began = time.monotonic()
        answer = question()
        if answer:
            return answer
        now = time.monotonic()
        if now >= deadline:
            raise AssertionError(f"{why if isinstance(why, str) else why()}, within {patience_s} s")
        time.sleep(max(PAUSE_S, 3 * (now - began)))
