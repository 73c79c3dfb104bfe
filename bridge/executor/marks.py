"""The sample pipe: turn the workload's marks into records timestamped on arrival.

Knows nothing about what a sample is. The workload writes the lines, so every one is bounded, checked and counted; a bad
one is dropped.
"""

from __future__ import annotations

import json
from typing import Final

from pydantic import ValidationError

from bridge.limits import SAMPLE_MARK_MAX_BYTES, SAMPLE_MARKS_MAX_COUNT
from bridge.records import SampleMark

_FIELDS: Final = frozenset({"event", "sample", "token_digest"})


class MarkReader:
    """Collects the marks of one run; the same pipe serves all its commands.

    Attributes:
        marks: accepted marks in order of arrival.
        dropped: lines that were too long, too many or no marks.
    """

    def __init__(self, max_count: int = SAMPLE_MARKS_MAX_COUNT, max_line_bytes: int = SAMPLE_MARK_MAX_BYTES) -> None:
        self.marks: list[SampleMark] = []
        self.dropped = 0
        self._max_count = max_count
        self._max_line_bytes = max_line_bytes
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
        mark = None if skipping or len(self.marks) >= self._max_count else self._parse(line, t_s)
        if mark is None:
            self.dropped += 1
        else:
            self.marks.append(mark)

    def _parse(self, line: bytes, t_s: float) -> SampleMark | None:
        """Return the mark of a line, or None when it is not one."""
        if len(line) > self._max_line_bytes:
            return None
        try:
            value = json.loads(line)
            if not isinstance(value, dict) or not value.keys() <= _FIELDS:
                return None
            return SampleMark(
                event=value["event"], sample=value["sample"], token_digest=value.get("token_digest"), t_s=t_s
            )
        except (ValueError, KeyError, RecursionError, ValidationError):
            return None

    def end(self) -> None:
        """Count a line that was never finished."""
        self.dropped += bool(self._partial) or self._skipping
        self._partial.clear()
        self._skipping = False
