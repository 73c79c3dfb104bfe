"""A subreaper alone, without the supervisor's scan behind it, leaves nobody of its command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bridge.executor.processes.subreaper
from tests.fakes.local_jobs import living

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no subreaper, and the scan does it")

SCRIPT = str(Path(bridge.executor.processes.subreaper.__file__))
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    daemon = os.fork()
    if daemon == 0:
        time.sleep(600)
    print(daemon, flush=True)
    os._exit(0)
os.wait()
time.sleep(float(sys.argv[1]))
"""


def plan(argv: list[str], folder: Path, **changes) -> str:
    """Return the line that tells a subreaper to start a program."""
    fields = {"argv": argv, "env": {}, "cwd": str(folder), "wrappers": 0, "pass_fds": [], "rlimits": {}}
    return json.dumps(fields | {"cgroups": [], "nice": 0, "stage": {}, "cover": []} | changes)


class Alone:
    """A subreaper that was told to start the daemon; its first line is the daemon's process id."""

    def __init__(self, token: str, folder: Path, seconds: float) -> None:
        control, self.orders = os.pipe()
        self.answers, status = os.pipe()
        self.out = subprocess.Popen(
            [sys.executable, "-I", "-S", SCRIPT, str(control), str(status)],
            pass_fds=(control, status), stdout=subprocess.PIPE,
        )  # fmt: skip
        for descriptor in (control, status):
            os.close(descriptor)
        self.say(plan([sys.executable, "-I", "-S", "-c", DAEMON, str(seconds), token], folder))
        with self.out.stdout as lines:
            self.daemon = int(lines.readline())

    def say(self, line: str) -> None:
        os.write(self.orders, line.encode() + b"\n")

    def end(self) -> dict[str, object]:
        """Return what the subreaper said last, once it has ended."""
        try:
            self.out.wait(timeout=240)
            output = os.read(self.answers, 1 << 16)
        finally:
            self.out.kill()
            for descriptor in (self.orders, self.answers):
                os.close(descriptor)
        return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("order", [None, "kill"])
def test_a_daemon_of_another_session_ends_with_the_command(token, tmp_path, order) -> None:
    keeper = Alone(token, tmp_path, 0.0 if order is None else 600.0)
    try:
        if order is not None:
            keeper.say(order)
        event = keeper.end()
        left = living(token)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper.daemon, signal.SIGKILL)
    assert left == []
    assert (event["event"], event["left"]) == ("clean", 0)
    assert event["killed"] >= 1


def test_a_program_that_used_its_processor_time_is_ended_by_the_signal_that_says_so(tmp_path) -> None:
    burn = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    control, orders = os.pipe()
    answers, status = os.pipe()
    try:
        os.write(orders, plan(burn, tmp_path, rlimits={"RLIMIT_CORE": 1, "RLIMIT_CPU": 1}).encode() + b"\n")
        argv = [sys.executable, "-I", "-S", SCRIPT, str(control), str(status)]
        subprocess.run(argv, pass_fds=(control, status), check=True, timeout=240)
        events = [json.loads(line) for line in os.read(answers, 1 << 16).splitlines()]
    finally:
        for descriptor in (control, orders, answers, status):
            os.close(descriptor)
    (ended,) = [event for event in events if event["event"] == "exited"]
    assert (ended["code"], ended["signal"]) == (None, signal.SIGXCPU)
