"""A run that this runner cannot end, because its gate or its disk is broken, is not tried again and again at once."""

from __future__ import annotations

import re

import pytest

from bridge.runner.state.journal import Journal
from bridge.system.clock import SystemClock


class HeldClock(SystemClock):
    """Steady time that only a test moves."""

    at_s = 1000.0

    def steady_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.01))


class BrokenJournal(Journal):
    """Fails before it writes that a run was judged, as a gate with a bug does, until it is mended."""

    tries, mended = 0, False

    def append(self, event, run_id, oid=None, **detail):
        if event == "judged":
            self.tries += 1
            if not self.mended:
                raise ZeroDivisionError("a rule divides by nothing")
        super().append(event, run_id, oid, **detail)


@pytest.fixture
def clock():
    return HeldClock()


def test_what_cannot_be_judged_rests_longer_each_time_says_so_and_is_judged_in_the_end(world, clock):
    w = world()
    ref = w.ask()
    broken = w.process.with_journal(BrokenJournal)
    journal, runner = broken.journal, w.runner(broken)
    tries = []
    for moved_s in (0.0, 0.9, 0.2, 1.8, 0.4, 3.8, 0.4):
        clock.at_s += moved_s
        w.serve_once(runner)
        tries.append(journal.tries)
    assert tries == [1, 1, 2, 2, 3, 3, 4]
    lines = [line for line in w.log_lines if "tried again in" in line]
    assert [re.search(r"again in (\d+) s: a bug: ZeroDivisionError: a rule", line)[1] for line in lines] == list("1248")
    assert len(w.executor.executed) == 1

    journal.mended = True
    clock.at_s += 8.1
    w.serve_once(runner)
    assert w.record(ref.id).reason == "passed"
