"""Whose processes a run's are, as the host sees them from outside, and what that user can still do."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import psutil
import pytest

from bridge.executor.sandbox.user import JOB_UID, SETPRIV_PATHS
from bridge.system.process import run
from tests.fakes.local_jobs import OTHER_UID
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these read /proc")

PROGRAM = """
import os, sys, time
open(os.environ["KAKEYA_OUT"] + "/report.json", "w").write("{}")
if os.fork() == 0:
    time.sleep(600)
print("here", flush=True)
while not os.path.exists("go-on"): time.sleep(0.02)
"""
KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/sys")


def users_below(pid: int) -> set[int]:
    """Return the real, effective, saved and file-system users of everything below a process."""
    uids: set[int] = set()
    for process in psutil.Process(pid).children(recursive=True):
        status = Path(f"/proc/{process.pid}/status").read_text()
        uids.update(map(int, re.search(r"^Uid:(.*)$", status, re.MULTILINE)[1].split()))
    return uids


def test_every_process_of_a_run_is_an_ordinary_user_and_its_report_comes_in(jobs, token):
    users: set[int] = set()

    def look():
        if jobs.heard and not users:
            users.update(users_below(jobs.keeper().pid))
            (jobs.directory.work / "go-on").touch()

    execution = jobs.run(f"{PROGRAM}\n# {token}", stop=look)
    own = JOB_UID if os.getuid() == 0 else os.getuid()

    assert users == {OTHER_UID if jobs.kind == "other_user" else own}
    assert users == {execution.sandbox.uid}
    assert execution.program_exit == 0
    assert execution.reports == {"report.json": b"{}"}


def test_no_setting_of_the_kernel_can_be_opened_for_writing(caged, token):
    settings = [str(path) for path in Path("/proc/sys").rglob("*") if path.is_file() and path.stat().st_mode & 0o222]
    program = f"""
import json, os
got = []
for path in {settings!r}:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        got.append(path)
    except OSError:
        pass
places = [top for top in {KERNEL!r} if os.path.exists(top)]
print(json.dumps([got, [top for top in places if not os.statvfs(top).f_flag & os.ST_RDONLY]]))  # {token}
"""
    execution = caged.run(program)

    assert len(settings) > 100
    assert (execution.program_exit, execution.log) == (0, b"[[], []]\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("open_to_all", [True, False])
def test_root_that_may_not_mount_runs_what_everybody_can_reach_and_refuses_the_rest(tmp_path, open_to_all):
    program = "/usr/bin/id" if open_to_all else str(tmp_path / "id")
    if not open_to_all:
        Path(program).write_bytes(Path("/usr/bin/id").read_bytes())
        Path(program).chmod(0o755)
    script = f"""
from pathlib import Path
from bridge.executor.local import LocalExecutor
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs
done = Jobs(LocalExecutor(SystemClock()), Path({str(tmp_path)!r})).run(argv=[({program!r}, "-u")])
print(done.ok, done.program_exit, done.log)
"""
    setpriv = next(path for path in SETPRIV_PATHS if Path(path).exists())
    lesser = (setpriv, "--inh-caps=-sys_admin", "--bounding-set=-sys_admin")
    done = run([*lesser, sys.executable, "-c", script], cwd=Path(__file__).parents[3], timeout_s=PATIENCE_S)

    if open_to_all:
        assert done.stdout.decode() == f"True 0 {str(JOB_UID).encode() + bytes([10])!r}\n", done.describe()
        assert list(Path("/var/tmp").glob(f"kakeya-run-*/{tmp_path.name}")) == []  # others' runs have such folders, too
    else:
        assert "this process may not mount" in done.stderr.decode()
        assert "where every user can go" in done.stderr.decode()
