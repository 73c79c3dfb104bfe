"""Follow a run through its folder, whoever started it: its log, its end, and what it came to.

The same for the runner that started it and for one that found it after a crash, a restart or an upgrade.
"""

from __future__ import annotations

import select
import socket
import weakref
from contextlib import suppress
from typing import BinaryIO, Final

import pydantic

from bridge.errors import InfrastructureError, LeftRunningError, SandboxUnavailableError
from bridge.executor.holder.folder import KeptExecution, RunFolder, SupervisorFacts
from bridge.executor.holder.killed import killed_run
from bridge.executor.holder.program import GO
from bridge.executor.holder.regular_files import read_regular, reading
from bridge.executor.holder.server import ready
from bridge.executor.interface import Execution, Hooks
from bridge.records.claim import RunProgress
from bridge.strictjson import StrictJsonError
from bridge.system.clock import Clock

_TICK_S: Final = 0.05
_READ_BYTES: Final = 1 << 18
_ATTACH_S: Final = 10.0
_END_S: Final = 60.0


class StartingRun:
    """A supervisor that has the folder and waits for the word; without it, nothing is started.

    Args:
        folder: the run's.
        connection: to the supervisor that is being made.
        clock: measures time.
        maker: makes it, and must live until it is made.
    """

    def __init__(self, folder: RunFolder, connection: socket.socket, clock: Clock, maker: object) -> None:
        self._folder, self._connection, self._clock, self._maker = folder, connection, clock, maker
        self._gone = False

    def go(self, hooks: Hooks) -> FollowedRun:
        """Let the commands start.

        Raises:
            SandboxUnavailableError: no process could become the user that is to hold the run.
            InfrastructureError: another supervisor has the folder, or this one died.
        """
        if not ready(self._connection):
            result = self._folder.kept()
            if result is not None and result.refusal is not None:
                raise _refusal(result)
            raise InfrastructureError("the run's supervisor did not start", remedy="kakeya-runner logs")
        self._connection.sendall(GO)
        self._gone = True
        return FollowedRun(self._folder, hooks, self._clock, self._connection)

    def __enter__(self) -> StartingRun:
        return self

    def __exit__(self, *_: object) -> None:
        """Give up a run that was not let go."""
        if not self._gone:
            self._connection.close()


class FollowedRun:
    """A run that goes on."""

    def __init__(self, folder: RunFolder, hooks: Hooks, clock: Clock, connection: socket.socket | None = None) -> None:
        self._folder, self._hooks, self._clock, self._connection = folder, hooks, clock, connection
        self._start_reported = False
        self._progress = b""
        if connection is not None:
            weakref.finalize(self, connection.close)

    def stop(self) -> None:
        """Ask for the end of the run, as interrupted, without waiting for it."""
        self._folder.stop("interrupted")

    def wait(self) -> Execution:
        """Hand on the log until the run has ended; return what it came to.

        Raises:
            LeftRunningError: the hooks said to leave it running.
            SandboxUnavailableError: the host could not give the sandbox; nothing was started.
            InfrastructureError: the executor refused to start for another reason.
        """
        with reading(self._folder.log) as log:
            try:
                while not self._ended():
                    self._feed(log)
                    reason = self._hooks.should_stop()
                    if reason == "left":
                        raise LeftRunningError("the run goes on without this runner")  # noqa: TRY301
                    if reason is not None:
                        self._folder.stop(reason)
                    self._pause()
                self._feed(log)
            except LeftRunningError:
                raise
            except BaseException:  # a hook's: who follows cannot go on, and nobody else would end the run
                self.stop()
                self._wait_for_end()
                raise
            finally:
                if self._connection is not None:
                    self._connection.close()
        return came_to(self._folder, self._clock)

    def _feed(self, log: BinaryIO) -> None:
        if not self._start_reported and (facts := self._folder.facts()) is not None:
            self._start_reported = True
            self._hooks.on_started(facts.pid, facts.started, facts.marker)
        while block := log.read(_READ_BYTES):
            self._hooks.on_log(block)
        if (progress := self._folder.progress()) != self._progress:
            self._progress = progress
            with suppress(StrictJsonError, pydantic.ValidationError):  # torn: the next look finds it whole
                self._hooks.on_progress(RunProgress.parse(progress))

    def _wait_for_end(self) -> None:
        deadline_s = self._clock.steady_s() + _END_S
        while not self._ended() and self._clock.steady_s() < deadline_s:
            self._clock.sleep(_TICK_S)

    def _ended(self) -> bool:
        return not self._folder.taken()

    def _pause(self) -> None:
        """Wait a little, or until the supervisor that we started has ended."""
        if self._connection is None:
            self._clock.sleep(_TICK_S)
        else:
            select.select([self._connection], [], [], _TICK_S)


def attach(folder: RunFolder, hooks: Hooks, clock: Clock) -> FollowedRun | Execution | None:
    """Return the run of a folder if it goes on, what it came to if it has ended, None if nothing ever ran.

    A supervisor that holds the folder and was never let go ends by itself when it sees that its runner has gone.

    Raises:
        LeftRunningError: a supervisor holds the folder and has not said yet what it does: to be looked at again later.
        SandboxUnavailableError, InfrastructureError: the executor had refused to start; nothing ran.
    """
    deadline_s = clock.steady_s() + _ATTACH_S
    while folder.taken():
        if folder.facts() is not None:
            return FollowedRun(folder, hooks, clock)
        if clock.steady_s() >= deadline_s:
            raise LeftRunningError(f"a supervisor holds {folder.root} and says nothing yet")
        clock.sleep(0.01)
    if folder.facts() is None and folder.kept() is None:
        return None
    return came_to(folder, clock)


def came_to(folder: RunFolder, clock: Clock) -> Execution:
    """Return what the run of a folder came to; nobody holds the folder any more.

    Raises:
        SandboxUnavailableError, InfrastructureError: the executor refused to start; nothing ran.
    """
    result, facts = folder.kept(), folder.facts()
    if result is not None and result.execution is not None:
        return result.execution
    if facts is not None:
        return _killed(folder, facts, None if result is None else _refusal(result).message, clock)
    if result is not None:
        raise _refusal(result)
    raise InfrastructureError("the run's supervisor died before anything was started")


def _refusal(result: KeptExecution) -> InfrastructureError:
    name, message, remedy = result.refusal or ("InfrastructureError", "it was not said why nothing was started", None)
    kind = SandboxUnavailableError if name == SandboxUnavailableError.__name__ else InfrastructureError
    return kind(message, remedy=remedy)


def _killed(folder: RunFolder, facts: SupervisorFacts, failed: str | None, clock: Clock) -> Execution:
    job = folder.job()
    if job is None:
        raise InfrastructureError("the run's supervisor was killed, and its job file is gone")
    log, marks = read_regular(folder.log), read_regular(folder.root / "marks")
    return killed_run(job, facts, log=log, marks=marks, failed=failed, clock=clock)
