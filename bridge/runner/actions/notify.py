"""Start the owner's program at a run's end: a desktop notice, a webhook or a mail is what that program makes of it.

No shell, a minute at most, and what it does changes nothing about the run. It gets one JSON document on its stdin, and
the same facts as variables; text of others in them is printable and cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from bridge import strictjson
from bridge.errors import InfrastructureError
from bridge.records import Verdict
from bridge.request import UNSIGNED
from bridge.run.outcomes import one_line
from bridge.runner.actions.announce import RunAnnouncement, announce_nothing
from bridge.system.process import run

NOTIFY_WALL_S: Final = 60.0
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


class OwnerNotifier:
    """Starts the owner's program.

    Args:
        argv: the program and its arguments.
        runner: the runner's name.
        environ: this process's variables; only where the user's session is goes on to the program.
        log: takes what went wrong.
        wall_s: for how long it may run.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        runner: str,
        environ: Mapping[str, str],
        log: logging.Logger,
        wall_s: float = NOTIFY_WALL_S,
    ) -> None:
        self._argv, self._runner, self._log, self._wall_s = argv, runner, log, wall_s
        kept = ("HOME", "LANG", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "XDG_RUNTIME_DIR")
        self._environ = {"PATH": _PATH} | {name: environ[name] for name in kept if name in environ}

    def __call__(self, ended: RunAnnouncement) -> None:
        """Tell of one result; whatever becomes of the program, the run has its result."""
        facts, which = self._facts(ended), ended.ref.id[-8:]
        variables = {f"KAKEYA_{name.upper()}": str(value) for name, value in facts.items() if value is not None}
        try:
            done = run(
                self._argv, env=self._environ | variables, cwd="/", timeout_s=self._wall_s,
                input=strictjson.encode(facts) + b"\n",
            )  # fmt: skip
        except InfrastructureError as error:
            self._log.warning("%s nobody was notified: %s", which, error.message)
            return
        if not done.ok:
            self._log.warning("%s the owner's notify program: %s", which, done.describe().partition("\n")[0])

    def _facts(self, ended: RunAnnouncement) -> dict[str, str | int | None]:
        request, data = ended.request, ended.files.get("verdict.json")
        verdict = None if data is None else Verdict.parse(data)
        return {
            "schema_version": 1,
            "run_id": ended.ref.id,
            "runner": self._runner,
            "preset": None if request is None else request.preset,
            "requester": UNSIGNED if request is None or request.principal is None else one_line(request.principal),
            "reason": ended.ending.reason,
            "exit_code": ended.ending.exit_code,
            "message": None if ended.ending.message is None else one_line(ended.ending.message),
            "verdict": None if verdict is None else verdict.decision,
            "headline": None if verdict is None else one_line(verdict.headline),
        }


def each(*tell: Callable[[RunAnnouncement], None]) -> Callable[[RunAnnouncement], None]:
    """Return what tells everybody in turn; `announce_nothing` where there is nobody to tell."""
    told = [one for one in tell if one is not announce_nothing]

    def announce(ended: RunAnnouncement) -> None:
        for one in told:
            one(ended)

    return announce if told else announce_nothing
