"""A run that an engine placed on a node: followed through its folder, as one of this machine is.

The folder is shared with the nodes. It decides what became of the run; what the engine says decides only when nothing
more will come. A job's name is the run's id and which submission it is, so a job is found again by a runner that was
killed before it had its number.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import pydantic

from bridge.errors import InfrastructureError, LeftRunningError
from bridge.executor.engines.interface import ClusterEngine, EngineJob
from bridge.executor.engines.node import node_of
from bridge.executor.engines.submitted import Submitted
from bridge.executor.holder.attached import came_to
from bridge.executor.holder.folder import RunFolder
from bridge.executor.holder.regular_files import read_regular, reading
from bridge.executor.interface import Execution, Hooks
from bridge.records.claim import RunProgress
from bridge.strictjson import StrictJsonError
from bridge.system.clock import Clock, parse_rfc3339, rfc3339
from bridge.system.disk import is_local
from bridge.system.tasks import called

SETTLE_S: Final = 70.0  # NFS shows a node's last write within 60 s (acregmax, acdirmax of nfs(5))
_SETTLE_LOCAL_S: Final = 2.0
TICK_S: Final = 0.1
_LOOK_S: Final = 2.0
_LOOK_GROWTH: Final = 4
_LOOK_MAX_S: Final = 120.0  # a look is two requests to Slurm's controller: sixteen in ten minutes of waiting
_NEVER: Final = "never"  # why a folder is refused, beside how its run is to end
_INSIST_S: Final = 60.0  # after what a run may take to end, before the engine is told to end it
_OUTLIVED_SETTLES: Final = 3  # a lock that is held so long after its job is that of a node that is gone
_TOLD_S: Final = 2.0  # what an engine may take to be told something, before the run is ended without its answer
_READ_BYTES: Final = 1 << 18
NOT_TAKEN: Final = "not taken"  # why a folder is refused, beside how its run is to end


@dataclass(frozen=True)
class ClusterQueue:
    """How runs are placed.

    Attributes:
        engine: the queue.
        longest_wait_s: how long one may wait there.
        settle_s: how long the folder may take to show what a node wrote.
    """

    engine: ClusterEngine
    longest_wait_s: float
    settle_s: float = SETTLE_S


def settle_of(folder: Path) -> float:
    """Return how long a folder may take to show what a node wrote: a moment where this machine has its disk itself."""
    return _SETTLE_LOCAL_S if is_local(folder) else SETTLE_S


class PlacedRun:
    """A run that waits in the engine's queue or goes on on a node."""

    def __init__(
        self, folder: RunFolder, submitted: Submitted, hooks: Hooks, queue: ClusterQueue, clock: Clock
    ) -> None:
        self._folder, self._hooks, self._clock = folder, hooks, clock
        self._job, self._since = submitted.job or submitted.name, parse_rfc3339(submitted.since)
        self._numbered = submitted.job is not None
        self._queue, self._engine = queue, queue.engine
        self._looked_s, self._pause_s = float("-inf"), _LOOK_S
        self._looking: Future[EngineJob | None] | None = None
        self._engine_job: EngineJob | None = None
        self._gone_s: float | None = None
        self._ended_s: float | None = None
        self._requested = folder.withdrawn()
        self._withdrawn = self._requested is not None
        self._requested_s = 0.0
        self._start_reported = False
        self._progress = b""
        self._waits: RunProgress | None = None

    def stop(self) -> None:
        """Ask for the end of the run, as interrupted, without waiting for it."""
        self._ask("interrupted")

    def wait(self) -> Execution:
        """Hand on the log until the run has ended; return what it came to.

        Raises:
            LeftRunningError: the hooks said to leave it.
            SandboxUnavailableError: the node could not give the sandbox; nothing was started.
            InfrastructureError: it never began: the engine refused, ended or forgot it, or it waited too long.
        """
        with reading(self._folder.log) as log:
            while True:
                over = self._is_over()
                self._feed(log)
                if over:
                    return self._came_to()
                reason = self._hooks.should_stop()
                if reason == "left":
                    raise LeftRunningError("the run goes on without this runner")
                if reason is not None:
                    self._ask(reason)
                self._insist()
                self._clock.sleep(TICK_S)

    def _feed(self, log: BinaryIO) -> None:
        facts = self._folder.facts()
        if not self._start_reported and facts is not None:
            self._start_reported = True
            self._hooks.on_started(facts.pid, facts.started, facts.marker)
        while block := log.read(_READ_BYTES):
            self._hooks.on_log(block)
        if (progress := self._folder.progress()) != self._progress:
            self._progress = progress
            with suppress(StrictJsonError, pydantic.ValidationError):  # torn: the next look finds it whole
                self._hooks.on_progress(RunProgress.parse(progress))

    def _is_over(self) -> bool:
        """Whether nothing more will come: the end is written down, or the engine has ended the job some time ago."""
        if self._withdrawn:
            return True
        if self._folder.taken():
            self._look(self._queue.settle_s)
            self._gone_s = None
            return self._is_outlived()
        if self._folder.kept() is not None:
            return True
        self._look(0.0)
        if self._gone_s is None:
            return False
        return self._clock.steady_s() - self._gone_s >= self._queue.settle_s

    def _is_outlived(self) -> bool:
        """Whether only a lock is left of a run: a file server may keep that of a node that died for ever."""
        if self._ended_s is None:
            return False
        may_take_s = _OUTLIVED_SETTLES * self._queue.settle_s + self._ending_s()
        return self._clock.steady_s() - self._ended_s >= may_take_s

    def _look(self, least_s: float) -> None:
        """Ask the engine now and then, less often while nothing changes; where it does not answer nothing follows.

        That a run begins is seen in its folder and not here.
        """
        now_s = self._clock.steady_s()
        if self._looking is None and now_s - self._looked_s >= max(least_s, self._pause_s):
            self._looking, self._looked_s = called(partial(self._engine.look, self._job)), now_s
            self._pause_s = min(_LOOK_MAX_S, self._pause_s * _LOOK_GROWTH)
        if self._looking is None or not self._looking.done():
            return
        looked, self._looking = self._looking, None
        try:
            job = looked.result()
        except InfrastructureError:
            return
        if _changed(self._engine_job, job):
            self._pause_s = _LOOK_S
        self._engine_job = job or self._engine_job
        if job is not None:
            self._ended_s = (self._ended_s or now_s) if job.state == "ended" else None
        if job is None or job.state == "ended":
            self._gone_s = self._gone_s or now_s
            return
        self._gone_s = None
        if job.state == "queued" and self._folder.facts() is None:
            self._tell(job)
            if job.for_good:
                self._ask(_NEVER)
            elif (self._clock.now() - self._since).total_seconds() > self._queue.longest_wait_s:
                self._ask("waited")

    def _tell(self, job: EngineJob) -> None:
        """Say where it waits, each time that changed."""
        place = "" if job.place is None else f"{_ordinal(job.place[0])} of {job.place[1]}"
        words = ", ".join(filter(None, (job.reason or job.word.lower(), place)))
        waits = RunProgress(step="queue", number=0, steps=0, waits=f"queued on {self._engine.name}: {words}")
        if waits != self._waits:
            self._waits = waits
            self._hooks.on_progress(waits)

    def _ask(self, ending: str) -> None:
        """Ask for the end: of the job while it waits, of the run as its folder says, and by a signal.

        What has not begun is over at once: its folder refuses every node, whatever the engine does with the job.
        """
        if self._requested is not None:
            return
        self._withdrawn = self._folder.withdraw(ending)
        if ending in {"waited", _NEVER} and not self._withdrawn:
            return  # it has just begun: it goes on
        self._requested, self._requested_s = ending, self._clock.steady_s()
        if not self._withdrawn:
            self._folder.stop("cancelled" if ending == "cancelled" else "interrupted")
        self._say(partial(self._engine.end, self._job, queued_only=True))
        if not self._withdrawn:
            self._say(partial(self._engine.ask_to_end, self._job))
        self._looked_s, self._pause_s = float("-inf"), _LOOK_S

    def _say(self, what: Callable[[], None]) -> None:
        """Tell the engine something; where it does not answer the folder has said it, and it is told again."""
        with suppress(InfrastructureError, TimeoutError):
            called(what).result(_TOLD_S)

    def _ending_s(self) -> float:
        """Return what the run may take to end once it is asked to."""
        job = self._folder.job()
        return _INSIST_S + (0.0 if job is None else job.spec.limits.grace_s)

    def _insist(self) -> None:
        """End the job by the engine where asking did not end it."""
        if self._requested is None or self._clock.steady_s() - self._requested_s < self._ending_s():
            return
        self._requested_s = self._clock.steady_s()
        self._say(partial(self._engine.end, self._job))

    def _came_to(self) -> Execution:
        """Return what the folder says the run came to.

        Raises:
            InfrastructureError: nothing of it ever ran.
        """
        if self._folder.facts() is None and self._folder.kept() is None:
            return self._never_began()
        execution = came_to(self._folder, self._clock)
        execution = execution if execution.host is not None else replace(execution, host=node_of(self._folder.root))
        if self._requested == "cancelled" and execution.ending == "interrupted":
            return replace(execution, ending="cancelled")  # the signal was seen before the byte
        if execution.ending == "killed" and self._folder.kept() is None:
            return replace(execution, ending="interrupted", message=f"its job ended without a result: {self._why()}")
        return execution

    def _never_began(self) -> Execution:
        if self._requested == "waited":
            waited = f"waited {self._queue.longest_wait_s:.0f} s in the queue of {self._engine.name}"
            raise InfrastructureError(f"{waited}, the owner's longest: {self._why()}", remedy="send it again later")
        if self._requested == _NEVER:
            raise InfrastructureError(
                f"{self._engine.name} will never begin it: {self._why()}",
                remedy="its queue gives less than the preset asks: the owner changes the preset's limits or [executor]",
            )
        if self._requested == NOT_TAKEN:
            message = (
                f"{self._engine.name} did not take its job, and an earlier process of this runner ended with the reason"
            )
            raise InfrastructureError(message, remedy="send it again")
        if self._requested is not None:
            return not_begun(self._folder, self._clock, self._requested, f"ended while it was {self._why()}")
        raise InfrastructureError(f"{self._engine.name} ended its job before it began: {self._why()}{self._printed()}")

    def _why(self) -> str:
        job = self._engine_job
        if job is None and not self._numbered:
            return f"being handed to {self._engine.name} as job {self._job}"
        if job is None:
            return f"job {self._job} is not known any more"
        return f"job {self._job}, {job.word}" + (f" ({job.reason})" if job.reason else "")

    def _printed(self) -> str:
        """Return the last line that the job printed, which is why a node could not run it."""
        with suppress(OSError):
            lines = (self._folder.root / "engine.log").read_text("utf-8", "replace").strip().splitlines()
            return f": {lines[-1]}" if lines else ""
        return ""


def _changed(before: EngineJob | None, after: EngineJob | None) -> bool:
    """Return whether a job stands otherwise than before; its place in the queue changes all the time."""
    if before is None or after is None:
        return before is not after
    return (before.state, before.reason) != (after.state, after.reason)


def not_begun(folder: RunFolder, clock: Clock, ending: str, message: str) -> Execution:
    """Return the end of a run that was ended while it waited."""
    from bridge.executor.sandbox.confinement import nothing

    return Execution(
        ok=True,
        ending="cancelled" if ending == "cancelled" else "interrupted",
        program_exit=None,
        message=message,
        commands=(),
        limits_hit=(),
        sandbox=nothing("nothing was started"),
        telemetry=None,
        sample_marks=(),
        sample_marks_dropped=0,
        outputs=(),
        reports={},
        log=read_regular(folder.log),
        log_truncated_bytes=0,
        redactions=0,
        wall_s=0.0,
        ended=rfc3339(clock.now()),
    )


def _ordinal(number: int) -> str:
    tens = {1: "st", 2: "nd", 3: "rd"} if number % 100 not in {11, 12, 13} else {}
    return f"{number}{tens.get(number % 10, 'th')}"
