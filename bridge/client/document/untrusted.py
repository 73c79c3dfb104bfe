"""Make text that a workload or a stranger wrote safe to show.

Escapes, control and direction characters are removed, lines are bounded, and a block is fenced by a random token so
that text inside cannot pretend to have ended. Knows nothing about where the text goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

LINE_MAX_CHARS: Final = 2000
PREFIX: Final = "| "

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\n]*?(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC: their payload, at most the line
    r"|\x1b[ -/]*[0-~]"  # two-byte escapes
    r"|\x9b[0-?]*[ -/]*[@-~]",  # CSI as one C1 byte
    re.MULTILINE,
)
# C0 but tab, DEL, C1, line separators, zero-width and direction controls, halves of pairs (of JSON), tags,
# noncharacters.
_CONTROLS = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff\U000e0000-\U000e0fff]"
)
# A legacy GitHub Actions command counts anywhere in a line; the new form only at its start, which PREFIX prevents.
_LEGACY_COMMAND = re.compile(r"##(?=\[)")
_AUTOLINK = re.compile(r"(www)\.", re.IGNORECASE)  # GitHub links these without a scheme


def clean_line(text: str) -> str:
    """Return one line of untrusted text, without escapes and controls, at most LINE_MAX_CHARS long."""
    line = _ESCAPES.sub("", text)
    line = _CONTROLS.sub("", line)
    line = _LEGACY_COMMAND.sub("# #", line)
    if len(line) > LINE_MAX_CHARS:
        return f"{line[:LINE_MAX_CHARS]}… [{len(line) - LINE_MAX_CHARS} more characters]"
    return line


def clean_text(text: str) -> str:
    """Return untrusted text of several lines, each of them clean."""
    return "\n".join(clean_line(line) for line in text.split("\n"))


def clean_lines(data: bytes) -> Iterator[str]:
    r"""Yield clean lines of untrusted bytes; a progress bar's overwritten text (up to ``\r``) is dropped."""
    text = data.decode("utf-8", "replace")
    text = _ESCAPES.sub("", text)
    for raw in text.split("\n"):
        yield clean_line(raw.rstrip("\r").rsplit("\r", 1)[-1])


def commands_terminals(data: bytes) -> bool:
    """Return whether raw text holds what a terminal would obey or hide; line ends, tabs and returns do not count."""
    text = data.decode("utf-8", "ignore").translate({10: None, 13: None})
    return _CONTROLS.search(text) is not None


@dataclass(frozen=True)
class Tail:
    """The last lines of an untrusted log: clean lines, and how many lines came before them."""

    lines: tuple[str, ...]
    earlier_lines: int


def tail(data: bytes, count: int) -> Tail:
    """Return the last `count` lines of a log."""
    lines = list(clean_lines(data))
    if lines and not lines[-1]:
        lines.pop()
    return Tail(tuple(lines[-count:] if count else ()), max(0, len(lines) - count))


class LineJoiner:
    """Turn chunks of bytes into whole clean lines; what follows the last newline waits for more."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines completed by this chunk."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > 4 * LINE_MAX_CHARS:
            whole.append(self._rest)
            self._rest = b""
        return [line for piece in whole for line in clean_lines(piece)]

    def finish(self) -> list[str]:
        """Return what is left, as lines."""
        rest, self._rest = self._rest, b""
        return list(clean_lines(rest)) if rest else []


def new_fence() -> str:
    """Return a token that untrusted text cannot guess."""
    import secrets

    return secrets.token_hex(6)


def fenced(lines: Iterable[str], what: str, fence: str) -> Iterator[str]:
    """Yield clean lines between two marks that carry the fence, each line prefixed."""
    yield f"--- untrusted {what} {fence} ---"
    for line in lines:
        yield f"{PREFIX}{line}"
    yield f"--- end of untrusted {what} {fence} ---"


def markdown_text(text: str) -> str:
    """Return one line of untrusted text for markdown: no mention, link, image, HTML or table cell comes out of it."""
    line = clean_line(text)
    line = re.sub(r"([\\`*_{}\[\]()#+!|<>~$&])", r"\\\1", line)
    line = _AUTOLINK.sub("\\1\u2060.", line)
    return line.replace("@", "@\u2060").replace("://", ":\u2060//")
