"""A runner lets each request in by the policy as it is then, and a run keeps the one that it was let in by."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from bridge.runner.policy.policy_file import REST_S, PolicyFile
from bridge.runner.service.recovery import OnBus
from bridge.runner.state.history import JournalStage
from bridge.runner.state.waiting import read_queue
from tests.support.runner_world import POLICY, probe
from tests.unit.bridge.runner.test_leases import HandClock
from tests.unit.bridge.runner.test_recovery import Meeting

NOTHING = '[presets]\nallow = ["nothing"]\n'


class Owner:
    """The owner of a world's runner, with a policy file and time to leave it alone."""

    def __init__(self, world, folder):
        self.path, self.clock = folder / "policy.toml", HandClock()
        folder.mkdir(mode=0o700)
        self.path.write_text(POLICY)
        self.path.chmod(0o600)
        file, before = PolicyFile(self.path, self.clock), world.process
        rules = replace(before.rules, policy=file.started)
        world.process = replace(before, rules=rules, policy_file=file)

    def write(self, text, runner):
        """Change the policy, let the runner see that it did, and leave it alone from then on."""
        self.path.write_text(text)
        runner.step()
        self.clock.sleep(REST_S)


@pytest.fixture
def served(world, tmp_path):
    w = world()
    return w, Owner(w, tmp_path / "config")


def test_what_waits_is_judged_by_the_policy_in_force_when_its_turn_comes(served):
    w, owner = served
    started, go_on = threading.Event(), threading.Event()

    def held(spec, directory):
        started.set()
        assert go_on.wait(60)
        return (yield from probe(spec, directory))

    w.program = held
    first = w.ask()
    runner = w.runner()
    runner.step()
    assert started.wait(60)
    second = w.ask()
    owner.write(POLICY + NOTHING, runner)
    runner.step()
    go_on.set()
    runner.join()
    w.serve_once(runner)
    assert [spec.id for spec in w.executor.executed] == [first.id]
    assert (w.record(first.id).reason, w.record(second.id).reason) == ("passed", "policy_refused")
    now = PolicyFile(owner.path, owner.clock).started
    digests = [w.record(run.id).policy_digest for run in (first, second)]
    assert digests == [policy.digest(embedded=False) for policy in (w.process.rules.policy, now)]
    assert digests[0] != digests[1]


def test_nothing_is_taken_under_a_file_that_cannot_be_used_and_the_owner_is_told_why(served):
    w, owner = served
    ref, runner = w.ask(), w.runner()
    owner.path.chmod(0o644)
    w.serve_once(runner)
    view = read_queue(w.process.folder.queue)
    assert "others may read or change it: mode 0644" in view.not_taking
    assert [request.why for request in view.requests] == [view.not_taking]
    (beacon,) = (beacon for _, beacon in w.requester.read_beacons())
    assert (beacon.state, beacon.not_taking) == ("paused", "its policy.toml cannot be used")
    assert [line for line in w.log_lines if "0644" in line and "nothing is taken" in line] != []

    owner.path.chmod(0o600)
    runner.step()
    owner.clock.sleep(REST_S)
    w.serve_once(runner)
    assert w.claim(ref.id).state == "terminal"
    assert read_queue(w.process.folder.queue).not_taking == ""


def test_a_run_that_was_only_claimed_before_a_crash_is_not_begun_under_such_a_file(served):
    w, owner = served
    ref = Meeting(w, JournalStage.CLAIMED, OnBus.CLAIMED).ref
    runner = w.runner()
    owner.path.chmod(0o644)
    w.serve_once(runner)
    assert w.executor.executed == []
    owner.path.chmod(0o600)
    runner.step()
    owner.clock.sleep(REST_S)
    w.serve_once(runner)
    assert [spec.id for spec in w.executor.executed] == [ref.id]
