"""Ask the host to cancel a run; asking twice is asking once."""

from __future__ import annotations

from bridge.client.connection.session import BusSession
from bridge.client.run.status import RunStatus, run_status
from bridge.client.connection.signing import identity_of
from bridge.request import UNSIGNED
from bridge.request.cancel import CancelRequest
from bridge.system.clock import rfc3339


def ask(session: BusSession, run_id: str) -> RunStatus:
    """Push the cancel branch of a run that has not ended, and return where the run stood.

    Raises:
        RemoteError: the push failed.
    """
    standing = run_status(session, run_id, session.bus.view(run_id), fetch=False)
    if not standing.terminal:
        who = identity_of(session)
        data = CancelRequest(
            id=run_id,
            bus_id=session.record.bus_id,
            principal=UNSIGNED if who is None else who.principal,
            signer=None if who is None else who.fingerprint,
            time=rfc3339(session.clock.now()),
        ).canonical()
        session.bus.ask_cancel(run_id, data, None if who is None else who.sign(data))
        if session.wake_runner is not None:
            session.wake_runner()
    return standing
