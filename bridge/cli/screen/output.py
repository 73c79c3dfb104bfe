"""Where words go: stdout is data, stderr is talk. The only place that knows about terminals and colours.

Everything shown here that a stranger wrote has passed `bridge.client.document.untrusted` before.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

from bridge.cli.streams import discard, end_together
from bridge.client.document.untrusted import PREFIX

LABEL_CHARS: Final = 6
DATA_LABEL_CHARS: Final = 12
_COMMAND: Final = re.compile(r"\bkakeya-(?:mac|runner|engine) .*")
_NO_BREAK: Final = "\0"  # clean text holds none
MIN_COLUMNS: Final = 40  # narrower screens are written to as if they were as wide
_COLOURS: Final = {"error": "31", "next": "36", "passed": "32", "rejected": "31", "warn": "33"}


@dataclass
class Output:
    """The two streams of a command.

    Attributes:
        json: whether stdout is one JSON document; talk goes on.
        lines: whether stdout is one JSON document a line, events first.
        live: whether stderr is a terminal that understands cursor movement.
        colour: whether the talk may hold escapes.
        data_colour: whether the data may: where it goes to a file or another program, it holds text alone.
        columns: characters of the screen that stdout is, None where it is none.
    """

    stdout: TextIO
    stderr: TextIO
    json: bool = False
    live: bool = False
    colour: bool = False
    lines: bool = False
    columns: int | None = None
    data_colour: bool = False
    _open_line: bool = False

    def say(self, label: str, text: str) -> None:
        """Write one labelled line of talk; further lines of the text are indented."""
        indent, columns = max(LABEL_CHARS, len(label) + 1), self.columns
        lines = text.split("\n")
        first, *more = [
            part for line in lines for part in ([line] if columns is None else wrapped_to(line, columns - indent))
        ]
        self.end_line()
        self._talk(f"{_painted(label, LABEL_CHARS, colour=self.colour)}{first}\n")
        for line in more:
            self._talk(f"{'':<{LABEL_CHARS}}{line}\n")

    def note(self, text: str, lead: str = "") -> None:
        """Write one line of talk, cut to the screen where a program wrote it; `lead` comes before it."""
        self.end_line()
        cut = self.columns is not None and text.startswith(PREFIX)
        shown = wrapped_to(text, (self.columns or 0) - len(lead))[0] if cut else text
        self._talk(f"{lead}{shown}\n")

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
        """Write a labelled line of data, its text `width` characters in, wrapped to the screen; not under --json."""
        indent = max(width, len(label) + 1)
        first, *more = [text] if self.columns is None else wrapped_to(text, self.columns - indent)
        self.data(f"{_painted(label, width, colour=self.data_colour)}{first}")
        for line in more:
            self.data(f"{'':<{indent}}{line}")

    def fitted(self, line: str, indent: int) -> list[str]:
        """Return a line of data in as many as the screen takes, all but the first so far in."""
        if self.columns is None or len(line) <= self.columns:
            return [line]
        first, *more = wrapped_to(line[indent:], self.columns - indent)
        return [f"{line[:indent]}{first}", *(f"{'':<{indent}}{part}" for part in more)]

    def data(self, line: str = "") -> None:
        """Write one line of data; nothing under --json."""
        if not self.json:
            self.end_line()
            self.stdout.write(f"{line}\n")
            self.stdout.flush()

    def text(self, text: str) -> None:
        """Write lines of data as they are, also under --json; a reader that has left shows here."""
        self.stdout.write(f"{text}\n")
        self.stdout.flush()

    def document(self, value: Any) -> None:
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

    def _talk(self, text: str) -> None:
        try:
            self.stderr.write(text)
            self.stderr.flush()
        except OSError as error:  # a full disk, or a reader that left, costs the talk; the data has its own stream
            if isinstance(error, BrokenPipeError) and end_together(self.stdout, self.stderr):
                raise
            discard(self.stderr)


def _painted(label: str, width: int, *, colour: bool) -> str:
    padded = f"{label:<{width}}" if len(label) < width else f"{label} "
    code = _COLOURS.get(label)
    return f"\x1b[{code}m{padded}\x1b[0m" if colour and code else padded


def make_output(
    stdout: TextIO, stderr: TextIO, environment: Mapping[str, str], *, as_json: bool, as_lines: bool = False
) -> Output:
    """Return the output of a command, as its streams and NO_COLOR ask for."""
    moves = environment.get("TERM", "dumb") != "dumb"
    paints = moves and not environment.get("NO_COLOR")
    terminal, quiet = stderr.isatty(), as_json or as_lines
    return Output(
        stdout, stderr, json=quiet, live=terminal and moves and not quiet, colour=terminal and paints, lines=as_lines,
        columns=columns_of(stdout, environment), data_colour=stdout.isatty() and paints,
    )  # fmt: skip


def wrapped_to(text: str, width: int) -> list[str]:
    """Return a text in lines of at most `width` characters.

    A line of a log is cut. What follows the name of a program, and any word that is longer, is left whole: a command
    that is to be pasted must not hold a line break.
    """
    if text.startswith(PREFIX):
        return [text if len(text) <= width else f"{text[: max(1, width - 1)]}…"]
    whole = _COMMAND.sub(lambda command: command[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(whole, max(20, width), break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines] or [text]


def columns_of(stream: TextIO, environment: Mapping[str, str]) -> int | None:
    """Return how wide the screen is that a stream writes to: what COLUMNS says, else the terminal, else None."""
    columns = environment.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns) > 0:
        return max(MIN_COLUMNS, int(columns))
    if not stream.isatty():
        return None
    try:
        return max(MIN_COLUMNS, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return None


def clock_face(seconds: float) -> str:
    """Return elapsed time as ``mm:ss``, or ``h:mm:ss`` from an hour on."""
    whole = max(0, int(seconds))
    if whole < 3600:
        return f"{whole // 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
