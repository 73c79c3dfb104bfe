"""A command that the keeper runs leaves no process behind: it ends, it is killed, or its keeper is asked to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")

LIMIT_S = 240.0
COMMAND = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
if os.fork() == 0:
    os.setsid()  # a host that serves on by itself: twice forked, in a session of its own, deaf to TERM
    if os.fork() == 0:
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (folder / "left.new").write_text(str(os.getpid()))
        (folder / "left.new").rename(folder / "left")
        time.sleep(600)
    os._exit(0)
os.wait()
while not (folder / "left").exists():
    time.sleep(0.01)
(folder / "command.new").write_text(str(os.getpid()))
(folder / "command.new").rename(folder / "command")
time.sleep(float(sys.argv[2]))
sys.exit(7)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[float], subprocess.Popen[bytes]]]:
    """Return what starts the command under a keeper and waits until it runs, for so many seconds."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(stays_s: float) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "tests.support.keeper", sys.executable, "-c", COMMAND, str(tmp_path)]
        started.append(subprocess.Popen([*argv, str(stays_s)], stderr=subprocess.PIPE))
        until_s = time.monotonic() + LIMIT_S
        while not (tmp_path / "command").exists():
            assert time.monotonic() < until_s
            time.sleep(0.02)
        return started[-1]

    yield begin
    for keeper in started:
        keeper.kill()
        keeper.communicate()
    for name in ("left", "command"):
        if (tmp_path / name).exists() and psutil.pid_exists(pid := int((tmp_path / name).read_text())):
            os.kill(pid, signal.SIGKILL)


def end_by_itself(_keeper: int, _command: int) -> None:
    pass


def kill_the_command(_keeper: int, command: int) -> None:
    os.kill(command, signal.SIGKILL)


def ask_the_keeper_to_end(keeper: int, _command: int) -> None:
    os.kill(keeper, signal.SIGTERM)


@pytest.mark.parametrize(
    ("ending", "stays_s", "code"),
    [(end_by_itself, 0.1, 7), (kill_the_command, 600.0, 128 + 9), (ask_the_keeper_to_end, 600.0, 128 + 15)],
)
def test_nothing_is_left_however_the_command_ends(
    start: Callable[[float], subprocess.Popen[bytes]],
    tmp_path: Path,
    ending: Callable[[int, int], None],
    stays_s: float,
    code: int,
) -> None:
    keeper = start(stays_s)
    left, command = (int((tmp_path / name).read_text()) for name in ("left", "command"))
    ending(keeper.pid, command)

    _, errors = keeper.communicate(timeout=LIMIT_S)
    assert keeper.returncode == code
    assert not psutil.pid_exists(left)
    assert not psutil.pid_exists(command)
    assert f"ended with the command that started it: {left} ".encode() in errors
