"""Mask known secrets in a stream, across chunk borders, in the encodings programs commonly print.

Masked: the exact bytes, hex of either case, base64 (standard and URL-safe, at any alignment), percent-encoding, the
JSON-escaped form, and each longer line of a secret of several lines. Not masked: encryption, compression, reversed or
re-spaced text, base64 wrapped inside the secret, and secrets shorter than four bytes. Knows nothing about where secrets
come from.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable
from typing import Final

MASK: Final = b"[redacted]"
SECRET_MIN_BYTES: Final = 4
_LINE_MIN_BYTES: Final = 8
_BASE64_MIN_CHARS: Final = 6


def patterns(secret: str) -> frozenset[bytes]:
    """Return every byte string that shows this secret."""
    forms: set[bytes] = set()
    for text in (secret, secret.strip(), *(line for line in secret.splitlines() if len(line) >= _LINE_MIN_BYTES)):
        raw = text.encode("utf-8", "surrogateescape")
        if len(raw) >= SECRET_MIN_BYTES:
            forms |= {raw, raw.hex().encode(), raw.hex().upper().encode(), json.dumps(text)[1:-1].encode()}
            forms |= _percent(raw) | _base64(raw)
    return frozenset(forms)


def _percent(raw: bytes) -> set[bytes]:
    """Return the URL encodings: minimal, with `+`, complete; hex digits of either case."""
    upper = {
        urllib.parse.quote(raw, safe="").encode(),
        urllib.parse.quote(raw).encode(),
        urllib.parse.quote_plus(raw).encode(),
        b"".join(b"%%%02X" % byte for byte in raw),
    }
    lower = {re.sub(rb"%[0-9A-F]{2}", lambda match: match.group().lower(), text) for text in upper}
    return upper | lower


def _base64(raw: bytes) -> set[bytes]:
    """Return the characters that are the same in the base64 of any text around the secret, for the three alignments."""
    encodings = set()
    for shift in range(3):
        first = -(-shift * 8 // 6)
        last = (shift + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * shift + raw)[first:last]
            if len(text) >= _BASE64_MIN_CHARS:
                encodings.add(text)
    return encodings


class Redactor:
    """A streaming mask: what `feed` returns never holds a pattern, however the stream was cut.

    Only a possible beginning of a pattern is held back, so a log without secrets passes at once.

    Attributes:
        count: how many stretches have been masked.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        every = sorted({pattern for secret in secrets for pattern in patterns(secret)}, key=len, reverse=True)
        self.count = 0
        self._patterns = every
        self._longest = len(every[0]) if every else 0
        self._firsts = frozenset(pattern[0] for pattern in every)
        # A lookahead finds overlapping patterns too; the longest at each place comes first.
        self._regex = re.compile(b"(?=(" + b"|".join(re.escape(p) for p in every) + b"))") if every else None
        self._pending = bytearray()
        self._covered = 0  # leading bytes of what is held whose mask has been given out already

    def feed(self, block: bytes) -> bytes:
        """Take a piece of the stream; return what can be shown of it so far."""
        if self._regex is None:
            return block
        self._pending += block
        return self._release(len(self._pending) - self._open_suffix())

    def end(self) -> bytes:
        """Return what was held back, masked; the stream is over."""
        return self._release(len(self._pending))

    def _open_suffix(self) -> int:
        """Return the length of the longest ending of what is held that a pattern could begin with."""
        ending = bytes(self._pending[-(self._longest - 1) :]) if self._longest > 1 else b""
        for start in range(len(ending)):
            if ending[start] not in self._firsts:
                continue
            tail = ending[start:]
            if any(len(pattern) > len(tail) and pattern.startswith(tail) for pattern in self._patterns):
                return len(tail)
        return 0

    def _intervals(self) -> list[tuple[int, int]]:
        """Return the stretches to mask in what is held, merged, in order."""
        intervals = [(0, self._covered)] if self._covered else []
        # A plain search first: it is a hundred times faster than the expression, and nearly every block is clean.
        if self._regex is not None and any(pattern in self._pending for pattern in self._patterns):
            for match in self._regex.finditer(self._pending):
                start, end = match.start(1), match.end(1)
                if intervals and start < intervals[-1][1]:
                    intervals[-1] = (intervals[-1][0], max(end, intervals[-1][1]))
                else:
                    intervals.append((start, end))
        return intervals

    def _release(self, cut: int) -> bytes:
        """Give out everything before the cut; a stretch that crosses it is masked now and remembered as covered."""
        out = bytearray()
        position = covered = 0
        for start, end in self._intervals():
            if start >= cut and start > 0:
                break
            out += self._pending[position:start]
            if not (start == 0 and self._covered):
                out += MASK
                self.count += 1
            position = end
            covered = max(0, end - cut)
        if position < cut:
            out += self._pending[position:cut]
        del self._pending[:cut]
        self._covered = covered
        return bytes(out)


def contains_secret(data: bytes, secrets: Iterable[str]) -> bool:
    """Whether the bytes show one of these secrets in any of the encodings."""
    return any(pattern in data for secret in secrets for pattern in patterns(secret))
