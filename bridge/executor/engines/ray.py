"""Ray as an engine: its jobs server over http, without Ray on the runner's machine.

Knows the server's paths and words (Ray 2.9 and later), and nothing about runs.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import pydantic

from bridge.errors import InfrastructureError
from bridge.executor.engines.interface import EngineJob, JobNeeds
from bridge.executor.engines.jobs_server import CALL_S, JobsServer
from bridge.run.outcomes import one_line
from bridge.system.clock import Clock

_SUBMIT_S: Final = 180.0  # on a machine that does other things as well Ray took more than 30 s
_NOBODY_YET: Final = "No available agent to submit job"
_AGAIN_S: Final = 1.0
_LISTED_S: Final = 30.0  # a listing holds every job that Ray ever had, so what waits is given its place now and then
_CPUS: Final = 1.0  # a job that asks for nothing runs on the head node
_SHARE: Final = 0.001  # of a node's resource that a label means: it says where, not how much
_REASON_MAX_CHARS: Final = 160
_STATES: Final[dict[str, Literal["queued", "running", "ended"]]] = {
    "PENDING": "queued", "RUNNING": "running", "SUCCEEDED": "ended", "FAILED": "ended", "STOPPED": "ended",
}  # fmt: skip
# What the node's process sees of Ray's environment: which cards Ray gave this job, and nothing else.
_CLEAN: Final = 'env -i PATH=/usr/bin:/bin ${CUDA_VISIBLE_DEVICES+"CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"}'


@dataclass(frozen=True)
class RayOptions:
    """What of a job the owner decides; None leaves it to Ray.

    Attributes:
        cpus, gpus: of a run; one processor where nothing is said.
        memory_bytes: that Ray sets aside for it.
        resources: what a label of a run means: a resource that the owner gave to nodes.
    """

    cpus: float | None = None
    gpus: float | None = None
    memory_bytes: int | None = None
    resources: Mapping[str, str] = field(default_factory=dict)

    def of(self, labels: Sequence[str]) -> list[str]:
        """Return the resources that labels mean."""
        return [self.resources[label] for label in labels if label in self.resources]

    def fields(self) -> dict[str, object]:
        """Return them as fields of a submission."""
        given = {"num_gpus": self.gpus, "memory": self.memory_bytes}
        resources = {f"entrypoint_{name}": value for name, value in given.items() if value is not None}
        return {"entrypoint_num_cpus": self.cpus or _CPUS, **resources}


class _Answer(pydantic.BaseModel):
    """What of an answer is read; the rest of it is Ray's own."""

    model_config = pydantic.ConfigDict(extra="ignore")


class _Version(_Answer):
    ray_version: str


class _Submission(_Answer):
    submission_id: str


class _Stopped(_Answer):
    stopped: bool


class _Job(_Answer):
    status: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"]
    submission_id: str | None = None  # None: of a driver that nobody submitted
    message: str | None = None
    start_time: Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)] | None = None


_A = TypeVar("_A")
_VERSION, _SUBMISSION = pydantic.TypeAdapter(_Version), pydantic.TypeAdapter(_Submission)
_STOPPED, _JOB, _JOBS = pydantic.TypeAdapter(_Stopped), pydantic.TypeAdapter(_Job), pydantic.TypeAdapter(list[_Job])


class RayEngine:
    """Implements `bridge.executor.engines.interface.ClusterEngine`; one for all runs of a runner.

    Args:
        address: of Ray's dashboard, which is its jobs server.
        token: returns what goes with each call, None for nothing.
        options: what the owner decides about every job.
        clock: says how old the listing is.
    """

    name = "ray"
    ends_descendants = True

    def __init__(self, address: str, token: Callable[[], str | None], options: RayOptions, clock: Clock) -> None:
        self._server = JobsServer(address, token, clock)
        self._options, self._clock = options, clock
        self._lock = threading.Lock()
        self._listed_s = float("-inf")
        self._waiting: list[str] = []

    def check(self) -> str | None:
        """Return why a job that leaves processes behind would keep them, and who else may run commands.

        Raises:
            InfrastructureError: Ray does not answer.
        """
        version = self._ask(_VERSION, "GET", "api", "version").ray_version
        reason = f"Ray {one_line(version)[:40]} ends what descends from a job, so only a sandbox ends what leaves it"
        open_to = self._open()
        return reason if open_to is None else f"{reason}; {open_to}"

    def open_to_runs(self) -> str | None:
        """Return that Ray takes jobs from whoever reaches it; see the interface."""
        return self._open()

    def _open(self) -> str | None:
        if self._server.wants_token("GET", "api", "version"):
            return None
        return f"it wants no token, so whoever reaches {self._server.where} runs commands as its user"

    def never(self, needs: JobNeeds) -> str | None:  # noqa: ARG002 - the interface
        """Return nothing: to Ray a node that has what is asked for may always join."""
        return None

    def submit(self, name: str, argv: Sequence[str], output: Path, needs: JobNeeds) -> str:
        """Queue a command; see the interface. Nothing of our environment goes along, and Ray's own stays behind."""
        if os.geteuid() == 0:
            raise InfrastructureError(
                "a runner that is root submits nothing: its jobs would be root on the nodes",
                remedy="run it, and Ray, as a user of its own, the same on every node",
            )
        line = f"exec {_CLEAN} {shlex.join(argv)} >>{shlex.quote(str(output))} 2>&1 </dev/null"
        body = {
            "entrypoint": line,
            "submission_id": name,
            "runtime_env": {},
            "metadata": {},
            "entrypoint_resources": dict.fromkeys(self._options.of(needs.labels), _SHARE),
            **self._options.fields(),
        }
        answer = self._submitted(body)
        if answer.submission_id != name:
            raise InfrastructureError(f"Ray answered with the job {answer.submission_id[:80]!r} instead of {name!r}")
        with self._lock:
            self._listed_s = float("-inf")  # it has a place now
        return name

    def _submitted(self, body: object) -> _Submission:
        """Submit, again and again while Ray says that nothing of it took the job yet, as after its start."""
        until_s = self._clock.steady_s() + _SUBMIT_S
        while True:
            try:
                return self._ask(_SUBMISSION, "POST", "api", "jobs", "", body=body, patience_s=_SUBMIT_S)
            except InfrastructureError as error:
                if _NOBODY_YET not in error.message or self._clock.steady_s() > until_s:
                    raise
            self._clock.sleep(_AGAIN_S)

    def find(self, name: str) -> EngineJob | None:
        """Return the job of a name, which is its id here; see the interface."""
        data = self._server.call("GET", "api", "jobs", name)
        return None if data is None else _shown(name, self._read(_JOB, data, "api/jobs/…"))

    def look(self, job: str) -> EngineJob | None:
        """Return a job as it stands; see the interface."""
        status = self.find(job)
        if status is None or status.state != "queued":
            return status
        with self._lock:
            if self._clock.steady_s() - self._listed_s > _LISTED_S:
                self._waiting, self._listed_s = self._in_order(), self._clock.steady_s()
            place = self._waiting.index(job) + 1 if job in self._waiting else None
            return status if place is None else replace(status, place=(place, len(self._waiting)))

    def ask_to_end(self, job: str) -> None:
        """Have Ray send TERM to the job's process and what descends from it; see the interface."""
        self._stop(job)

    def end(self, job: str, *, queued_only: bool = False) -> None:
        """Stop a job; see the interface. One that waits keeps its place, and ends when its turn comes."""
        if queued_only:
            status = self.find(job)
            if status is None or status.state != "queued":
                return
        self._stop(job)

    def _stop(self, job: str) -> None:
        data = self._server.call("POST", "api", "jobs", job, "stop")
        if data is not None:
            self._read(_STOPPED, data, "api/jobs/…/stop")

    def _in_order(self) -> list[str]:
        """Return what waits, in the order in which it came; nothing where Ray does not list it."""
        try:
            listed = self._ask(_JOBS, "GET", "api", "jobs", "")
        except InfrastructureError:
            return []  # too long, perhaps: a run is followed without its place
        waiting = [(job.start_time or 0.0, job.submission_id) for job in listed if job.status == "PENDING"]
        return [name for _, name in sorted((at, name) for at, name in waiting if name is not None)]

    def _ask(
        self, kind: pydantic.TypeAdapter[_A], method: str, *path: str, body: object = None, patience_s: float = CALL_S
    ) -> _A:
        data = self._server.call(method, *path, body=body, patience_s=patience_s)
        if data is None:
            raise InfrastructureError(
                f"{self._server.where} has no {'/'.join(path)}", remedy="executor.address is that of Ray's dashboard"
            )
        return self._read(kind, data, "/".join(path))

    def _read(self, kind: pydantic.TypeAdapter[_A], data: bytes, what: str) -> _A:
        """Return an answer as it should be.

        Raises:
            InfrastructureError: it is something else; the text says which field, and shows nothing of its value.
        """
        try:
            return kind.validate_json(data)
        except pydantic.ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            field = ".".join(map(str, first["loc"])) or "it"
            problem = f"{field}: {one_line(first['msg'])}"
            raise InfrastructureError(
                f"{self._server.where} answers {what} with something that is not Ray's: {problem}",
                remedy="executor.address is that of Ray's dashboard; kakeya-runner doctor",
            ) from None


def _shown(name: str, job: _Job) -> EngineJob:
    lines = (job.message or "").strip().splitlines()
    reason = one_line(lines[0])[:_REASON_MAX_CHARS] if lines and job.status != "RUNNING" else ""
    return EngineJob(name, _STATES[job.status], job.status, reason)
