"""Several runners, one bus: one winner; an expired `claimed` is taken over, an expired `started` is only finalised."""

from __future__ import annotations

import threading

import pytest

from bridge.records.claim import Claim
from bridge.runner.connection.link import link_to
from bridge.runner.run.claim_renewal import following
from bridge.system.clock import SystemClock, rfc3339
from tests.fakes.asking import push_bytes
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import Faults, MemoryBus, MemoryRemote, bus_record


class FastClock(SystemClock):
    """Steady time that a test can push forward."""

    ahead_s = 0.0

    def steady_s(self) -> float:
        return super().steady_s() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.01))


@pytest.fixture
def clock():
    return FastClock()


def other_claims(w, ref, *, started=False, lease_s=15.0):
    """Let a runner on another host claim a request and vanish."""
    bus = MemoryBus(w.remote, clock=w.clock)
    claim = Claim(
        id=ref.id, request_oid=ref.oid, state="claimed", runner="gone", nonce="c" * 32, sequence=0, lease_s=lease_s,
        phase="preparing", time=rfc3339(w.clock.now()),
    )  # fmt: skip
    held_claim = bus.claim(claim)
    return (
        bus.advance(held_claim, following(held_claim, w.clock, state="started", phase="running"))
        if started
        else held_claim
    )


def test_two_runners_run_a_request_once(world):
    w = world()
    refs = [w.ask() for _ in range(4)]
    hosts = [w.new_process("a"), w.new_process("b")]
    runners = [w.runner(host) for host in hosts]

    def work(runner):
        for _ in range(8):
            runner.step()
            runner.join()

    threads = [threading.Thread(target=work, args=(runner,)) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(spec.id for spec in w.executor.executed) == sorted(ref.id for ref in refs)
    for ref in refs:
        w.result(ref.id)


def test_a_run_that_another_began_between_listing_and_claim_is_given_back_where_its_claim_was_deleted(world):
    w = world()
    other = Actor(MemoryBus(w.remote, clock=w.clock), w.clock, "other")
    ref = w.ask()

    def begin(operation):
        if operation != "push":
            return
        w.faults.decide = Faults().decide
        other.start(ref, other.claim(ref))
        del w.remote.refs[f"refs/kakeya/claim/{ref.id}"]

    w.faults.decide = begin
    w.serve_once()
    assert w.executor.executed == []
    assert w.claim(ref.id).runner == "other"
    assert any("runner other began run" in line for line in w.log_lines)


def test_of_two_runners_whose_claims_were_both_deleted_one_starts(world):
    w = world()
    other = Actor(MemoryBus(w.remote, clock=w.clock), w.clock, "other")
    ref = w.ask()
    name = f"refs/kakeya/claim/{ref.id}"

    def begin(operation):
        if operation != "push" or name not in w.remote.refs:
            return
        w.faults.decide = Faults().decide  # our claim is there and this is the next push, which would start the run
        del w.remote.refs[name]
        other.start(ref, other.claim(ref))
        del w.remote.refs[name]

    w.faults.decide = begin
    runner = w.serve_once()
    w.serve_once(runner)  # recovery does not go on with it either
    assert w.executor.executed == []
    assert w.claim(ref.id).runner == "other"


def test_a_live_claim_of_another_runner_is_left_alone(world):
    w = world()
    w.clock = clock = FakeClock(w.clock.now())
    ref = w.ask()
    other_claims(w, ref)
    runner = w.serve_once(w.runner(w.new_process("late")))
    clock.advance(10.0)
    w.serve_once(runner)
    assert w.claim(ref.id).runner == "gone"
    assert w.executor.executed == []


def test_an_expired_claim_is_taken_over_and_run(world, clock):
    w = world()
    ref = w.ask()
    other_claims(w, ref)
    runner = w.serve_once()
    for clock.ahead_s in (6.0, 12.0, 16.0):
        w.serve_once(runner)
    claim = w.claim(ref.id)
    assert (claim.runner, claim.state) == ("mini", "terminal")
    assert len(w.executor.executed) == 1
    w.result(ref.id)


def test_a_claim_for_longer_than_the_bus_allows_is_taken_over_after_what_it_allows(world):
    w = world()
    w.clock = clock = FakeClock(w.clock.now())
    ref = w.ask()
    other_claims(w, ref, lease_s=1e300)
    runner = w.serve_once(w.runner(w.new_process("late")))
    for passed_s in (6.0, 6.0, 2.0):
        clock.advance(passed_s)
        w.serve_once(runner)
    assert w.claim(ref.id).runner == "gone"
    clock.advance(2.0)
    w.serve_once(runner)
    assert (w.claim(ref.id).runner, len(w.executor.executed)) == ("mini", 1)


def test_a_claim_that_moved_on_is_read_again_after_the_longest_lease_of_the_bus(world, clock):
    w = world()
    ref = w.ask()
    held_claim = other_claims(w, ref, lease_s=1e300)
    runner = w.serve_once()
    MemoryBus(w.remote, clock=w.clock).advance(
        held_claim, following(held_claim, w.clock, state="started", phase="running")
    )
    for clock.ahead_s in (6.0, 16.0, 22.0, 28.0, 34.0):
        w.serve_once(runner)
    assert w.claim(ref.id).reason == "runner_lost"


def test_an_expired_start_is_finalised_as_runner_lost_and_never_run(world, clock):
    w = world()
    ref = w.ask()
    other_claims(w, ref, started=True)
    runner = w.serve_once()
    for clock.ahead_s in (6.0, 12.0, 16.0):
        w.serve_once(runner)
    claim = w.claim(ref.id)
    assert (claim.reason, claim.exit_code, claim.runner) == ("runner_lost", 3, "mini")
    assert "gone" in claim.message
    assert w.executor.executed == []
    assert w.record(ref.id).reason == "runner_lost"


def test_an_owner_that_could_not_renew_kills_its_run_and_publishes_nothing_over_its_successor(world, clock):
    w = world()

    def overtaken(spec, directory):
        yield b"first\n"
        # The machine sleeps past its lease; meanwhile somebody finalises the run.
        bus = MemoryBus(w.remote, clock=w.clock)
        view = bus.read_claim(spec.id)
        current = link_to(bus, w.clock).bus.read_claim(spec.id)
        assert current is not None
        terminal = following(
            view_held(view), w.clock, state="terminal", phase=None, runner="heir", reason="runner_lost", exit_code=3
        )
        bus.publish(view_held(view), terminal)
        clock.ahead_s = 11.0
        while True:
            yield b"."

    w.program = overtaken
    ref = w.ask()
    runner = w.serve_once()
    assert w.claim(ref.id).runner == "heir"
    assert runner.outcomes == ()
    assert any("new owner" in line for line in w.log_lines)


def view_held(view):
    from bridge.bus.views import HeldClaim

    return HeldClaim(view.oid, view.claim, view.chain)


def test_a_request_branch_pushed_over_after_the_claim_keeps_its_result_elsewhere(world):
    w = world()

    def moved(spec, directory):
        w.remote.refs[ref.ref] = w.remote.refs["refs/kakeya/bus"]
        yield b"x"
        return 1

    w.program = moved
    ref = w.ask()
    runner = w.serve_once()
    assert runner.outcomes[0].delivery == "branch_moved"
    assert w.claim(ref.id).request_oid == ref.oid
    w.result(ref.id)


def test_several_slots_run_at_the_same_time(world):
    meeting = threading.Barrier(2, timeout=240)

    def meet(spec, directory):
        meeting.wait()
        yield b"met\n"
        return 1

    w = world(
        program=meet,
        policy_text='schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nslots = 2\n',
    )
    refs = [w.ask(), w.ask(), w.ask()]
    runner = w.runner()
    assert runner.step() == 1
    runner.join()
    ended = [ref for ref in refs if w.requester.read_claim(ref.id) is not None]
    assert len(ended) == 2


def test_a_bus_without_a_record_is_no_bus(clock):
    from bridge.errors import BusMissingError

    with pytest.raises(BusMissingError):
        link_to(MemoryBus(MemoryRemote(), clock=clock), clock)
    assert bus_record(clock).lease_s == 15.0


def test_an_owner_cut_off_from_the_remote_stops_its_run_before_anybody_may_take_it(world, clock):
    w = world()
    cut = threading.Event()

    def cut_off(spec, directory):
        yield b"first\n"
        cut.set()
        for clock.ahead_s in (4.0, 8.0):  # less than half of what the lease allows at once, which would be a sleep
            yield b"still ours\n"
        clock.ahead_s = 10.5  # a third of the lease is left to everybody else
        while True:
            yield b"."

    w.program = cut_off
    w.faults.decide = lambda operation: "lost" if cut.is_set() else None
    ref = w.ask()
    runner = w.serve_once()
    assert runner.outcomes[0].ending.reason == "interrupted"
    assert "lease" in runner.outcomes[0].ending.message
    assert runner.outcomes[0].delivery == "spooled"
    cut.clear()
    w.serve_once(runner)
    assert (w.claim(ref.id).reason, w.claim(ref.id).exit_code) == ("interrupted", 3)
    assert len(w.executor.executed) == 1
    w.result(ref.id)


@pytest.mark.parametrize("other", ["zzz with no request", "zzz with the same commit", "aaa with the same commit"])
def test_an_expired_claim_is_taken_over_with_its_own_branch_beside_another_of_that_id(world, clock, other):
    w = world()
    ref = w.ask()
    other_claims(w, ref)
    forged = w.request(id=ref.id, ref=f"refs/heads/mac-bridge/{other[:3]}-{ref.id}")
    push_bytes(w.remote, forged, b"no request")
    if other.endswith("commit"):
        w.remote.refs[forged.ref] = ref.oid
    runner = w.runner()
    for _ in range(5):
        w.serve_once(runner)
        clock.ahead_s += 20.0
    assert [spec.id for spec in w.executor.executed] == [ref.id]
    assert w.requester.view(ref.id).delivery == "copied"


@pytest.mark.parametrize("where", ["running", "spooled"])
def test_a_request_that_a_fresh_beacon_of_another_shows_is_left_to_it_until_the_beacon_is_old(world, where):
    w = world()
    w.clock = clock = FakeClock(w.clock.now())
    ref = w.ask()
    other = Actor(MemoryBus(w.remote, clock=clock), clock, "other")
    other.bus.beacon(other.beacon(**{where: (ref.id,)}))
    process = w.new_process("late")
    runner = w.serve_once(w.runner(process))
    assert (w.requester.read_claim(ref.id), w.executor.executed) == (None, [])
    assert process.state.journal.of(ref.id) is None  # no claim was made and withdrawn
    assert any("runner other says that it has it" in line for line in w.log_lines)
    clock.advance(3 * 3600.0 + 600.0)
    w.serve_once(runner)
    assert w.claim(ref.id).runner == "mini"


def test_its_own_beacon_keeps_no_runner_from_a_request(world):
    w = world()
    ref = w.ask()
    before = Actor(MemoryBus(w.remote, clock=w.clock), w.clock, "mini")
    before.bus.beacon(before.beacon(running=(ref.id,)))
    w.serve_once()
    assert [spec.id for spec in w.executor.executed] == [ref.id]
