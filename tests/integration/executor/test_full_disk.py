"""A run that fills the disk is ended while the host still has room, and what it left is brought in all the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
    assert set(execution.reports) == {"report.json"}
    assert [command.survivors for command in execution.commands] == [0]
