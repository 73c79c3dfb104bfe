"""Ask the host to cancel a run; asking twice is asking once."""

from __future__ import annotations

from bridge import strictjson
from bridge.client.outcome import Standing, stand
from bridge.client.session import Session
from bridge.system.clock import rfc3339


def ask(session: Session, run_id: str) -> Standing:
    """Push the cancel branch of a run that has not ended, and return where the run stood.

    Raises:
        RemoteError: the push failed.
    """
    standing = stand(session, run_id, session.bus.view(run_id), fetch=False)
    if not standing.terminal:
        data = {"schema_version": 1, "id": run_id, "time": rfc3339(session.clock.now())}
        session.bus.ask_cancel(run_id, strictjson.encode(data))
        if session.wake_runner is not None:
            session.wake_runner()
    return standing
