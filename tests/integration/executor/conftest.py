"""Real runs of real, mostly hostile programs: plain, in the sandbox, and in the sandbox as another user."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from bridge.executor.local import LocalExecutor
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import RUN_ID, Jobs, living

KINDS = ("plain", "sandboxed", "other_user")


@pytest.fixture(scope="session")
def executor() -> LocalExecutor:
    return LocalExecutor(SystemClock())


@pytest.fixture(scope="session")
def need_sandbox(executor, missing):
    """Return a function that ends the test where the sandbox does not work."""

    def need(kind: str) -> None:
        applied = executor.sandbox()
        if applied.kind not in {"bwrap", "seatbelt"}:
            missing("sandbox", f"no working sandbox but {applied.kind}: {applied.reason}")
        if kind == "other_user" and os.getuid() != 0:
            pytest.skip("becoming another user needs root")

    return need


@pytest.fixture
def only_mounts(tmp_path_factory):
    """No other test changes, or compares, what is mounted on this machine meanwhile."""
    with (tmp_path_factory.getbasetemp().parent / "mounts.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def plain(executor, tmp_path) -> Jobs:
    return Jobs(executor, tmp_path)


@pytest.fixture(params=KINDS)
def jobs(request, executor, tmp_path, need_sandbox) -> Jobs:
    if request.param != "plain":
        need_sandbox(request.param)
    return Jobs(executor, tmp_path, request.param)


@pytest.fixture(params=KINDS[1:])
def caged(request, executor, tmp_path, need_sandbox) -> Jobs:
    need_sandbox(request.param)
    return Jobs(executor, tmp_path, request.param)


@pytest.fixture
def token(tmp_path):
    """A text to put into a hostile program; nobody who carries it may live when the test ends."""
    text = f"hostile-{os.getpid()}-{abs(hash(str(tmp_path)))}"
    yield text
    assert living(text) == []


@pytest.fixture(autouse=True)
def no_groups():
    """No run of a test leaves a control group behind; a dead runner's goes moments after its job."""
    yield
    deadline = time.monotonic() + 240
    while list(Path("/sys/fs/cgroup").glob(f"*/kakeya-{RUN_ID}-*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
