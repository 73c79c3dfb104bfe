"""What a cluster's queue does for a run: it places a command on a node, says how it stands, and ends it.

Knows nothing about runs but a job's name and the command that a node starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol


@dataclass(frozen=True)
class EngineJob:
    """A job as its engine shows it.

    Attributes:
        id: the engine's own.
        state: ``queued``: nothing of it runs; ``running``; ``ended``: nothing of it will run any more.
        word: the engine's own word for its state.
        reason: why it waits or ended, in the engine's words; empty where it gives none.
        place: its place among the jobs that wait, from 1, and how many these are; None where it does not wait.
        for_good: whether waiting changes nothing about the reason: the job asks for what its queue never gives.
    """

    id: str
    state: Literal["queued", "running", "ended"]
    word: str
    reason: str = ""
    place: tuple[int, int] | None = None
    for_good: bool = False


@dataclass(frozen=True)
class JobNeeds:
    """What a job asks of its engine; all of it is the owner's.

    Attributes:
        labels: of what request and preset name, those that mean something to the engine.
        wall_s: after which the engine ends it by itself.
    """

    labels: tuple[str, ...]
    wall_s: float


class ClusterEngine(Protocol):
    """A cluster's queue.

    Attributes:
        name: what people call it.
        ends_descendants: whether it signals all that descends from a job's process when it is to end; a run is then
            held by a process that does not.
    """

    name: str
    ends_descendants: bool

    def check(self) -> str | None:
        """Return why runs of this process would not be safe here, None where they are.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        ...

    def open_to_runs(self) -> str | None:
        """Return why a run that reaches a network could place jobs of its own, outside of any sandbox; None: it cannot.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        ...

    def never(self, needs: JobNeeds) -> str | None:
        """Return why no job with these needs would ever begin; None: one may, or the engine does not say beforehand.

        Nothing is queued.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        ...

    def submit(self, name: str, argv: Sequence[str], output: Path, needs: JobNeeds) -> str:
        """Queue a command under a name; return the job's id.

        Args:
            name: of the job; `find` finds it by this.
            argv: what a node runs, once at most.
            output: takes what it prints.
            needs: where it may run, and for how long.

        Raises:
            InfrastructureError: the engine does not answer, or no node can ever run it; nothing was queued.
        """
        ...

    def find(self, name: str) -> EngineJob | None:
        """Return the job of a name, None where the engine knows none.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        ...

    def look(self, job: str) -> EngineJob | None:
        """Return a job as it stands; None where the engine has forgotten it. Its place may be a minute old.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        ...

    def ask_to_end(self, job: str) -> None:
        """Send a running job the signal that asks it to end.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        ...

    def end(self, job: str, *, queued_only: bool = False) -> None:
        """End a job, whatever it does; with `queued_only` only while nothing of it runs.

        A job that waits may go on waiting; the folder that it was for refuses it then.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        ...
