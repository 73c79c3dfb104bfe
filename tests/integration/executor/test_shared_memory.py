"""What a run without a sandbox leaves in shared memory is removed, or named where it may be somebody else's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from bridge.executor.processes.shared_memory import objects_of
from bridge.executor.sandbox.user import job_uid
from bridge.records.jobspec import SandboxSpec
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody lists shared memory")
LEAVES = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0, 1 << 16, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600))
open("/dev/shm/{name}", "w").write("x")
"""
UID, UID_OF_TWO = 54399, 54398  # another worker may be at the other test


@pytest.fixture
def name():
    chosen = f"kakeya-test-{uuid.uuid4().hex}"
    yield chosen
    with contextlib.suppress(OSError):
        Path("/dev/shm", chosen).unlink()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a run a user of its own")
def test_what_a_run_leaves_is_removed_and_said(plain, name):
    before = objects_of(UID)
    execution = plain.run(LEAVES.format(name=name), sandbox=SandboxSpec(mode="off", uid=UID))

    assert execution.program_exit == 0
    assert objects_of(UID) == before
    assert f"left in shared memory: file {name}, msg".encode() in execution.log
    assert b"4 of 4 removed" in execution.log


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start somebody else's process")
def test_what_may_be_somebody_elses_is_named_and_left(plain, name):
    command = ["setpriv", f"--reuid={UID_OF_TWO}", "--clear-groups", "sleep", "600"]
    with subprocess.Popen(command) as other:
        try:
            until(lambda: psutil.Process(other.pid).uids().real == UID_OF_TWO)
            execution = plain.run(LEAVES.format(name=name), sandbox=SandboxSpec(mode="off", uid=UID_OF_TWO))
        finally:
            other.kill()

    assert b"not removed because others are user" in execution.log
    assert Path("/dev/shm", name).exists()
    libc = ctypes.CDLL(None)
    for obj in objects_of(UID_OF_TWO):
        if obj.kind == "shm":
            libc.shmctl(obj.key, 0, None)
        elif obj.kind == "sem":
            libc.semctl(obj.key, 0, 0)
        elif obj.kind == "msg":
            libc.msgctl(obj.key, 0, None)


def test_a_sandbox_leaves_nothing_to_sweep(caged, name):
    before = objects_of(job_uid(caged.spec("pass").sandbox.uid))
    execution = caged.run(LEAVES.format(name=name))

    assert execution.program_exit == 0
    assert b"shared memory" not in execution.log
    assert objects_of(job_uid(caged.spec("pass").sandbox.uid)) == before
