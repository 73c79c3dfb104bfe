"""Wall clock moments of records and reports as seconds, for comparing them."""

from __future__ import annotations

import datetime as dt


def seconds(moment: str) -> float:
    """Return seconds since the epoch of an RFC 3339 UTC time.

    Raises:
        ValueError: not such a time.
    """
    return dt.datetime.fromisoformat(moment).timestamp()
