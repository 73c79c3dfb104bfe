"""Run ids: 26-character lowercase ULIDs, sortable by time and random beyond it.

Format: https://github.com/ulid/spec (48 bits of milliseconds, 80 random bits, Crockford's base 32).
"""

from __future__ import annotations

import re
from typing import Final

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
ID_PATTERN = r"[0-7][0-9a-hjkmnp-tv-z]{25}"
DAY_PATTERN: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
"""A day, UTC: under it a runner archives the runs that were asked for then."""
MOMENT_PATTERN: Final = rf"{DAY_PATTERN}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]+)?Z"
"""A moment as RFC 3339 writes it, UTC; other forms of ISO 8601 may name a day alone, which has no time zone."""
_ID = re.compile(ID_PATTERN)
SHORT_CHARS = 8


def new_id(unix_ms: int, entropy: bytes) -> str:
    """Return a run id.

    Args:
        unix_ms: milliseconds since the epoch, less than 2**48.
        entropy: exactly 10 random bytes.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 <= unix_ms < 1 << 48 or len(entropy) != 10:
        raise ValueError(f"got {unix_ms} ms and {len(entropy)} random bytes; expected < 2**48 and 10")
    value = (unix_ms << 80) | int.from_bytes(entropy, "big")
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def unix_ms(run_id: str) -> int:
    """Return the milliseconds since the epoch in a run id's first ten characters."""
    value = 0
    for char in run_id[:10]:
        value = value << 5 | _ALPHABET.index(char)
    return value


def is_id(text: str) -> bool:
    """Return whether the text is a run id."""
    return _ID.fullmatch(text) is not None


def short(run_id: str) -> str:
    """Return what people see of an id: its last 8 characters (the first ones are the time)."""
    return run_id[-SHORT_CHARS:]
