"""A runner that is asked to end while its remote does not answer ends within five seconds, and loses nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.runner_site import Site

STOP_S = 5.0
# What git starts as ssh: the remote's side here, hanging where the test says so. Only a listing has its packets traced.
SSH = """#!/bin/sh
for last; do :; done
case "$last" in
  *receive-pack*) kind=push ;;
  *) if [ -n "$GIT_TRACE_PACKET" ]; then kind=listing; else kind=fetch; fi ;;
esac
if [ -e {folder}/hang-$kind ]; then
  touch {folder}/hung-$kind
  exec sleep 1000
fi
exec sh -c "$last"
"""


@pytest.fixture
def slow_remote(site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    s = site()
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(folder=tmp_path))
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH", str(ssh))
    monkeypatch.setenv("GIT_SSH_VARIANT", "ssh")
    s.create_bus()
    return s


def hang(s: Site, kind: str) -> None:
    (s.folder / f"hang-{kind}").touch()


def stopped(s: Site, kind: str, runner) -> float:
    """Wait until a call hangs, ask the runner to end, and return the seconds until it has; let the remote answer."""
    s.until((s.folder / f"hung-{kind}").exists, f"no {kind} ever hung")
    began_s = time.monotonic()
    runner.terminate()
    assert runner.wait(timeout=120) == 128 + signal.SIGTERM
    took_s = time.monotonic() - began_s
    (s.folder / f"hang-{kind}").unlink()
    return took_s


def start(s: Site):
    runner = s.start("serve", "--bus", f"ssh://localhost{s.folder}/bus.git")
    s.until(lambda: "serves" in (s.folder / "mini.log").read_text(), "never served")
    s.until(lambda: s.requester().read_beacons(), "never showed itself")
    return runner


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["listing", "fetch", "push"])
def test_a_call_that_hangs_before_a_run_begins_ends_with_the_runner_and_the_next_one_runs_it(
    slow_remote: Site, kind: str
) -> None:
    s = slow_remote
    runner = start(s)
    hang(s, kind)
    ref = s.ask()
    assert stopped(s, kind, runner) <= STOP_S
    start(s)
    assert s.ended(ref).reason == "gate_rejected"
    assert s.starts() == [ref.id]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["running", "ending"])
def test_a_push_that_hangs_in_a_run_ends_with_the_runner_and_the_next_one_publishes_it(
    slow_remote: Site, moment: str
) -> None:
    s = slow_remote
    s.set_work(f"until [ -e {s.folder}/counted/go-on ]; do echo on; sleep 0.2; done")
    runner = start(s)
    ref = s.ask()
    s.until(s.starts, "never started")
    hang(s, "push")
    if moment == "ending":
        (s.folder / "counted" / "go-on").touch()
    assert stopped(s, "push", runner) <= STOP_S
    (s.folder / "counted" / "go-on").touch()
    start(s)
    assert s.ended(ref).reason == "gate_rejected"
    assert s.starts() == [ref.id]
