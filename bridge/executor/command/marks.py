"""The sample pipe: turn the workload's marks into records timestamped on arrival.

Knows nothing about what a sample is. The workload writes the lines, so every one is bounded, checked and counted; a bad
one is dropped.
"""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final

from pydantic import ValidationError

from bridge.executor.command.redaction import patterns
from bridge.limits import SAMPLE_MARK_MAX_BYTES, SAMPLE_MARKS_MAX_BYTES, SAMPLE_MARKS_MAX_COUNT
from bridge.records.run import SampleMark

_POLL_MS: Final = 100
_READ_BYTES: Final = 65536
_LAST_READS: Final = 16  # when the command is over: as much as a pipe can hold, and no writer keeps us for ever
_ADDED_BYTES: Final = 64  # at most, to a line that becomes a record: its time, and that there is no digest
_FIELDS: Final = frozenset({"event", "sample", "token_digest"})
_PLAN: Final = frozenset({"event", "samples"})


class MarkReader:
    """Collects the marks of one run; the same pipe serves all its commands.

    Attributes:
        marks: accepted marks in order of arrival.
        bytes: what they take in the record of a run, at most.
        dropped: lines that were too long, too many or no marks.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        max_count: int = SAMPLE_MARKS_MAX_COUNT,
        max_line_bytes: int = SAMPLE_MARK_MAX_BYTES,
        on_mark: Callable[[SampleMark], None] | None = None,
        on_plan: Callable[[int], None] | None = None,
        *,
        max_bytes: int = SAMPLE_MARKS_MAX_BYTES,
    ) -> None:
        """Begin.

        Args:
            secrets: a mark that shows one is dropped, for marks are published.
            max_count: marks beyond this are dropped.
            max_line_bytes: a longer line is dropped.
            on_mark: gets each accepted mark as it comes.
            on_plan: gets how many samples the program says that it will go through.
            max_bytes: marks that would take more than this together are dropped.
        """
        self._patterns = tuple(pattern for secret in secrets for pattern in patterns(secret))
        self.marks: list[SampleMark] = []
        self.bytes = self.dropped = 0
        self._max_count, self._max_bytes = max_count, max_bytes
        self._max_line_bytes = max_line_bytes
        self._on_mark, self._on_plan = on_mark, on_plan
        self._partial = bytearray()
        self._skipping = False

    def feed(self, block: bytes, t_s: float) -> None:
        """Take bytes that arrived at this moment, in seconds since the run's start."""
        *lines, rest = block.split(b"\n")
        for line in lines:
            self._partial += line[: self._max_line_bytes + 1]
            self._finish_line(t_s)
        self._partial += rest[: self._max_line_bytes + 1]
        if len(self._partial) > self._max_line_bytes:
            self._skipping = True
            self._partial.clear()

    def _finish_line(self, t_s: float) -> None:
        line, skipping = bytes(self._partial), self._skipping
        self._partial.clear()
        self._skipping = False
        if not line and not skipping:
            return
        size = len(line) + _ADDED_BYTES
        full = len(self.marks) >= self._max_count or self.bytes + size > self._max_bytes
        parsed = None if skipping or full else self._parse(line, t_s)
        if parsed is None:
            self.dropped += 1
        elif isinstance(parsed, int):
            if self._on_plan is not None:
                self._on_plan(parsed)
        else:
            self.marks.append(parsed)
            self.bytes += size
            if self._on_mark is not None:
                self._on_mark(parsed)

    def _parse(self, line: bytes, t_s: float) -> SampleMark | int | None:
        """Return the mark of a line, the number of samples of a plan, or None when it is neither."""
        if len(line) > self._max_line_bytes:
            return None
        try:
            value = json.loads(line)
            if isinstance(value, dict) and value.keys() == _PLAN and value["event"] == "plan":
                return _samples(value["samples"])
            if not isinstance(value, dict) or not value.keys() <= _FIELDS:
                return None
            mark = SampleMark(
                event=value["event"], sample=value["sample"], token_digest=value.get("token_digest"), t_s=t_s
            )
        except (ValueError, KeyError, RecursionError, ValidationError):
            return None
        shown = mark.sample.encode("utf-8", "surrogatepass")
        return None if any(pattern in shown for pattern in self._patterns) else mark

    def end(self) -> None:
        """Count a line that was never finished."""
        self.dropped += bool(self._partial) or self._skipping
        self._partial.clear()
        self._skipping = False


def _samples(value: object) -> int | None:
    """Return a number of samples that can be, else None; a plan is shown and never judged."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= SAMPLE_MARKS_MAX_COUNT:
        return None
    return value


class MarkListener:
    """Reads one command's pipe in a thread of its own: a long look at processes or a slow log delays no mark."""

    def __init__(
        self, reader: MarkReader, descriptor: int, elapsed_s: Callable[[], float], alive: Callable[[], None]
    ) -> None:
        """Prepare to listen.

        Args:
            reader: takes what arrives.
            descriptor: the pipe's reading end, which does not block.
            elapsed_s: returns the seconds since the run's start.
            alive: is told of every sign of life.
        """
        self._reader = reader
        self._descriptor = descriptor
        self._elapsed_s = elapsed_s
        self._alive = alive
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="kakeya-marks", daemon=True)

    def __enter__(self) -> MarkListener:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Read what is still in the pipe and end; with nobody left to write, that is at once."""
        self._over.set()
        self._thread.join()

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        reads_left = _LAST_READS
        while (poll.poll(_POLL_MS) or not self._over.is_set()) and reads_left > 0:
            reads_left -= self._over.is_set()
            try:
                block = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                continue
            if not block:
                return
            self._reader.feed(block, self._elapsed_s())
            self._alive()
