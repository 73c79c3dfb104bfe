"""A runner that is killed in the middle of its trial leaves a folder; the next start clears it and nothing else."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys

import pytest

from bridge.executor.sandbox.stale import STALE_AFTER_S, clear_stale
from bridge.system.clock import SystemClock
from tests.fakes.clone import until

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


class Later(SystemClock):
    """A clock that is an hour ahead: a change time cannot be set back."""

    def now(self) -> dt.datetime:
        return super().now() + dt.timedelta(seconds=STALE_AFTER_S + 60)


def test_a_folder_that_a_killed_trial_left_goes_at_the_next_start(tmp_path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "in the middle\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait(timeout=60)
    killed.stdout.close()
    assert [path.name.startswith("kakeya-sandbox-") for path in tmp_path.iterdir()] == [True]
    assert clear_stale(tmp_path, SystemClock()) == 0  # a neighbour's trial may be going on
    again = "from tests.integration.executor.test_stale_trials import Later\n" + PROGRAM.replace(
        "try_sandbox(SystemClock()", "try_sandbox(Later()"
    )
    second = subprocess.Popen([sys.executable, "-c", again], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert until(lambda: second.stdout is not None and second.stdout.readline()) == "in the middle\n"
        assert len(list(tmp_path.iterdir())) == 1  # its own
    finally:
        second.kill()
        second.communicate(timeout=60)


@pytest.mark.parametrize("kind", ["link", "file", "another name", "another user's"])
def test_what_is_not_certainly_ours_stays(tmp_path, kind) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "precious").write_text("x")
    shared = tmp_path / "shared"
    shared.mkdir()
    path = shared / (OLD if kind != "another name" else f"{OLD}-more")
    if kind == "link":
        path.symlink_to(kept)
    elif kind == "file":
        path.write_text("x")
    else:
        path.mkdir()
    if kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder to another user")
        os.chown(path, 65534, 65534)
    assert clear_stale(shared, Later()) == 0
    assert os.path.lexists(path)
    assert (kept / "precious").exists()


def test_links_inside_a_stale_folder_are_not_followed(tmp_path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "precious").write_text("x")
    shared = tmp_path / "shared"
    (shared / OLD).mkdir(parents=True)
    (shared / OLD / "work").symlink_to(tmp_path / "kept")
    assert clear_stale(shared, Later()) == 1
    assert list(shared.iterdir()) == []
    assert (tmp_path / "kept" / "precious").exists()
