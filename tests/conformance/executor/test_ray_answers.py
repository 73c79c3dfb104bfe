"""How long Ray's server may take, and how much it is asked."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError, SandboxUnavailableError
from bridge.executor.engines.interface import JobNeeds
from bridge.executor.engines.jobs_server import JobsServer
from bridge.executor.engines.ray import RayEngine, RayOptions
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from bridge.runner.maintenance.engine_checks import check_engine
from tests.fakes.ray_jobs import ray_jobs
from tests.support.placed_queue import CLOCK, PlacedQueue


@contextmanager
def dripping(begin: bytes) -> Iterator[str]:
    """Yield the address of a server that sends the beginning of an answer, then a byte every 10 ms."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(begin)
                for _ in range(1000):
                    connection.sendall(b"a")
                    time.sleep(0.01)

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"]
)
def test_an_answer_that_drips_has_the_time_of_the_whole_answer(begin: bytes) -> None:
    with dripping(begin) as address:
        began_s = CLOCK.steady_s()
        with pytest.raises(InfrastructureError, match="does not answer: not in time"):
            JobsServer(address, lambda: None, CLOCK).call("GET", "api", "version", patience_s=0.2)
        assert CLOCK.steady_s() - began_s < 8.0  # the server drips for more than ten


def test_a_run_is_followed_by_its_own_name_and_what_waits_is_placed_by_one_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.executor.engines.ray.os.geteuid", lambda: 1000)
    with ray_jobs(slots=0) as site:
        engine = RayEngine(site.address, lambda: None, RayOptions(), CLOCK)
        for name in ("first", "second"):
            engine.submit(name, ("true",), tmp_path / "log", JobNeeds((), 60.0))
        assert [engine.look("second").place for _ in range(3)] == [(2, 2)] * 3
        assert sum(path == "/api/jobs/" for method, path, _ in site.calls if method == "GET") == 1
        engine.submit("third", ("true",), tmp_path / "log", JobNeeds((), 60.0))
        site.instead["/api/jobs/"] = b" " * (17 << 20)  # years of jobs
        job = engine.look("third")
        assert (job.state, job.place) == ("queued", None)
        site.jobs["first"].status = "RUNNING"
        calls_before = len(site.calls)
        assert engine.look("first").state == "running"
        assert [path for _, path, _ in site.calls[calls_before:]] == ["/api/jobs/first"]


@pytest.mark.parametrize(("has", "wants"), [(None, None), ("t0ken", None), ("t0ken", "t0ken")])
def test_a_run_that_reaches_a_network_is_refused_where_it_could_place_jobs_itself(
    tmp_path: Path, has: str | None, wants: str | None
) -> None:
    """Ray without a token runs what anybody asks who reaches it, as the runner's user and outside of any sandbox."""
    with ray_jobs(slots=0, token=wants) as site:
        engine = RayEngine(site.address, lambda: has, RayOptions(), CLOCK)
        queue = PlacedQueue(tmp_path, engine)
        spec = queue.spec(sandbox=SandboxSpec(mode="required", network="host"))
        message = f"it wants no token, so whoever reaches {site.address} runs commands as its user"
        checks = check_engine(engine, tmp_path, sys.executable, CLOCK, patience_s=0.1, networked=("fetch",))
        results = [next(checks), next(checks)]
        with nullcontext() if wants else pytest.raises(SandboxUnavailableError, match=message):
            queue.executor.start(spec, make_directory(tmp_path / "run"), queue.handle)
        alone = spec.evolve(sandbox=SandboxSpec(mode="required"))
        queue.executor.start(alone, make_directory(tmp_path / "alone"), tmp_path / "other")
    refused = f"runs of fetch are refused, because they reach the network of their host: {message}"
    assert ((results[1].level, results[1].text) == ("fail", refused)) == (wants is None)
