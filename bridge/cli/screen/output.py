"""Where words go: stdout is data, stderr is talk. The only place that knows about terminals and colours.

Everything shown here that a stranger wrote has passed `bridge.client.document.untrusted` before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

LABEL_CHARS: Final = 6
DATA_LABEL_CHARS: Final = 12
_COLOURS: Final = {"error": "31", "next": "36", "passed": "32", "rejected": "31", "warn": "33"}


@dataclass
class Output:
    """The two streams of a command.

    Attributes:
        json: whether stdout is one JSON document; talk goes on.
        lines: whether stdout is one JSON document a line, events first.
        live: whether stderr is a terminal that understands cursor movement.
        colour: whether escapes may be written at all.
    """

    stdout: TextIO
    stderr: TextIO
    json: bool = False
    live: bool = False
    colour: bool = False
    lines: bool = False
    _open_line: bool = False

    def say(self, label: str, text: str) -> None:
        """Write one labelled line of talk; further lines of the text are indented."""
        first, *more = text.split("\n")
        self.end_line()
        self._talk(f"{self._painted(label, LABEL_CHARS)}{first}\n")
        for line in more:
            self._talk(f"{'':<{LABEL_CHARS}}{line}\n")

    def note(self, text: str) -> None:
        """Write one line of talk as it is."""
        self.end_line()
        self._talk(f"{text}\n")

    def append(self, text: str) -> None:
        """Write a piece of the timeline; pieces share a line until something else is said."""
        self._talk(f" · {text}" if self._open_line else text)
        self._open_line = True

    def end_line(self) -> None:
        """End the line of an open timeline."""
        if self._open_line:
            self._open_line = False
            self._talk("\n")

    def row(self, label: str, text: str, width: int = DATA_LABEL_CHARS) -> None:
        """Write one labelled line of data, its text `width` characters in; nothing under --json."""
        self.data(f"{self._painted(label, width)}{text}")

    def data(self, line: str = "") -> None:
        """Write one line of data; nothing under --json."""
        if not self.json:
            self.end_line()
            self.stdout.write(f"{line}\n")
            self.stdout.flush()

    def document(self, value: Mapping[str, Any]) -> None:
        """Write the one JSON document; nothing without --json."""
        if self.lines:
            from bridge.client.document.event import result_line

            self.event(result_line(dict(value)))
        elif self.json:
            self.end_line()
            json.dump(value, self.stdout, indent=2, ensure_ascii=True, allow_nan=False)
            self.stdout.write("\n")
            self.stdout.flush()

    def event(self, value: Mapping[str, Any]) -> None:
        """Write one JSON document on one line."""
        self.end_line()
        self.stdout.write(json.dumps(value, ensure_ascii=True, allow_nan=False) + "\n")
        self.stdout.flush()

    def _painted(self, label: str, width: int) -> str:
        padded = f"{label:<{width}}" if len(label) < width else f"{label} "
        code = _COLOURS.get(label)
        return f"\x1b[{code}m{padded}\x1b[0m" if self.colour and code else padded

    def _talk(self, text: str) -> None:
        self.stderr.write(text)
        self.stderr.flush()


def make_output(
    stdout: TextIO, stderr: TextIO, environment: Mapping[str, str], *, as_json: bool, as_lines: bool = False
) -> Output:
    """Return the output of a command, as its streams and NO_COLOR ask for."""
    terminal = stderr.isatty() and environment.get("TERM", "dumb") != "dumb"
    no_colour = bool(environment.get("NO_COLOR"))
    quiet = as_json or as_lines
    return Output(
        stdout, stderr, json=quiet, live=terminal and not quiet, colour=terminal and not no_colour, lines=as_lines
    )


def clock_face(seconds: float) -> str:
    """Return elapsed time as ``mm:ss``, or ``h:mm:ss`` from an hour on."""
    whole = max(0, int(seconds))
    if whole < 3600:
        return f"{whole // 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def size_text(count: int) -> str:
    """Return a size: ``512 B``, ``1.2 KB``, ``2.26 MB`` (powers of 1000)."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("KB", "MB", "GB"):
        value /= 1000
        if value < 1000 or unit == "GB":
            return f"{value:.3g} {unit}"
    return f"{count} B"
