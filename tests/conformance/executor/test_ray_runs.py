"""Runs that Ray places, over a server that answers as Ray's: its words, its stop, its silence."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bridge.errors import InfrastructureError, SandboxUnavailableError
from bridge.executor.engines.executor import EngineExecutor
from bridge.executor.engines.interface import JobNeeds
from bridge.executor.engines.jobs_server import check_address
from bridge.executor.engines.placed import ClusterQueue
from bridge.executor.engines.ray import RayEngine, RayOptions
from bridge.executor.engines.submitted import load_submitted, save_submitted
from bridge.executor.holder.folder import RunFolder
from bridge.executor.interface import Execution, HostPaths
from bridge.executor.trial import make_directory
from bridge.runner.maintenance.engine_checks import check_engine
from tests.fakes.ray_jobs import HeldRay, RayJobs, ray_jobs
from tests.support.placed_queue import CLOCK, FOREVER, PlacedQueue
from tests.support.waiting import until

NEEDS = JobNeeds((), 60.0)


@pytest.fixture(autouse=True)
def _as_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.executor.engines.ray.os.geteuid", lambda: 1000)


@pytest.fixture
def site() -> Iterator[RayJobs]:
    with ray_jobs() as made:
        yield made


def engine_of(site: RayJobs, **options: float) -> HeldRay:
    return HeldRay(site.address, lambda: None, RayOptions(**options, resources={"mac": "m4"}), CLOCK)


@pytest.fixture
def queue(site: RayJobs, tmp_path: Path) -> PlacedQueue:
    return PlacedQueue(tmp_path, engine_of(site))


def only(site: RayJobs) -> tuple[str, dict[str, object]]:
    ((name, job),) = site.jobs.items()
    return name, job.body


def test_a_label_that_no_node_has_waits_until_the_owners_longest_and_never_begins(
    queue: PlacedQueue, site: RayJobs
) -> None:
    queue.longest_wait_s = 0.1
    run = queue.go(queue.spec(placement=("mac",)))
    message = (
        r"waited 0 s in the queue of ray, the owner's longest: job kakeya-\w+-1, PENDING \(Job has not started yet"
    )
    with pytest.raises(InfrastructureError, match=message):
        run.wait()
    assert queue.waits[0].startswith("queued on ray: Job has not started yet")
    assert queue.waits[0].endswith("1st of 1")
    site.resources = ("m4",)  # the node comes at last, and the job with it
    with site.lock:
        site.move()
    name, body = only(site)
    assert body["entrypoint_resources"] == {"m4": 0.001}
    until(lambda: site.answer("GET", f"/api/jobs/{name}", None)[1]["status"] in {"FAILED", "STOPPED"}, why="it goes on")
    assert (RunFolder(queue.handle).facts(), RunFolder(queue.handle).kept()) == (None, None)


def test_what_waits_is_cancelled_though_ray_keeps_its_place(queue: PlacedQueue, site: RayJobs) -> None:
    site.slots = 0
    run = queue.go()
    queue.ask = "cancelled"
    came_to = run.wait()
    assert (came_to.ending, came_to.commands, site.jobs[only(site)[0]].status) == ("cancelled", (), "PENDING")
    again = queue.executor.recover(queue.handle, queue.hooks())
    assert not isinstance(again, Execution)
    assert again.wait().ending == "cancelled"


@pytest.mark.parametrize("by", ["its owner", "ray", "a node that fails"])
def test_a_stop_of_the_job_ends_the_run_with_what_it_came_to(queue: PlacedQueue, site: RayJobs, by: str) -> None:
    """Ray's stop reaches all that descends from the job's process; the run must not look as if it had failed."""
    queue.left(FOREVER)
    name, _ = only(site)
    run = queue.executor.recover(queue.handle, queue.hooks())
    assert not isinstance(run, Execution)
    if by == "its owner":
        queue.ask = "cancelled"
    elif by == "ray":
        site.answer("POST", f"/api/jobs/{name}/stop", None)
    else:
        site.kill(name)
    came_to = run.wait()
    assert (came_to.ending, came_to.ok) == ("cancelled" if by == "its owner" else "interrupted", True)
    assert came_to.log == b"up\n"
    assert [command.survivors for command in came_to.commands] == [0]
    facts = RunFolder(queue.handle).facts()
    assert facts is not None
    until(lambda: not _runs(facts.pid), why="its supervisor never ended")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_supervisor_and_an_engine_that_forgot_leave_an_interrupted_run(
    queue: PlacedQueue, site: RayJobs
) -> None:
    queue.left(FOREVER)
    facts = RunFolder(queue.handle).facts()
    assert facts is not None
    os.kill(facts.pid, signal.SIGKILL)
    site.forgetful = True
    came_to = queue.executor.recover(queue.handle, queue.hooks()).wait()
    assert (came_to.ending, came_to.ok, came_to.log[:3]) == ("interrupted", False, b"up\n")


def test_a_submission_that_was_taken_and_not_answered_is_found_and_not_sent_again(
    queue: PlacedQueue, site: RayJobs
) -> None:
    site.drops = 1
    assert queue.go().wait().ending == "exited"
    assert len(site.jobs) == 1
    submitted = load_submitted(queue.handle)
    assert submitted is not None
    save_submitted(queue.handle, submitted.evolve(job=None))  # a runner that was killed before it had the answer
    (queue.handle / "kept.json").write_bytes(b"")
    assert queue.executor.recover(queue.handle, queue.hooks()) is not None
    assert len(site.jobs) == 1
    with pytest.raises(InfrastructureError, match="already exists"):
        queue.engine.submit(submitted.name, ("true",), queue.handle / "engine.log", NEEDS)


def test_a_ray_that_has_just_started_is_asked_again_until_it_takes_the_job(
    site: RayJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.slots, site.agents_late = 0, 2
    monkeypatch.setattr("bridge.executor.engines.ray._AGAIN_S", 0.0)
    assert engine_of(site).submit("a", ("true",), tmp_path / "log", NEEDS) == "a"
    assert (site.agents_late, list(site.jobs)) == (0, ["a"])


def test_an_engine_that_is_away_at_submission_starts_nothing_and_nothing_begins_later(
    queue: PlacedQueue, site: RayJobs
) -> None:
    with queue.executor.start(queue.spec(), make_directory(queue.base / "run"), queue.handle) as starting:
        site.away = True
        with pytest.raises(InfrastructureError, match="answers 500: RuntimeError: GCS is away"):
            starting.go(queue.hooks())
    assert site.jobs == {}
    assert RunFolder(queue.handle).withdrawn()
    gone = HeldRay("http://127.0.0.1:9", lambda: None, RayOptions(), CLOCK)
    with pytest.raises(InfrastructureError, match=r"http://127\.0\.0\.1:9 does not answer"):
        gone.submit("a", ("true",), queue.base / "log", NEEDS)


def test_secrets_are_in_the_runs_folder_and_nowhere_in_what_ray_is_told(queue: PlacedQueue, site: RayJobs) -> None:
    secret, spec = "s3cret-value", queue.spec()
    with queue.executor.start(spec, make_directory(queue.base / "run"), queue.handle, (secret,)) as starting:
        starting.go(queue.hooks()).wait()
    name, body = only(site)
    assert name == f"kakeya-{spec.id}-1"
    assert secret not in json.dumps(body)
    assert (body["runtime_env"], body["metadata"]) == ({}, {})
    assert body["entrypoint"].startswith("exec env -i PATH=/usr/bin:/bin ")  # of Ray's own environment: nothing


def test_what_the_owner_says_goes_along_and_nothing_else(site: RayJobs, tmp_path: Path) -> None:
    site.slots = 0
    engine_of(site, cpus=2, gpus=0.5, memory_bytes=1 << 30).submit("a", ("true",), tmp_path / "log", NEEDS)
    resources = {name: value for name, value in only(site)[1].items() if name.startswith("entrypoint_")}
    assert resources == {"entrypoint_num_cpus": 2, "entrypoint_num_gpus": 0.5, "entrypoint_memory": 1 << 30,
                     "entrypoint_resources": {}}  # fmt: skip
    engine_of(site).submit("b", ("true",), tmp_path / "log", NEEDS)
    assert site.jobs["b"].body["entrypoint_num_cpus"] == 1.0  # else it is the head node's


def test_the_token_goes_with_every_call_and_into_no_message(site: RayJobs, tmp_path: Path) -> None:
    site.token = "t0ken"
    engine = RayEngine(site.address, lambda: site.token, RayOptions(), CLOCK)
    assert "Ray 2.60.0 ends what descends from a job" in str(engine.check())
    assert [sent for _, _, sent in site.calls] == ["Bearer t0ken", None]  # the second: whether it is wanted
    engine.look("a")
    assert site.calls[-1][2] == "Bearer t0ken"
    for token, says in ((None, "wants a token"), ("wr0ng", "refuses the token")):
        with pytest.raises(InfrastructureError, match=says) as refused:
            RayEngine(site.address, lambda: token, RayOptions(), CLOCK).check()  # noqa: B023 - called here
        assert "wr0ng" not in str(refused.value)


def test_doctor_says_what_ray_answers_who_may_use_it_and_what_a_node_sees(queue: PlacedQueue, site: RayJobs) -> None:
    engine = RayEngine(site.address, lambda: None, RayOptions(), CLOCK)
    ray, folder, sandbox = check_engine(engine, queue.base, sys.executable, CLOCK, patience_s=240.0)
    assert (ray.name, ray.level, folder.name) == ("ray", "ok", "shared folder")
    assert f"it wants no token, so whoever reaches {site.address} runs commands" in ray.text
    assert f"{queue.base} on node {platform.node()}" in folder.text
    assert (sandbox.name, f"on node {platform.node()}" in sandbox.text) == ("sandbox", True)
    site.away = True
    (check,) = check_engine(engine, queue.base, sys.executable, CLOCK)
    assert (check.level, "GCS is away" in check.text) == ("fail", True)


def test_a_run_without_a_sandbox_is_refused(queue: PlacedQueue, site: RayJobs) -> None:
    placement = ClusterQueue(RayEngine(site.address, lambda: None, RayOptions(), CLOCK), 600.0)
    executor = EngineExecutor(CLOCK, placement, HostPaths(), queue.base / "trials")
    with pytest.raises(SandboxUnavailableError, match=r"wants no sandbox: Ray 2\.60\.0 ends what descends"):
        executor.start(queue.spec(), make_directory(queue.base / "run"), queue.handle)


@pytest.mark.parametrize(
    ("path", "answer", "says"),
    [
        ("/api/version", b"<html>a portal</html>", "api/version with something that is not Ray's: it: Invalid JSON"),
        ("/api/version", b"{}", "ray_version: Field required"),
        ("/api/jobs/a", b"[]", "api/jobs/… with something .*: it: Input should be an object"),
        ("/api/jobs/a", b'{"status": "DANCING"}', "status: Input should be 'PENDING'"),
        (
            "/api/jobs/a",
            b'{"status": "PENDING", "start_time": "soon"}',
            "start_time: Input should be a valid number",
        ),
        ("/api/jobs/a", b'{"status": "PENDING", "start_time": NaN}', "start_time: Input should be a finite number"),
        ("/api/jobs/a", b'{"status": "PENDING", "submission_id": 7}', "submission_id: Input should be a valid str"),
        ("/api/jobs/a", b"[" * 5000, "api/jobs/… with something that is not Ray's"),
    ],
)
def test_every_field_of_an_answer_that_is_no_answer_is_one_clear_error(
    site: RayJobs, path: str, answer: bytes, says: str
) -> None:
    site.instead[path] = answer
    engine = RayEngine(site.address, lambda: None, RayOptions(), CLOCK)
    with pytest.raises(InfrastructureError, match=says):
        engine.check() if path == "/api/version" else engine.look("a")


def test_an_answer_of_another_job_and_one_without_end_are_refused(site: RayJobs, tmp_path: Path) -> None:
    site.instead["/api/jobs/"] = b'{"submission_id": "b"}'
    with pytest.raises(InfrastructureError, match="the job 'b' instead of 'a'"):
        engine_of(site).submit("a", ("true",), tmp_path / "log", NEEDS)
    site.instead["/api/jobs/a"] = b" " * (17 << 20)
    with pytest.raises(InfrastructureError, match="more than 16 MiB"):
        engine_of(site).look("a")


def test_jobs_of_others_are_counted_and_drivers_that_nobody_submitted_are_not(site: RayJobs, tmp_path: Path) -> None:
    site.slots = 0
    engine = engine_of(site)
    for name in ("first", "a/b", "last"):
        engine.submit(name, ("true",), tmp_path / "log", NEEDS)
    assert [engine.look(name).place for name in ("first", "a/b", "last")] == [(1, 3), (2, 3), (3, 3)]
    assert engine.find("a/b").word == "PENDING"
    assert engine.find("a") is None
    site.instead["/api/jobs/"] = b'[{"status": "PENDING", "submission_id": null}]'
    assert engine_of(site).look("first").place is None


@pytest.mark.parametrize(
    ("address", "token", "says"),
    [
        ("http://ray.example:8265", False, None),
        ("http://localhost:8265/prefix", True, None),
        ("https://ray.example", True, None),
        ("http://ray.example:8265", True, "could read the token"),
        ("ftp://x", False, "expected an http"),
        ("http://u:p@x", False, "no user"),
        ("http://x:port", False, "Port"),
    ],
)
def test_a_token_goes_to_no_other_machine_in_the_clear(address: str, token: bool, says: str | None) -> None:
    refusal = check_address(address, with_token=token)
    assert refusal is None if says is None else says in str(refusal)


def test_a_runner_that_is_root_submits_nothing(site: RayJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.executor.engines.ray.os.geteuid", lambda: 0)
    with pytest.raises(InfrastructureError, match="a runner that is root submits nothing"):
        engine_of(site).submit("a", ("true",), tmp_path / "log", NEEDS)
    assert site.jobs == {}
