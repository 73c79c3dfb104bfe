"""A process tree that is to stand still: it does, whatever its processes are named, or it is seen that it did not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from bridge.executor.processes.suspend_server import DONE, FAILED, HOLD, RELEASE, Holder
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says who stands still")

# Its child does what a test wants, and says before that it runs.
PARENT = """
import os, sys, time
if os.fork() == 0:
    exec(sys.argv[1])
os.wait()
"""


@contextlib.contextmanager
def below_a_parent(program: str) -> Iterator[tuple[Holder, Callable[[bytes], bytes], psutil.Process]]:
    """Run a program; yield who holds it, what asks for that and returns the answer, and the program's process."""
    asks, asking = os.pipe()
    answers, answering = os.pipe()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", PARENT, program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"runs\n"
        (child,) = psutil.Process(parent.pid).children()

        def ask(word: bytes) -> bytes:
            os.write(asking, word)
            return os.read(answers, 1)

        try:
            with Holder(asks, answering, lambda: parent.pid, time.monotonic) as holder:
                try:
                    yield holder, ask, child
                finally:
                    os.close(asking)  # ends the thread that listens
        finally:
            child.kill()
            parent.kill()
            for descriptor in (asks, answers, answering):
                os.close(descriptor)


def test_a_process_whose_name_is_no_text_stands_still():
    named = 'import ctypes\nctypes.CDLL(None).prctl(15, b"\\xff\\xfe", 0, 0, 0)\n'
    with below_a_parent(named + 'print("runs", flush=True)\ntime.sleep(1000)') as (holder, ask, child):
        assert ask(HOLD) == DONE
        assert child.status() == psutil.STATUS_STOPPED
        time.sleep(0.05)
        assert ask(RELEASE) == DONE
    ((begin_s, end_s),) = holder.suspensions
    assert end_s - begin_s >= 0.05


# A timer of the kernel's sends SIGCONT every 50 ms, also to a process that is stopped.
WAKES_ITSELF = """
import ctypes, signal, struct
create, settime = {"x86_64": (222, 223), "aarch64": (107, 110)}[os.uname().machine]
libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
event = struct.pack("=Qii48x", 0, signal.SIGCONT, 0)
if libc.syscall(create, 1, event, ctypes.byref(timer)) or libc.syscall(
    settime, timer, 0, struct.pack("=4q", 0, 50_000_000, 0, 50_000_000), None
):
    sys.exit(os.strerror(ctypes.get_errno()))
print("runs", flush=True)
while True:
    sum(range(1000))
"""


def test_a_process_that_wakes_itself_has_not_stood_still():
    with below_a_parent(WAKES_ITSELF) as (holder, ask, child):
        assert ask(HOLD) == DONE
        before_s = child.cpu_times().user
        until(lambda: child.cpu_times().user > before_s + 0.2, why="it did not wake itself")
        assert ask(RELEASE) == FAILED
    assert holder.suspensions == []


def test_who_ran_and_was_stopped_again_has_not_stood_still_before():
    program = 'print("runs", flush=True)\nwhile True:\n    sum(range(1000))'
    with below_a_parent(program) as (holder, ask, child):
        assert ask(HOLD) == DONE
        before_s = child.cpu_times().user
        child.resume()
        until(lambda: child.cpu_times().user > before_s + 0.2, why="it did not go on")
        child.suspend()
        assert ask(HOLD) == DONE
        assert ask(RELEASE) == DONE
    assert len(holder.suspensions) == 1
