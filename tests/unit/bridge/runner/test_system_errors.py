"""What the operating system refuses for a while, as on a full disk, ends neither polling nor what goes on beside."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace

import pytest

from bridge.limits import LEASE_MAX_S
from bridge.runner.connection.link import link_to
from bridge.runner.queue.cancels import Cancels
from bridge.runner.service.serve import serve
from bridge.system.clock import SystemClock
from bridge.system.tasks import Threads
from tests.fakes.memory_bus import MemoryBus
from tests.support.waiting import until


class QuickClock(SystemClock):
    """Steady time that runs many times as fast.

    Attributes:
        times: how many; where a run has a lease, no more than leaves it seconds.
    """

    times = 60.0

    def steady_s(self) -> float:
        return super().steady_s() * self.times

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds / self.times)


class QuickThreads(Threads):
    """Threads whose waits are as fast as the clock."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s / 60.0)


@pytest.fixture
def clock():
    return QuickClock()


def refusing(number, operation, times):
    """Return a fault that fails the first so many calls of an operation as the operating system does."""
    left = [times]

    def decide(name):
        if name == operation and left[0] > 0:
            left[0] -= 1
            raise OSError(number, os.strerror(number))

    return decide


@pytest.mark.parametrize(
    ("number", "operation"), [(errno.ENOSPC, "list"), (errno.EMFILE, "fetch"), (errno.EMFILE, "push")]
)
def test_a_runner_serves_on_after_what_the_system_refuses(world, clock, number, operation):
    clock.times = 10.0
    w = world(lease_s=LEASE_MAX_S)
    w.process = replace(w.process, announce=lambda _: w.process.stopping.set())
    runner = w.runner()
    ref = w.ask()
    w.faults.decide = refusing(number, operation, 3)
    serve(runner)
    # It came to its end; the scripted report is no whole one.
    assert w.claim(ref.id).reason == "gate_rejected", w.log_lines
    assert sum("trying on:" in line for line in w.log_lines) == 1


def test_the_last_sign_of_life_may_find_a_full_disk(world):
    w = world()
    runner = w.runner()
    runner.step()
    w.faults.decide = refusing(errno.ENOSPC, "push", 1)
    w.process.stopping.set()
    serve(runner)
    assert any("no sign of life could be sent" in line for line in w.log_lines)


def test_cancels_are_seen_again_after_what_the_system_refuses(world, clock):
    w = world()
    ref = w.ask()
    bus = MemoryBus(w.remote, clock=clock, faults=w.faults)
    cancels = Cancels(link_to(bus, clock), lambda: (ref.id,), clock, QuickThreads())
    w.requester.ask_cancel(ref.id, b"{}")
    w.faults.decide = refusing(errno.EMFILE, "list", 2)
    cancels.watch()
    until(lambda: ref.id in cancels)


def test_a_run_that_finds_no_bus_of_its_own_gives_its_slot_back(world, clock, monkeypatch):
    clock.times = 10.0
    w = world(lease_s=LEASE_MAX_S)
    ref = w.ask()
    runner = w.runner()
    store = runner._link.bus.store
    refused = iter([OSError(errno.EMFILE, os.strerror(errno.EMFILE))])

    def beside():
        if threading.current_thread().name == f"run-{ref.id[-8:]}":
            for error in refused:
                raise error
        return store

    monkeypatch.setattr(store, "beside", beside)  # git's makes files
    runner.step()
    until(lambda: not runner.busy, why="its slot is not free")
    assert any("not ended yet, tried again" in line and "Too many open files" in line for line in w.log_lines)
    until(lambda: runner.step() == 0 and not runner.busy and w.process.journal.of(ref.id) is None)
    assert w.claim(ref.id).reason == "gate_rejected", w.log_lines
