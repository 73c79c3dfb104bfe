"""A run held apart from its engine's process hears of that one's end, and ends without what that one would do."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until

PROGRAM = """
import atexit, os, sys, time
from pathlib import Path
from bridge.executor.engines.apart import apart

place = Path(sys.argv[1])
first = os.getpid()
atexit.register(lambda: (place / f"atexit of {'the first' if os.getpid() == first else 'the run'}").touch())

def run(told):
    (place / "began").touch()
    while not told():
        time.sleep(0.01)
    (place / "told").touch()
    return 7

sys.exit(apart(run))
"""


def begun(place: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(place)], stderr=subprocess.PIPE)
    until((place / "began").exists, why="the run never began")
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_run_whose_code_is_the_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    process = begun(tmp_path)
    process.send_signal(number)
    assert process.communicate(timeout=60) == (None, b"")
    assert process.returncode == 7
    assert {path.name for path in tmp_path.iterdir()} == {"began", "told", "atexit of the first"}


def test_a_run_whose_engine_s_process_was_killed_ends_in_silence(tmp_path: Path) -> None:
    process = begun(tmp_path)
    process.kill()
    _, stderr = process.communicate(timeout=60)  # the run has the other end of stderr: it is over when this returns
    assert stderr == b""
    assert {path.name for path in tmp_path.iterdir()} == {"began", "told"}
