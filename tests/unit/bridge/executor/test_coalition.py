"""Which processes on macOS count as left behind by a run; the kernel's answers are given, never asked of a Mac."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import SimpleNamespace

import psutil
import pytest

from bridge.executor.processes.coalition import coalition_of, is_sandboxed, strays

OURS = 7


@dataclass
class Process:
    """A process as psutil shows it; ``gone`` ones are gone when they are asked."""

    pid: int = 400
    parent: int = 1
    started: float = 200.0
    uid: int = os.getuid()
    gone: bool = False

    def create_time(self):
        if self.gone:
            raise psutil.NoSuchProcess(self.pid)
        return self.started

    def ppid(self):
        return self.parent

    def uids(self):
        return SimpleNamespace(real=self.uid)


def left(process, coalition=OURS, *, confined=True):
    kernel = {os.getpid(): OURS, process.pid: coalition}
    return strays(100.0, lambda: [process], kernel.get, lambda _pid: confined)


def test_what_forked_twice_with_an_emptied_environment_is_found_by_what_stays_with_it():
    process = Process()

    assert left(process) == [process]


@pytest.mark.parametrize(
    ("process", "answers"),
    [
        (Process(parent=300), {}),
        (Process(started=99.0), {}),
        (Process(uid=os.getuid() + 1), {}),
        (Process(gone=True), {}),
        (Process(), {"coalition": 8}),
        (Process(), {"coalition": None}),
        (Process(), {"confined": False}),
    ],
)
def test_a_process_that_lacks_one_of_them_is_somebody_elses(process, answers):
    assert left(process, **answers) == []


def test_where_the_platform_has_no_coalitions_nobody_is_found():
    assert strays(0.0, lambda: [Process()], lambda _pid: None, lambda _pid: True) == []
    assert (coalition_of(os.getpid()), is_sandboxed(os.getpid())) == (None, False) or os.uname().sysname == "Darwin"
