"""Add to a command's answer what GitHub knows of the run, on a bus that Actions wakes; nothing anywhere else."""

from __future__ import annotations

from dataclasses import replace

from bridge.cli.mac.context import Invocation
from bridge.client.connection.session import BusSession
from bridge.client.run.actions import Actions, actions_of
from bridge.client.run.status import RunStatus
from bridge.client.run.stored import Origin


def actions_for(call: Invocation, session: BusSession, ref: str | None) -> Actions | None:
    """Return what may be asked about a request branch; what cannot be asked is said once, on stderr."""
    return actions_of(session, ref, call.environment, lambda line: call.output.say("note", line))


def with_actions(call: Invocation, origin: Origin, standing: RunStatus, asked: Actions | None = None) -> RunStatus:
    """Return the standing with its workflow run.

    Args:
        call: the command.
        origin: where the run is known from; a stored result asks nobody.
        standing: where it stands.
        asked: what this command asked with before, None to begin.
    """
    if not isinstance(origin, BusSession):
        return standing
    actions = asked or actions_for(call, origin, _ref(origin, standing))
    return standing if actions is None else replace(standing, actions=actions.look())


def cancel_actions(call: Invocation, session: BusSession, standing: RunStatus) -> RunStatus:
    """Cancel the workflow run too, where that does not take the host the time to end the run with a result.

    A workflow run that waits is cancelled at once. One that runs is ended by the host, which has been asked through
    the bus and publishes a result; only when that was asked before is the job itself cancelled.
    """
    actions = actions_for(call, session, _ref(session, standing))
    view = actions.look() if actions is not None else None
    if actions is None or view is None or view.status == "completed":
        return standing if view is None else replace(standing, actions=view)
    asked_before = standing.view is not None and standing.view.cancel_asked
    if view.ahead is None and not asked_before:
        call.output.say("actions", f"the host ends it with a result; again cancels the job itself: {view.url}")
        return replace(standing, actions=view)
    if actions.cancel():
        call.output.say("actions", f"asked GitHub to cancel {view.url}")
        view = actions.look()
    return replace(standing, actions=view)


def _ref(session: BusSession, standing: RunStatus) -> str | None:
    if standing.request is not None:
        return standing.request.ref
    sent = session.store.sent(standing.id)
    return None if sent is None else sent.ref
