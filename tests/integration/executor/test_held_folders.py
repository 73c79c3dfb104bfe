"""A runner that is killed leaves folders of its trial and its runs; the next start removes these and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bridge.executor.local import LocalExecutor
from bridge.executor.processes.tree import alive
from bridge.executor.sandbox.held_folders import sweep, sweep_run_folders
from bridge.executor.trial import PREFIX
from bridge.system.clock import SystemClock
from tests.support.waiting import until

PROGRAM = """
import signal
from bridge.executor.trial import try_sandbox
from bridge.system.clock import SystemClock
def wait(spec, directory):
    print("in the middle", flush=True)
    signal.pause()
try_sandbox(SystemClock(), None, wait)
"""
OLD = "kakeya-sandbox-abcd1234"


def test_a_killed_trial_leaves_no_process(tmp_path) -> None:
    marked = PROGRAM.replace('"in the middle"', "spec.commands[0].argv[-1]")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.Popen([sys.executable, "-c", marked], env=environment, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    victim = psutil.Process(json.loads(killed.stdout.readline())["pid"])
    assert victim.is_running()
    killed.kill()
    killed.wait(timeout=240)
    killed.stdout.close()
    assert until(lambda: not alive(victim))


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root moves a run's folders")
def test_run_folders_of_a_runner_that_was_killed_are_swept_at_the_next_start(tmp_path) -> None:
    program = f"""
import signal
from pathlib import Path
from bridge.executor.sandbox import held_folders as run_folders
from bridge.executor.trial import make_directory
run_folders.may_mount = lambda: False
Path({str(tmp_path)!r}).chmod(0o700)
with run_folders.within_reach(make_directory(Path({str(tmp_path / "run")!r})), 54321) as moved:
    print(moved.root, flush=True)
    signal.pause()
"""
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    left = Path(killed.stdout.readline().strip())
    assert left.parts[-2:] == (tmp_path.name, "run")  # the run's own names go with it
    work, left = left / "work", left.parents[1]
    assert left.name.startswith("kakeya-run-")
    (work / "note").write_text("x")
    os.chown(work, 54321, 54321)
    assert sweep_run_folders() == 0  # its runner lives
    assert left.exists()
    killed.kill()
    killed.wait(timeout=240)
    killed.stdout.close()
    LocalExecutor(SystemClock())
    assert not left.exists()


def test_a_folder_that_a_killed_trial_left_goes_at_the_next_start(tmp_path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "in the middle\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait(timeout=240)
    killed.stdout.close()
    assert [path.name.startswith("kakeya-sandbox-") for path in tmp_path.iterdir()] == [True]
    second = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert until(lambda: second.stdout is not None and second.stdout.readline()) == "in the middle\n"
        own = list(tmp_path.iterdir())
        assert len(own) == 1
        assert sweep(PREFIX, tmp_path) == 0  # its trial is going on
        assert list(tmp_path.iterdir()) == own
    finally:
        second.kill()
        second.communicate(timeout=240)


@pytest.mark.parametrize("kind", ["link", "file", "another name", "another user's"])
def test_what_is_not_certainly_ours_stays(tmp_path, kind) -> None:
    elsewhere = tmp_path / "kept"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    shared = tmp_path / "shared"
    shared.mkdir()
    path = shared / (OLD if kind != "another name" else f"{OLD}-more")
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "file":
        path.write_text("x")
    else:
        path.mkdir()
    if kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder to another user")
        os.chown(path, 65534, 65534)
    assert sweep(PREFIX, shared) == 0
    assert os.path.lexists(path)
    assert (elsewhere / "precious").exists()


def test_links_inside_a_stale_folder_are_not_followed(tmp_path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "precious").write_text("x")
    shared = tmp_path / "shared"
    (shared / OLD).mkdir(parents=True)
    (shared / OLD / "work").symlink_to(tmp_path / "kept")
    assert sweep(PREFIX, shared) == 1
    assert list(shared.iterdir()) == []
    assert (tmp_path / "kept" / "precious").exists()
