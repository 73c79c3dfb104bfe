"""When the next sitting of a standing claim may begin, by what this clone sent and what the bus says of it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from bridge.client.run.result import read_result
from bridge.launches.standing import APART_LEAST_S
from bridge.system.clock import parse_rfc3339

if TYPE_CHECKING:
    from bridge.client.connection.session import BusSession
    from bridge.records.request import Request


def next_sitting(session: BusSession, request: Request) -> dt.datetime | None:
    """Return when the next sitting of a request's set may begin; None where it is none, or none has begun yet.

    Args:
        session: the open bus.
        request: one that waits.
    """
    if request.profile != "standing" or request.sweep is None:
        return None
    requests = [(sent.id, sent.request()) for sent in session.store.all_sent()]
    others = [run_id for run_id, other in requests if other.sweep is not None and other.sweep.id == request.sweep.id]
    for run_id in sorted(others, reverse=True):  # they begin in the order in which they were sent
        if run_id != request.id and (began := _began(session, run_id)) is not None:
            return began + dt.timedelta(seconds=APART_LEAST_S)
    return None


def _began(session: BusSession, run_id: str) -> dt.datetime | None:
    """Return when a run began, None where it has not; of one that goes on, when it was claimed."""
    if session.store.has_result(run_id):
        record = read_result(session.store.read_result(run_id), run_id).record
        return None if record is None else parse_rfc3339(record.started or record.claimed)
    claim = session.view(run_id).claim
    return None if claim is None else parse_rfc3339(claim.history[0].time)
