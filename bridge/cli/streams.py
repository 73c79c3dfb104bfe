"""The standard streams of a process, whatever it was started with: closed, full, left by a reader, or not in UTF-8."""

from __future__ import annotations

import os
import sys
from typing import TextIO

READER_LEFT = 141
"""What a shell says of a program that SIGPIPE ended: nobody knows how it would have ended."""


def prepare() -> None:
    """Make both streams safe to write to: a closed one takes everything, a character that one lacks is spelled out."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (lives as long as the process)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Throw away what stdout still gets: Python would complain about it while shutting down."""
    discard(sys.stdout)


def discard(stream: TextIO) -> None:
    """Throw away what a stream still gets, and what it holds."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def end_together(first: TextIO, second: TextIO) -> bool:
    """Return whether two streams lead to the same place, as after ``2>&1``."""
    try:
        return os.path.samestat(os.fstat(first.fileno()), os.fstat(second.fileno()))
    except (OSError, ValueError):
        return False
