"""Why a run failed, in the words of its log: the one line that people look for first."""

from __future__ import annotations

import re
from typing import Final

from bridge.client.document.untrusted import tail

_SEARCHED_LINES: Final = 200
_ERROR: Final = re.compile(
    r"\b(\w*(Error|Exception|Interrupt)\b|(?<!\b0 )(?<!\bno )(error|fatal|panic|failed|FAILED|killed)\b)"
    r"|: (No such file or directory|Permission denied|not found|Exec format error)$"
)
RAN_WELL: Final = frozenset({"passed", "gate_rejected", "below_required"})
"""Ends of a run whose program did its work."""
_LOG_SAYS: Final = frozenset({"program_failed", "timed_out", "gate_rejected"})


def telling_line(reason: str, log: bytes) -> str | None:
    """Return the line of a failed run's log that says most: its last error, else its last line.

    Args:
        reason: why the run ended; a run that the gate rejected ended by itself, so only an error in its log counts.
        log: as the program wrote it.
    """
    if reason not in _LOG_SAYS:
        return None
    lines = [line for line in tail(log, _SEARCHED_LINES).lines if line.strip()]
    own = [line for line in lines if not line.startswith("[kakeya]")]  # the others say that it failed, not why
    errors = [line for line in own if _ERROR.search(line) is not None]
    if errors:
        return errors[-1]
    return (own or lines)[-1] if lines and reason != "gate_rejected" else None
