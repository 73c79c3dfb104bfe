"""A jobs server as Ray's, on loopback: jobs are processes of this machine, and a stop is TERM to all that descends.

Its paths, answers and words are those of Ray's own server. A stop of a job that waits reaches it when its turn comes,
as there; a job's own process is `exec`ed by the shell line of its submission.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psutil

from bridge.executor.engines.ray import RayEngine
from tests.support.forked import Forked, command

HOST = "bridge.cli.host.main"
WAITS = "Job has not started yet. It may be waiting for resources (CPUs, GPUs) to become available."


class HeldRay(RayEngine):
    """An engine whose nodes hold what leaves a job, so that programs without a sandbox may try it."""

    def check(self) -> str | None:
        super().check()
        return None


@dataclass
class RayJob:
    """One submission."""

    body: dict[str, Any]
    start_time: int
    status: str = "PENDING"
    message: str = WAITS
    process: Forked | None = None
    stopped: bool = False

    @property
    def words(self) -> list[str]:
        """The command line that its shell would run."""
        return shlex.split(self.body["entrypoint"])


@dataclass
class RayJobs:
    """The server: `address` for the engine, the rest for a test to move.

    Attributes:
        slots: jobs that run at the same time; 0 keeps all of them waiting.
        resources: what its nodes have; a job that needs another waits for ever.
        token: what it wants to be sent; None for nothing.
        away: whether it answers with a fault.
        forgetful: whether it knows nothing of any job.
        drops: submissions that are taken and not answered, so many.
        agents_late: submissions that it refuses because no node's agent is there yet, so many.
        instead: what it answers instead, by path.
        calls: every call: method, path and the token that came along.
    """

    slots: int = 1
    resources: tuple[str, ...] = ()
    token: str | None = None
    away: bool = False
    forgetful: bool = False
    drops: int = 0
    agents_late: int = 0
    instead: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, RayJob] = field(default_factory=dict)
    calls: list[tuple[str, str, str | None]] = field(default_factory=list)
    address: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, object]:
        """Return status and answer of a call."""
        with self.lock:
            self.move()
            match (method, *path.strip("/").split("/")):
                case ("GET", "api", "version"):
                    return 200, {"version": "4", "ray_version": "2.60.0", "ray_commit": "c"}
                case ("GET", "api", "jobs"):
                    return 200, [] if self.forgetful else [self.shown(name) for name in self.jobs]
                case ("POST", "api", "jobs"):
                    return self._submit(body or {})
                case ("GET", "api", "jobs", name) if unquote(name) in self.jobs and not self.forgetful:
                    return 200, self.shown(unquote(name))
                case ("POST", "api", "jobs", name, "stop") if unquote(name) in self.jobs and not self.forgetful:
                    return 200, {"stopped": self._stop(self.jobs[unquote(name)])}
        return 404, "404: Not Found"

    def shown(self, name: str) -> dict[str, Any]:
        """Return a job as Ray shows it."""
        job = self.jobs[name]
        return {
            "type": "SUBMISSION", "job_id": None, "submission_id": name, "driver_info": None, "status": job.status,
            "entrypoint": job.body["entrypoint"], "message": job.message, "error_type": None,
            "start_time": job.start_time, "end_time": None, "metadata": job.body.get("metadata"),
            "runtime_env": job.body.get("runtime_env"), "driver_exit_code": None,
        }  # fmt: skip

    def _submit(self, body: dict[str, Any]) -> tuple[int, object]:
        name = body["submission_id"]
        if self.agents_late > 0:
            self.agents_late -= 1
            return 500, "No available agent to submit job, please try again later."
        if name in self.jobs:
            return 500, f"Traceback (most recent call last):\nValueError: Job with submission_id {name} already exists."
        self.jobs[name] = RayJob(body, 1_790_000_000_000 + len(self.jobs))
        self.move()
        return 200, {"job_id": name, "submission_id": name}

    def _stop(self, job: RayJob) -> bool:
        if job.status not in {"PENDING", "RUNNING"}:
            return False
        job.stopped = True
        self._signal(job, signal.SIGTERM)
        return True

    def _signal(self, job: RayJob, number: int) -> None:
        if job.process is None or job.process.poll() is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(job.process.pid)
            for process in [first, *first.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def kill(self, name: str) -> None:
        """Kill a job's process as a node that fails does."""
        self._signal(self.jobs[name], signal.SIGKILL)

    def move(self) -> None:
        """Note which jobs have ended, and start those whose turn it is."""
        for job in self.jobs.values():
            if job.status == "RUNNING" and job.process is not None and (code := job.process.poll()) is not None:
                job.status = "STOPPED" if job.stopped else "SUCCEEDED" if code == 0 else "FAILED"
                job.message = "" if code == 0 else f"Job entrypoint command failed with exit code {code}. No logs."
        free = self.slots - sum(job.status == "RUNNING" for job in self.jobs.values())
        for job in list(self.jobs.values()):
            if job.status == "PENDING" and free > 0 and set(job.body["entrypoint_resources"]) <= set(self.resources):
                free -= 1
                words = job.words
                end = next(place for place, word in enumerate(words) if word.startswith(">>"))
                output = Path(words[end].removeprefix(">>"))
                argv = words[words.index(HOST) + 1 : end]  # a process that has imported everything runs them
                job.process = Forked(command, (HOST, argv), stdout=output, stderr=output)
                job.status, job.message = "RUNNING", "Job is currently running."
                if job.stopped:
                    self._signal(job, signal.SIGTERM)

    def end_all(self) -> None:
        """Kill whatever runs, at the end of a test."""
        for job in self.jobs.values():
            if job.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    job.process.kill()
                job.process.wait()


class _Handler(BaseHTTPRequestHandler):
    site: RayJobs

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        sent = self.headers.get("Authorization")
        self.site.calls.append((self.command, self.path, sent))
        if self.site.away:
            return self._say(500, b"Traceback (most recent call last):\nRuntimeError: GCS is away")
        if self.site.token is not None and sent != f"Bearer {self.site.token}":
            return self._say(401 if sent is None else 403, b"Unauthorized")
        if self.path in self.site.instead:
            return self._say(200, self.site.instead[self.path])
        status, answer = self.site.answer(self.command, self.path, body)
        if self.command == "POST" and self.path == "/api/jobs/" and self.site.drops > 0:
            self.site.drops -= 1
            self.close_connection = True
            return None
        return self._say(status, answer.encode() if isinstance(answer, str) else json.dumps(answer).encode())

    do_GET = do_POST = _serve

    def _say(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def ray_jobs(**changes: Any) -> Iterator[RayJobs]:
    """Yield a server, which ends with the block and with all of its jobs."""
    site = RayJobs(**changes)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site}))
    server.daemon_threads = True
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        site.end_all()
