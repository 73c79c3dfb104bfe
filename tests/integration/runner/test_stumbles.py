"""A remote that fails between a run's claim and its start: the claim is kept, and the run begins once, later."""

from __future__ import annotations

import time

import pytest

from bridge.bus.refbus import RefBus
from bridge.bus.store.git import GitStore
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from bridge.runner.service.serve import once
from bridge.runner.state.folder import StateFolder
from tests.fakes.git_host import NO_COMMIT, GitHost, Reply, in_turn, is_upload
from tests.support.crash import make_runner
from tests.support.runner_site import CLOCK

AWAY = Reply(503, b"unavailable\n")
SILENCE_S = 4.0  # of a call that is given up; far more than a call takes that is answered


def moves_claim(call):
    return is_upload(call) and any("/claim/" in name and old != NO_COMMIT for old, _, name in call.updates)


@pytest.fixture
def host(site):
    s = site(lease_s=5.0)  # long enough to renew on a busy machine; a silent call is longer than its owner waits
    s.create_bus()
    git_host = GitHost(s.folder)
    yield s, git_host
    git_host.close()


def runner_at(s, git_host):
    """Return a runner that gives a silent call up soon."""
    state = StateFolder(s.folder / "state-mini")
    state.create()
    url = git_host.url(s.folder / "bus.git")
    store = GitStore(Route(url, url, (), is_local=False), state.bus, wall_s=SILENCE_S)
    bus = RefBus(store, clock=CLOCK, pacer=Pacer(s.folder / "pushes.json", 1000.0, CLOCK, store.is_near))
    return make_runner(state, s.policy(), bus)


@pytest.mark.ci
def test_a_run_whose_start_the_remote_does_not_take_begins_later_and_ends_by_itself(host):
    s, git_host = host
    ref = s.ask()
    git_host.gates = [in_turn([AWAY] * 12, moves_claim)]
    ran = s.run("once", "--bus", git_host.url(s.folder / "bus.git"))
    assert "not begun yet" in ran.stderr
    assert s.ended(ref).reason == "gate_rejected"  # an empty report: it ran to its end
    assert s.starts() == [ref.id]
    assert ran.code == 1


@pytest.mark.ci
def test_a_remote_that_is_silent_there_is_waited_for_as_well(host, capsys):
    s, git_host = host
    ref = s.ask()

    def hang(call):
        if not moves_claim(call) or next(hanging, None) is None:
            return None
        time.sleep(2 * SILENCE_S)
        return AWAY

    hanging = iter(range(2))
    git_host.gates = [hang]
    runner = runner_at(s, git_host)
    try:
        assert once(runner) == 1
    finally:
        runner.state.close()
    assert "no answer within the time limit" in capsys.readouterr().err
    assert s.ended(ref).reason == "gate_rejected"
    assert s.starts() == [ref.id]


@pytest.mark.ci
def test_who_took_one_request_and_cannot_begin_it_says_so_and_ends_in_the_code_of_it(host, capsys):
    s, git_host = host
    ref = s.ask()
    claimed = []

    def leave(call):
        if not claimed:
            claimed.extend(update for update in call.updates if "/claim/" in update[2])
            return None
        return AWAY

    git_host.gates = [leave]
    runner = runner_at(s, git_host)
    try:
        assert once(runner, patience_s=5.0) == 3
    finally:
        runner.state.close()
    assert f"{ref.id} has not ended: the remote did not let it" in capsys.readouterr().err
    assert s.starts() == []
    assert s.claim(ref).state == "claimed"
    git_host.gates = []
    assert s.run("once", "--bus", git_host.url(s.folder / "bus.git")).code == 1
    assert s.starts() == [ref.id]
