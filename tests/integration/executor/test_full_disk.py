"""A run that fills the disk is ended while the host still has room, and what it left is brought in all the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bridge.executor.endings import of_execution
from bridge.limits import MIB, RUN_DISK_FLOOR_BYTES
from tests.fakes.local_jobs import Jobs

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="a small disk of its own is mounted by root on Linux"
)


@pytest.fixture
def small_disk(tmp_path, missing, only_mounts):
    """A folder on a file system with 32 MiB more than what a run must leave free."""
    folder = tmp_path / "small"
    folder.mkdir()
    size = RUN_DISK_FLOOR_BYTES + 32 * MIB
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", folder], check=False)
    if done.returncode != 0:
        missing("mount", "a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("kind", ["plain", "sandboxed", "other_user"])
def test_a_full_disk_ends_the_run_with_the_floor_as_its_reason(executor, need_sandbox, small_disk, token, kind):
    if kind != "plain":
        need_sandbox(kind)
    jobs = Jobs(executor, small_disk, kind)
    execution = jobs.run(
        f"""
import os, time
open(os.environ["KAKEYA_OUT"] + "/report.json", "w").write("{{}}")
with open("flood", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
        file.flush()
        time.sleep(0.02)
# {token}
""",
        output_bytes=1 << 40,
    )

    hit = execution.limits_hit[0]
    assert (execution.ending, hit.limit, hit.action) == ("limit", "disk_free_bytes", "killed")
    assert hit.observed < hit.bound == RUN_DISK_FLOOR_BYTES
    assert "bytes are free" in execution.message
    assert of_execution(execution).reason == "program_failed"
    assert set(execution.reports) == {"report.json"}
    assert [command.survivors for command in execution.commands] == [0]


def test_a_disk_that_others_fill_is_the_hosts_fault_and_not_the_programs(executor, small_disk, token):
    def fill() -> None:
        of_host = small_disk / "of-the-host"
        if b"the program ran" in jobs.heard and not of_host.exists():
            of_host.write_bytes(bytes(28 * MIB))

    jobs = Jobs(executor, small_disk)
    execution = jobs.run(
        f"""
import time
with open("a-little", "wb") as file:
    file.write(bytes({8 * MIB}))
print("the program ran", flush=True)
time.sleep(600)  # {token}
""",
        stop=fill,
    )

    assert (execution.ending, execution.limits_hit[0].limit) == ("killed", "disk_free_bytes")
    assert of_execution(execution).reason == "infrastructure"
    assert "others of this host took most of it" in execution.message


def test_a_disk_that_a_run_fills_with_files_without_a_name_is_not_the_fault_of_others(executor, small_disk, token):
    execution = Jobs(executor, small_disk).run(
        f"""
import os, time
files = []
while True:
    files.append(open("flood", "wb"))
    os.unlink("flood")
    files[-1].write(bytes(1 << 20))
    files[-1].flush()
    time.sleep(0.02)
# {token}
""",
        output_bytes=1 << 40,
    )

    assert (execution.ending, execution.limits_hit[0].limit) == ("limit", "disk_free_bytes")
    assert of_execution(execution).reason == "program_failed"
    assert "others" not in execution.message
