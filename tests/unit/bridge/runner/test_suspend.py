"""The machine sleeps for three hours in mid-run, on a clock that counts through sleep."""

from __future__ import annotations

import pytest

from bridge.executor.observe.machine_state import MachineState
from bridge.executor.observe.telemetry import MachineTimes, Sampler
from bridge.executor.processes.tree import Usage
from tests.steps.world import SteppedWorld

ASLEEP_S = 3 * 3600.0


@pytest.fixture
def stepped(tmp_path):
    world = SteppedWorld(tmp_path, run_s=60.0)
    yield world
    world.close()


def in_mid_run(world, runner):
    sent = world.ask()
    assert world.clock.run_until(lambda: len(runner.executor.executed) == 1, world.clock.steady_s() + 60.0)
    world.clock.run_for(5.0)
    return sent.id


def test_alone_on_its_bus_a_run_goes_on_where_it_was(stepped):
    runner = stepped.serve(stepped.runner())
    run_id = in_mid_run(stepped, runner)
    stepped.clock.advance(ASLEEP_S)
    assert stepped.clock.run_until(lambda: stepped.ended(run_id), stepped.clock.steady_s() + 600.0)
    ended = stepped.view(run_id).claim.claim
    # It was judged, so it came to its end; the scripted report is no whole one.
    assert (ended.reason, ended.runner) == ("gate_rejected", "mini")
    assert stepped.times_executed()[run_id] == 1


def test_what_another_runner_ended_meanwhile_stays_ended_and_runs_once(stepped):
    sleeper = stepped.serve(stepped.runner())
    run_id = in_mid_run(stepped, sleeper)
    stepped.clock.put_to_sleep(ASLEEP_S)
    awake = stepped.serve(stepped.runner("awake"))
    assert stepped.clock.run_until(lambda: stepped.ended(run_id), stepped.clock.steady_s() + ASLEEP_S / 2)
    awake.stopping.set()
    stepped.clock.run_for(ASLEEP_S)
    ended = stepped.view(run_id).claim.claim
    assert (ended.reason, ended.runner) == ("runner_lost", "awake")
    assert stepped.times_executed()[run_id] == 1
    assert any("another runner" in line or "new owner" in line for line in sleeper.log_lines)


def test_the_record_says_how_long_it_slept():
    looks = iter((MachineState({}, 20.0), MachineState({}, 20.0 + ASLEEP_S)))
    sampler = Sampler("unknown: none", lambda: MachineTimes(1.0, 2.0), lambda _: next(looks))
    sampler.usage(0.0, Usage(1, 0, 0.0))
    assert sampler.record().slept_s == ASLEEP_S  # of which the gate makes that no time of the run holds: G5-CLOCK
