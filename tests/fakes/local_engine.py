"""An engine whose nodes are processes of this machine: the production interface, with a queue that a test moves."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bridge.errors import InfrastructureError
from bridge.executor.engines.interface import EngineJob, JobNeeds
from tests.support.forked import Forked, command

HOST = "bridge.cli.host.main"


@dataclass
class LocalJob:
    """One job of the queue."""

    status: EngineJob
    name: str
    argv: Sequence[str]
    output: Path
    process: Forked | None = None
    cancelled: bool = False


@dataclass
class LocalEngine:
    """Places jobs on `slots` of this machine, oldest first.

    Attributes:
        slots: jobs that run at the same time; 0 keeps all of them waiting.
        features: what its nodes have; a job that needs another is refused.
        loose: what `check` says.
        away: whether it does not answer.
        forgetful: whether it knows nothing of jobs that have ended.
        before: called before it takes or shows a job: a test that lets it be slow.
    """

    slots: int = 1
    features: tuple[str, ...] = ()
    loose: str | None = None
    away: bool = False
    forgetful: bool = False
    before: Callable[[], None] = lambda: None
    name: str = "slurm"
    ends_descendants: bool = False
    jobs: list[LocalJob] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def check(self) -> str | None:
        self._answer()
        return self.loose

    def open_to_runs(self) -> str | None:
        self._answer()
        return None

    def never(self, needs: JobNeeds) -> str | None:
        self._answer()
        lacking = set(needs.labels) - set(self.features)
        return f"sbatch: error: Invalid feature specification: {', '.join(sorted(lacking))}" if lacking else None

    def submit(self, name: str, argv: Sequence[str], output: Path, needs: JobNeeds) -> str:
        self.before()
        self._answer()
        if (refusal := self.never(needs)) is not None:
            raise InfrastructureError(refusal)
        with self.lock:
            job = LocalJob(EngineJob(str(len(self.jobs) + 1), "queued", "PENDING", "Resources"), name, argv, output)
            self.jobs.append(job)
        self._move()
        return job.status.id

    def find(self, name: str) -> EngineJob | None:
        return self._look_up(lambda job: job.name == name)

    def look(self, job: str) -> EngineJob | None:
        self.before()
        return self._look_up(lambda entry: entry.status.id == job)

    def ask_to_end(self, job: str) -> None:
        self._answer()
        self._signal(job, signal.SIGTERM)

    def end(self, job: str, *, queued_only: bool = False) -> None:
        self._answer()
        with self.lock:
            entry = next((entry for entry in self.jobs if entry.status.id == job), None)
            if entry is None:
                return
            if entry.status.state == "queued":
                entry.status = replace(entry.status, state="ended", word="CANCELLED", reason="", place=None)
            elif not queued_only:
                entry.cancelled = True
                self._signal(job, signal.SIGTERM)
        self._move()

    def kill(self, job: str) -> None:
        """Kill a job's process as a node that fails does."""
        self._signal(job, signal.SIGKILL)

    def _signal(self, job: str, number: int) -> None:
        process = next((entry.process for entry in self.jobs if entry.status.id == job), None)
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def _look_up(self, matches: Callable[[LocalJob], bool]) -> EngineJob | None:
        self._answer()
        self._move()
        with self.lock:
            status = next((entry.status for entry in reversed(self.jobs) if matches(entry)), None)
        return None if status is not None and status.state == "ended" and self.forgetful else status

    def _move(self) -> None:
        """Note which jobs have ended, start those that have a slot, and number those that wait."""
        with self.lock:
            for job in self.jobs:
                if job.status.state == "running" and job.process is not None and job.process.poll() is not None:
                    word = "CANCELLED" if job.cancelled else "COMPLETED" if job.process.poll() == 0 else "FAILED"
                    job.status = replace(job.status, state="ended", word=word, reason="")
            free = self.slots - sum(job.status.state == "running" for job in self.jobs)
            for job in [job for job in self.jobs if job.status.state == "queued"][: max(0, free)]:
                words = list(job.argv[job.argv.index(HOST) + 1 :])  # a process that has imported everything runs them
                job.process = Forked(command, (HOST, words), stdout=job.output, stderr=job.output)
                job.status = replace(job.status, state="running", word="RUNNING", reason="", place=None)
            waiting = [job for job in self.jobs if job.status.state == "queued"]
            for place, job in enumerate(waiting, 1):
                job.status = replace(job.status, place=(place, len(waiting)))

    def _answer(self) -> None:
        if self.away:
            raise InfrastructureError("squeue: error: Unable to contact slurm controller")

    def end_all(self) -> None:
        """Kill whatever runs, at the end of a test."""
        for job in self.jobs:
            if job.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    job.process.kill()
                job.process.wait()
