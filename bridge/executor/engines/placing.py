"""Place a run with an engine, and find again what an earlier process of the runner placed."""

from __future__ import annotations

from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from bridge.errors import InfrastructureError, LeftRunningError
from bridge.executor.engines.interface import ClusterEngine, EngineJob, JobNeeds
from bridge.executor.engines.placed import NOT_TAKEN, TICK_S, ClusterQueue, PlacedRun
from bridge.executor.engines.submitted import Submitted, load_submitted, save_submitted
from bridge.executor.holder.folder import RunFolder
from bridge.executor.interface import Execution, Hooks
from bridge.system.clock import Clock, rfc3339
from bridge.system.tasks import called

_AGAIN: Final = "again"  # why the folder is refused of a run that is to be submitted once more


@dataclass(frozen=True)
class NodeJob:
    """What is submitted for a run.

    Attributes:
        name: the run's part of the job's name.
        argv: what a node starts.
        needs: where, and for how long.
    """

    name: str
    argv: tuple[str, ...]
    needs: JobNeeds


class PlacedStart:
    """A run whose folder is made and that nothing was submitted for; leaving the block before `go` forgets it."""

    def __init__(self, folder: RunFolder, queue: ClusterQueue, clock: Clock, job: NodeJob) -> None:
        self._folder, self._queue, self._clock, self._job = folder, queue, clock, job

    def go(self, hooks: Hooks) -> PlacedRun:
        """Submit it: its name is written down before, its number after.

        A run that is to end meanwhile is over at once: its folder refuses every node, whatever the engine does yet.

        Raises:
            LeftRunningError: the hooks said to leave it before the engine answered; a later process looks it up.
            InfrastructureError: the engine does not take it; nothing was started.
        """
        before = load_submitted(self._folder.root)
        count = 1 if before is None else before.count + 1
        submitted = Submitted(name=f"{self._job.name}-{count}", count=count, since=rfc3339(self._clock.now()))
        save_submitted(self._folder.root, submitted)
        answer: Future[str] | None = None
        while answer is None or not answer.done():
            reason = hooks.should_stop()
            if reason == "left":
                raise LeftRunningError("its submission goes on without this runner")
            if reason is not None:
                self._folder.withdraw(reason)
                if answer is not None:
                    answer.add_done_callback(self._end)
                return PlacedRun(self._folder, submitted, hooks, self._queue, self._clock)
            answer = answer or called(partial(self._submit, submitted.name))
            wait([answer], TICK_S)
        try:
            job = answer.result()
        except InfrastructureError:
            if self._folder.withdraw(NOT_TAKEN):
                raise
            job = submitted.name
        submitted = submitted.evolve(job=job)
        save_submitted(self._folder.root, submitted)
        return PlacedRun(self._folder, submitted, hooks, self._queue, self._clock)

    def _submit(self, name: str) -> str:
        """Submit, and return the job's number.

        Raises:
            InfrastructureError: the engine did not take it, or does not show it; it may take it yet.
        """
        engine, output = self._queue.engine, self._folder.root / "engine.log"
        try:
            return engine.submit(name, self._job.argv, output, self._job.needs)
        except InfrastructureError:  # it may have taken the job and answered too late
            with suppress(InfrastructureError):
                job = engine.find(name)
                if job is not None:
                    return job.id
            raise

    def _end(self, answer: Future[str]) -> None:
        """Give back the place in the queue of what nobody wants any more; where that fails a node refuses it."""
        with suppress(InfrastructureError):
            self._queue.engine.end(answer.result(), queued_only=True)

    def __enter__(self) -> PlacedStart:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def find_again(folder: RunFolder, hooks: Hooks, queue: ClusterQueue, clock: Clock) -> Execution | PlacedRun | None:
    """Return what a run came to, the run if it may go on, None if nothing of it began and whatever comes is refused.

    Raises:
        LeftRunningError: the engine does not answer, and may have the run in its queue.
        SandboxUnavailableError, InfrastructureError: as `PlacedRun.wait`.
    """
    submitted = load_submitted(folder.root)
    if submitted is None or folder.job() is None:
        return None
    result = None if folder.taken() else folder.kept()
    if result is not None and result.execution is not None:
        return result.execution
    why = folder.withdrawn()
    if why == _AGAIN:
        return None
    if submitted.job is None and why is None:
        job = _found(folder, submitted.name, queue.engine)
        if job is not None:
            submitted = submitted.evolve(job=job.id)
            save_submitted(folder.root, submitted)
        elif folder.withdraw(_AGAIN):  # a submission that is still on its way comes to nothing
            return None
    return PlacedRun(folder, submitted, hooks, queue, clock)


def _found(folder: RunFolder, name: str, engine: ClusterEngine) -> EngineJob | None:
    """Return the job of a name, None where the engine knows none, or the run has begun and the folder says the rest.

    Raises:
        LeftRunningError: the engine does not answer, and may have it in its queue.
    """
    try:
        return engine.find(name)
    except InfrastructureError as error:
        if folder.taken() or folder.facts() is not None or folder.kept() is not None:
            return None
        raise LeftRunningError(f"whether it waits is not known yet: {error.message}") from error
