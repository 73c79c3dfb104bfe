"""When the next sitting of a standing claim may begin: a while after the last one did, also across a restart.

Knows ids of sets and times, no queue.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from bridge.limits import EXPIRY_MAX_S
from bridge.records.request import Request
from bridge.runner.policy.model import Policy
from bridge.runner.state.database import StateDatabase
from bridge.runner.state.folder import OpenState
from bridge.system.clock import parse_rfc3339, rfc3339

_FORGOTTEN: Final = dt.timedelta(seconds=2.0 * EXPIRY_MAX_S)
"""After this no request of a set is started any more."""


def set_of(request: Request | None) -> str | None:
    """Return the set whose sitting a request is; None where it is none."""
    if request is None or request.profile != "standing" or request.sweep is None:
        return None
    return request.sweep.id


def sitting_times(state: OpenState, policy: Policy) -> SittingTimes:
    """Return when sittings may begin by a runner's state and what its owner allows."""
    return SittingTimes(state.database, policy.limits.sittings_apart_s)


class SittingTimes:
    """What is on the disk of each set that goes on here."""

    def __init__(self, database: StateDatabase, apart_s: float) -> None:
        """Take the state and how long after a sitting has begun the next one of its set may.

        Args:
            database: the runner's state.
            apart_s: seconds between their beginnings.
        """
        self._database, self._apart = database, dt.timedelta(seconds=apart_s)

    def begin(self, set_id: str, now: dt.datetime) -> None:
        """Note durably that a sitting of a set begins, and forget sets that are long over.

        Raises:
            JournalError: it could not be written.
        """
        with self._database.write() as rows:
            rows.execute("DELETE FROM queue WHERE not_before < ?", (rfc3339(now - _FORGOTTEN),))
            rows.execute("INSERT OR REPLACE INTO queue VALUES (?, ?)", (set_id, rfc3339(now + self._apart)))

    def not_before(self, set_id: str) -> dt.datetime | None:
        """Return when the next sitting of a set may begin; None where none of it has begun here."""
        with self._database.read() as rows:
            row = rows.execute("SELECT not_before FROM queue WHERE sittings = ?", (set_id,)).fetchone()
        return None if row is None else parse_rfc3339(str(row[0]))
