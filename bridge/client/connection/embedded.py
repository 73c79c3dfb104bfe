"""The bus on this machine: made on demand, its runner started on demand, restarted while a command waits.

Knows where the runner's lock is and how to start it; the runner is another process and another package.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.client.clone.config import ClientSettings
from bridge.client.clone.store import Store
from bridge.client.connection.session import BusSession, bus_state, identify
from bridge.client.document.untrusted import tail
from bridge.errors import InfrastructureError
from bridge.system.clock import Clock

STARTS_MAX: Final = 3
# A runner that cannot start holds its lock, too, until it finds out: on a busy machine for more than one look.
SERVES_LOOKS: Final = 10


@dataclass
class EmbeddedRunner:
    """Starts the embedded runner when no process holds its lock.

    Attributes:
        data_dir: the user's data folder, given to the runner.
        folder: the embedded bus's own folder.
    """

    data_dir: Path
    folder: Path

    def __post_init__(self) -> None:
        self._pid: int | None = None
        self._starts = 0
        self._held_looks = 0

    @property
    def log(self) -> Path:
        """Where the runner's own words go."""
        return self.folder / "runner.log"

    def wake(self) -> bool:
        """Start the runner unless it runs or is starting; return whether it was started.

        Raises:
            InfrastructureError: it ends as soon as it is started.
        """
        if _is_held(self.folder / "runner" / "lock"):
            self._held_looks += 1
            if self._held_looks >= SERVES_LOOKS:
                self._starts = 0
            return False
        self._held_looks = 0
        if self._pid is not None and _is_alive(self._pid):
            return False
        if self._starts >= STARTS_MAX:
            raise InfrastructureError(
                f"the embedded runner ended {STARTS_MAX} times as soon as it was started: {self.last_words()}",
                remedy=f"see {self.log}",
            )
        from bridge.system.process import spawn_detached

        # -P: the runner is the installed one, also inside a clone of this very project.
        argv = [sys.executable, "-P", "-m", "bridge.cli.host.main", "serve", "--embedded", str(self.data_dir)]
        self._pid = spawn_detached(argv, log=self.log)
        self._starts += 1
        return True

    def last_words(self) -> str:
        """Return the last line of the runner's log that says what happened, which what to do next does not."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, self.log.stat().st_size - 4000))
                lines = tail(stream.read(), 2).lines
        except OSError:
            lines = ()
        return next((line for line in reversed(lines) if not line.startswith("next ")), "it said nothing")


def open_session(settings: ClientSettings, clock: Clock) -> BusSession:
    """Return a session on this machine's own bus, made when it is not there yet."""
    from bridge.bus import open_requester_bus
    from bridge.bus.open.embedded import embedded_folder, ensure_embedded

    route = str(ensure_embedded(settings.data_dir, clock))
    repository = settings.repository.top if settings.repository is not None else None
    folder = bus_state(settings, route)
    bus = open_requester_bus(route, repository=repository, state=folder, clock=clock)
    runner = EmbeddedRunner(settings.data_dir, embedded_folder(settings.data_dir))
    record = identify(bus, settings.bus)
    return BusSession(settings, bus, record, Store(settings.state_dir), clock, runner.wake, folder, runner.last_words)


def _is_held(lock: Path) -> bool:
    """Return whether a process holds the lock; the kernel forgets a dead one's."""
    from bridge.system.durable import try_lock

    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor)
    except OSError:  # there are no locks: the runner that is started says so
        return False
    finally:
        os.close(descriptor)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process has the number now
        return False
    return True
