"""How long a call of git may take: up to its limit, and where that is asked for no longer than it makes progress."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from itertools import repeat
from typing import IO

from bridge.system.git import STDERR_MAX_BYTES, collect

TURN_S, QUIET_S = 0.02, 0.1
PROGRESS = b"Writing objects: 12%\r"


class Talker:
    """A program that says one word more whenever somebody looks at it, then keeps quiet and does not end by itself."""

    pid = 2**31 - 1  # of no process
    stdin: IO[bytes] | None = None

    def __init__(self, words: Iterator[bytes]) -> None:
        (out, self._out), (err, self._err) = os.pipe(), os.pipe()
        self.stdout: IO[bytes] | None = os.fdopen(out, "rb")
        self.stderr: IO[bytes] | None = os.fdopen(err, "rb")
        self._words = words

    def poll(self) -> int | None:
        """Say a word; return None, as it runs."""
        time.sleep(TURN_S)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._err, next(self._words, b""))
        return None

    def wait(self, timeout: float | None = None) -> int:
        """End as one that was killed."""
        os.close(self._out)
        os.close(self._err)
        return -9


def test_a_call_goes_on_while_it_makes_progress_and_ends_when_it_makes_none() -> None:
    began_s = time.monotonic()
    finished = collect(Talker(repeat(PROGRESS, 30)), 60.0, quiet_s=QUIET_S)
    assert finished.timed_out
    assert finished.stderr.count("Writing") == 30
    assert 30 * TURN_S + QUIET_S <= time.monotonic() - began_s < 60.0


def test_a_call_that_makes_progress_ends_at_its_limit_all_the_same() -> None:
    assert collect(Talker(repeat(PROGRESS)), 0.1, quiet_s=60.0).timed_out


def test_the_last_words_of_a_call_that_said_much_are_kept() -> None:
    words = iter([PROGRESS * (STDERR_MAX_BYTES // 2 // len(PROGRESS))] * 4 + [b"fatal: the end\n"])
    assert collect(Talker(words), 60.0, quiet_s=QUIET_S).stderr.endswith("fatal: the end\n")
