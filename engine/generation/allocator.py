"""What the C library keeps of memory that was freed, given back to the system.

A cache that reads old rows for every block frees as much as it holds many times over, and glibc keeps that for later.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


@cache
def _trim() -> Any:
    """Return glibc's ``malloc_trim``, None where the C library has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def give_back() -> bool:
    """Give freed memory back; return whether there was any, False where the C library does that by itself."""
    trim = _trim()
    return trim is not None and bool(trim(0))
