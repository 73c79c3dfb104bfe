"""A runner that dies after its program's end, or whose lease runs out then, has something to say all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.errors import JournalError
from bridge.runner.state.journal import Journal
from bridge.system.clock import SystemClock


class FastClock(SystemClock):
    """Steady time that a test can push forward."""

    ahead_s = 0.0

    def steady_s(self) -> float:
        return super().steady_s() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.01))


class DyingJournal(Journal):
    """Cannot write one event, so that what it announces must not happen: a full disk, or a killed process."""

    dies_before = "judged"

    def append(self, event, run_id, oid=None, **detail):
        if event == self.dies_before:
            raise JournalError("the disk is full")
        super().append(event, run_id, oid, **detail)


@pytest.fixture
def clock():
    return FastClock()


@pytest.fixture
def died(world):
    """Return a world whose runner has died with its run executed and its result not built."""
    w = world()
    ref = w.ask()
    dying = w.process.with_journal(DyingJournal)
    w.serve_once(w.runner(dying))
    dying.state.close()
    assert w.claim(ref.id).state == "started"
    assert len(w.executor.executed) == 1
    return w, ref


def test_the_next_runner_of_the_name_publishes_the_real_result(died):
    w, ref = died
    fresh = w.new_process()
    w.process = replace(fresh, machine=replace(fresh.machine, version="2"))  # upgraded meanwhile
    w.serve_once()

    assert len(w.executor.executed) == 1
    record = w.record(ref.id)
    assert (record.reason, record.program_exit, record.attempt.number) == ("passed", 0, 1)
    assert record.runner_version == "0"
    assert w.result(ref.id).files["log.txt"] == b"probing\n"
    assert "probe.json" in {output.path for output in record.outputs}
    assert list(w.process.folder.runs.iterdir()) == []


def test_another_runner_finalises_it_after_the_lease_and_the_first_says_that_it_comes_too_late(died, clock):
    w, ref = died
    w.policy_text = w.policy_text.replace('"mini"', '"heir"')
    heir = w.serve_once(w.runner(w.new_process("heir")))
    for clock.ahead_s in (6.0, 12.0, 16.0):
        w.serve_once(heir)
    assert (w.claim(ref.id).reason, w.claim(ref.id).runner) == ("runner_lost", "heir")

    w.policy_text = w.policy_text.replace('"heir"', '"mini"')
    w.process = w.new_process()
    w.serve_once()
    assert any("too late" in line for line in w.log_lines)
    assert any("stays in" in line for line in w.log_lines)
    assert [path.name for path in w.process.folder.late.iterdir()] == [ref.id]
    assert w.claim(ref.id).runner == "heir"
    w.process.state.close()
    w.runner(w.new_process())
    assert list(w.process.folder.runs.iterdir()) == []


def test_a_lease_that_runs_out_after_the_program_takes_nothing_from_its_result(world, clock):
    def slow(spec, directory):
        yield b"done\n"
        clock.ahead_s = 14.0  # past the owner's own bound, before anybody else may look
        return 0

    w = world(program=slow)
    ref = w.ask()
    w.serve_once()

    assert w.record(ref.id).reason == "passed"
    assert w.claim(ref.id).runner == "mini"
