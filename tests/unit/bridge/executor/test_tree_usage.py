"""How much memory a tree of processes has, measured on real ones."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys

import psutil
import pytest

from bridge.executor.processes import tree
from bridge.executor.processes.subreaper import PR_SET_DUMPABLE
from bridge.limits import MIB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages that processes share are told apart on Linux")
SCATTER = 32 * MIB
"""What the tree of a process of tests may lose between two looks: a child of another test, pages of a file."""
_FORK = multiprocessing.get_context("fork")


def _hold(shared: bytes | None, size: int, closed: bool, ready, end) -> None:
    if closed:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    own = b"x" * size
    ready.send(len(own) + len(shared or b""))
    end.recv()


@pytest.fixture
def hold_memory():
    """Start processes that hold memory of their own, or what they got by the fork."""
    started = []

    def hold(size: int, shared: bytes | None = None, *, closed: bool = False) -> None:
        ready, end = _FORK.Pipe(duplex=False), _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_hold, args=(shared, size, closed, ready[1], end[0]))
        process.start()
        started.append((process, end[1]))
        assert ready[0].recv() >= size

    yield hold
    for process, end in started:
        end.send(None)
        process.join()


def _count_calls(monkeypatch) -> list[int]:
    """Count how often pages are counted once, which walks every page of the tree."""
    calls, real = [], tree._shared_once

    def counted(members):
        calls.append(len(list(members)))
        return real(members)

    monkeypatch.setattr(tree, "_shared_once", counted)
    return calls


def test_one_process_that_breaks_the_bound_alone_is_not_looked_at_page_by_page(hold_memory, monkeypatch):
    calls = _count_calls(monkeypatch)
    hold_memory(192 * MIB)
    used = tree.ProcessTree(os.getpid(), "nobody").usage(memory_bound=128 * MIB, processes_bound=512)
    assert used.rss_bytes > 192 * MIB
    assert calls == []


def test_pages_that_several_processes_share_count_once(hold_memory, monkeypatch):
    calls, shared = _count_calls(monkeypatch), b"x" * (96 * MIB)
    for _ in range(3):
        hold_memory(0, shared)
    whole = tree.ProcessTree(os.getpid(), "nobody")  # this process may have other children
    used = whole.usage(memory_bound=sys.maxsize, processes_bound=512)
    assert used.rss_bytes > 3 * 96 * MIB
    assert calls == []
    once = whole.usage(memory_bound=used.rss_bytes - SCATTER, processes_bound=512)
    assert len(calls) == 1
    assert once.rss_bytes < used.rss_bytes - 96 * MIB


def test_processes_that_let_nobody_look_at_their_pages_count_whole(hold_memory, monkeypatch):
    calls = _count_calls(monkeypatch)
    for _ in range(2):
        hold_memory(96 * MIB, closed=True)
    whole = tree.ProcessTree(os.getpid(), "nobody")
    used = whole.usage(memory_bound=sys.maxsize, processes_bound=512)
    looked_at = whole.usage(memory_bound=used.rss_bytes - SCATTER, processes_bound=512)
    assert len(calls) == 1
    assert looked_at.rss_bytes > 2 * 96 * MIB


class Untold(psutil.Process):
    """This process, told of as a Mac tells of another user's, such as /bin/ps, which is set-uid root: not at all."""

    def memory_full_info(self):
        raise psutil.AccessDenied(self.pid)

    def memory_info(self):
        raise psutil.AccessDenied(self.pid)


def test_a_process_of_which_the_system_tells_nothing_keeps_nobody_from_counting_the_others(hold_memory):
    hold_memory(96 * MIB)
    others = psutil.Process().children()
    assert tree._shared_once([Untold(), *others, Untold()]) > 96 * MIB
    assert tree._shared_once([Untold()]) == 0
