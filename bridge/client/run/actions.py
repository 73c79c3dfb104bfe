"""The GitHub workflow run that wakes a host: its page, its place in the queue, the registered runners.

Only on a bus with ``wake = "actions"``. Nothing here is needed: without a token or a network every answer is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.client.connection.session import BusSession
from bridge.client.document.parts import ActionsView
from bridge.hosting import Hosting, WorkflowRun
from bridge.hosting.door import Door, open_door


class Actions:
    """Asks GitHub about the workflow run of one request branch.

    Args:
        door: the way to GitHub.
        branch: the request branch without ``refs/heads/``.
    """

    def __init__(self, door: Door, branch: str) -> None:
        self._door = door
        self._branch = branch
        self._run: WorkflowRun | None = None

    def view(self) -> ActionsView | None:
        """Return the newest workflow run of the branch, None when there is none or GitHub does not answer."""
        self._run = self._newest()
        if (run := self._run) is None:
            return None
        if run.status == "completed":
            return ActionsView(run.url, run.status, run.conclusion, None, None)
        ahead = self._door.ask(lambda site: site.queue_position(run))
        waits = ahead is not None
        runners = self._door.ask(lambda site: site.runners()) if waits else None
        return ActionsView(run.url, run.status, run.conclusion, ahead, runners)

    def cancel(self) -> bool:
        """Cancel the workflow run; return whether GitHub accepted it."""
        run = self._run or self._newest()
        if run is None or run.status == "completed":
            return False

        def cancel(site: Hosting) -> bool:
            site.cancel(run)
            return True

        return self._door.ask(cancel) is True

    def _newest(self) -> WorkflowRun | None:
        if (newest := self._run) is not None:
            return self._door.ask(lambda site: site.refresh(newest)) or newest
        return next(iter(self._door.ask(lambda site: site.runs(self._branch)) or ()), None)


def actions_of(
    session: BusSession, ref: str | None, environ: Mapping[str, str], say: Callable[[str], None]
) -> Actions | None:
    """Return what may be asked about a request's workflow run; None on a bus that Actions does not wake.

    Args:
        session: the bus.
        ref: full name of the request branch, None when it is not known.
        environ: variables, for the token and for naming the site.
        say: takes one line for people, once per reason.
    """
    if session.record.wake != "actions" or ref is None:
        return None
    return Actions(open_door(session.bus.route, environ, say), ref.removeprefix("refs/heads/"))
