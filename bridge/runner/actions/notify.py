"""Start the owner's program at a run's end: a desktop notice, a webhook or a mail is what that program makes of it.

No shell, a minute at most, one result after the other, and neither a run nor the polling waits for it. It gets one JSON
document on its stdin, and the same facts as variables; text of others in them is printable and cut.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import ValidationError

from bridge import strictjson
from bridge.errors import InfrastructureError
from bridge.records.request import Request
from bridge.records.verdict import Verdict
from bridge.request import UNSIGNED
from bridge.run.outcomes import one_line
from bridge.runner.actions.announce import RunAnnouncement, announce_nothing
from bridge.strictjson import StrictJsonError
from bridge.system.process import run
from bridge.system.tasks import THREADS, Tasks

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
        tasks: runs it beside the caller.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        runner: str,
        environ: Mapping[str, str],
        log: logging.Logger,
        *,
        wall_s: float = NOTIFY_WALL_S,
        tasks: Tasks = THREADS,
    ) -> None:
        self._argv, self._runner, self._log, self._wall_s = argv, runner, log, wall_s
        self._tasks, self._lock, self._idle = tasks, threading.Lock(), threading.Event()
        self._idle.set()
        self._pending: deque[RunAnnouncement] = deque()
        kept = ("HOME", "LANG", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "XDG_RUNTIME_DIR")
        self._environ = {"PATH": _PATH} | {name: environ[name] for name in kept if name in environ}

    def __call__(self, ended: RunAnnouncement) -> None:
        """Tell of one result after those before it; the caller, who holds a slot or polls, waits for no program."""
        with self._lock:
            self._pending.append(ended)
            if self._idle.is_set():
                self._idle.clear()
                self._tasks.start(self._work, "notify")

    def finish(self, within_s: float) -> None:
        """Wait until all is told, so many seconds at most; what could not be told is said."""
        if not self._tasks.wait(self._idle, within_s):
            self._log.warning("the owner's notify program was not started, or still runs, for the last results")

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._idle.set()
                    return
                ended = self._pending.popleft()
            try:
                self._tell(ended)
            except Exception:  # noqa: BLE001 (nobody is above this thread; the next result is told all the same)
                self._log.exception("%s a bug: nobody was notified", ended.ref.id[-8:])

    def _tell(self, ended: RunAnnouncement) -> None:
        which = ended.ref.id[-8:]
        try:
            facts = self._facts(ended)
            variables = {f"KAKEYA_{name.upper()}": str(value) for name, value in facts.items() if value is not None}
            done = run(
                self._argv, env=self._environ | variables, cwd="/", timeout_s=self._wall_s,
                input=strictjson.encode(facts) + b"\n",
            )  # fmt: skip
        except (InfrastructureError, StrictJsonError, ValidationError) as error:
            self._log.warning("%s nobody was notified: %s", which, error)
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
            "requester": one_line(_requester(request, verdict)),
            "reason": ended.ending.reason,
            "exit_code": ended.ending.exit_code,
            "message": None if ended.ending.message is None else one_line(ended.ending.message),
            "verdict": None if verdict is None else verdict.decision,
            "headline": None if verdict is None else one_line(verdict.headline),
        }


def _requester(request: Request | None, verdict: Verdict | None) -> str:
    """Return who asked: as the host verified it, or where it judged nothing, as the request says."""
    if verdict is not None and verdict.principal is not None:
        return verdict.principal
    return UNSIGNED if request is None else request.principal


def each(*tell: Callable[[RunAnnouncement], None]) -> Callable[[RunAnnouncement], None]:
    """Return what tells everybody in turn; `announce_nothing` where there is nobody to tell."""
    told = [one for one in tell if one is not announce_nothing]

    def announce(ended: RunAnnouncement) -> None:
        for one in told:
            one(ended)

    return announce if told else announce_nothing
