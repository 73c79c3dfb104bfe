"""Push a probe to the request namespace and delete it: only a push shows whether one is allowed."""

from __future__ import annotations

import os

from bridge.client.connection.session import BusSession
from bridge.client.send.draft import template_for
from bridge.ids import new_id
from bridge.request import request_branch


def probe_push(session: BusSession) -> str | None:
    """Push a branch no runner acts on and delete it; return its name when it could not be deleted.

    Raises:
        RemoteError: the remote refuses the push.
    """
    run_id = new_id(int(session.clock.now().timestamp() * 1000), os.urandom(10))
    return session.bus.probe(request_branch(template_for(session), "doctor", run_id))
