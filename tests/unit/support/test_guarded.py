from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import guarded

ROOT = Path(__file__).parents[3]
# Two processes in one group that would run for ever; the first one does not even end when it is asked to.
SERVER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "deaf" else signal.SIG_DFL)
child = os.fork()
if child:
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(f"{os.getpid()} {child}")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    time.sleep(60)
"""
TESTS = f"""
import sys, time
from tests.support import guarded
guarded.start([sys.executable, "-c", {SERVER!r}, *sys.argv[1:]])
time.sleep(60)
"""


def until(what, within_s: float = 240.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """Where the server leaves the numbers of its processes; a broken guard leaves none of them behind."""
    yield tmp_path / "pids"
    for pid in read(tmp_path / "pids"):
        if alive(pid):
            os.kill(pid, 9)


def read(pids: Path) -> list[int]:
    return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []


@pytest.mark.parametrize("manners", ["polite", "deaf"])
def test_a_server_ends_with_tests_that_are_killed(pids: Path, manners: str) -> None:
    tests = subprocess.Popen([sys.executable, "-c", TESTS, str(pids), manners], cwd=ROOT)
    until(pids.exists)
    server_pids = read(pids)
    assert [alive(pid) for pid in server_pids] == [True, True]
    tests.kill()
    tests.wait()
    until(lambda: not any(map(alive, server_pids)))


def test_a_server_that_is_stopped_is_gone_with_its_children(pids: Path) -> None:
    guard = guarded.start([sys.executable, "-c", SERVER, str(pids), "polite"])
    until(pids.exists)
    server_pids = read(pids)
    guarded.stop(guard)
    until(lambda: not any(map(alive, server_pids)))


def test_the_end_of_a_server_is_the_end_of_its_guard_with_its_exit_code(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as stderr:
        guard = guarded.start([sys.executable, "-c", "import sys; sys.exit('no port')"], stderr=stderr)
        assert guard.wait(timeout=240) == 1
        guarded.stop(guard)
    assert (tmp_path / "said").read_text() == "no port\n"
