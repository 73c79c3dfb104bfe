"""Several runs at once share one host: its pushes, its attempt counter, its places."""

from __future__ import annotations

import threading

import pytest

from bridge.errors import InfrastructureError
from bridge.executor.observe.accelerators.cards import Card
from bridge.limits import LEASE_MAX_S, PUSHES_PER_MINUTE_HOSTED
from bridge.runner.connection.link import link_to
from bridge.runner.run.claim_renewal import ClaimRenewal
from bridge.runner.run.slots import RunSlots
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.counted_pushes import counted_bus, log_every_second, most_in_a_minute
from tests.fakes.memory_bus import MemoryRemote, bus_record

PUSHING = 'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 0\n'


@pytest.fixture
def clock():
    return FakeClock()


def test_all_slots_of_all_runners_of_a_host_stay_within_one_budget_and_no_lease_is_lost(clock, tmp_path):
    """Two runners with two slots each, all four runs writing log lines without end."""
    remote = MemoryRemote()
    stores, buses = zip(*(counted_bus(remote, clock, tmp_path) for _ in range(2)), strict=True)
    buses[0].create(bus_record(clock, lease_s=LEASE_MAX_S))
    renewals = []
    for name, bus in zip(("one", "two"), buses, strict=True):
        link, actor = link_to(bus, clock), Actor(bus, clock, name)
        for _ in range(2):
            sent = actor.submit()
            claim = bus.claim(actor.record(sent.ref, "claimed", 0, lease_s=LEASE_MAX_S))
            renewals.append(ClaimRenewal(link, claim, clock=clock, beacon=lambda: None, asked_s=clock.steady_s()))
    clock.advance(120.0)
    before = sum(len(store.pushes) for store in stores)
    turns = log_every_second(renewals, clock, tmp_path, 450)
    made = sum(len(store.pushes) for store in stores) - before

    assert [renewal.lost() for renewal in renewals] == [None] * 4
    assert all(renewal.held.claim.sequence > 0 for renewal in renewals)
    assert made == len(turns) > 4 * len(renewals)
    assert most_in_a_minute(turns) <= PUSHES_PER_MINUTE_HOSTED


def test_runs_of_the_same_thing_at_the_same_time_are_different_attempts(world):
    w = world(policy_text=f"{PUSHING}slots = 4\n")
    together = threading.Barrier(4, timeout=240)

    def program(spec, directory):
        together.wait()
        yield b"all four run\n"
        return 0

    w.program = program
    refs = [w.ask() for _ in range(4)]
    w.serve_once()
    attempts = [w.record(ref.id).attempt for ref in refs]

    assert sorted(attempt.number for attempt in attempts) == [1, 2, 3, 4]
    assert len({attempt.key for attempt in attempts}) == 1
    assert all(len(attempt.earlier) == attempt.number - 1 for attempt in attempts)


def test_a_request_beyond_the_slots_waits_and_is_told_why(world):
    w = world(policy_text=f"{PUSHING}slots = 2\n")
    free, running = threading.Event(), threading.Semaphore(0)

    def program(spec, directory):
        running.release()
        free.wait(240)
        yield b""
        return 0

    w.program = program
    refs = [w.ask() for _ in range(3)]
    runner = w.runner()
    assert runner.step() == 1
    assert [running.acquire(timeout=240) for _ in range(2)] == [True, True]
    assert any("all slots are busy" in line for line in w.log_lines)
    assert runner.step() == 1
    free.set()
    runner.join()
    assert runner.step() == 0
    runner.join()

    assert {w.claim(ref.id).state for ref in refs} == {"terminal"}
    assert [spec.id for spec in w.executor.executed[:2]] != [refs[2].id]
    assert len(w.executor.executed) == 3


CARDS = (Card("GPU-aaaa", "/dev/nvidia0"), Card("GPU-bbbb", "/dev/nvidia1"))
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1")


def visible(spec):
    return {variable.name: variable.value for variable in spec.environment}.get("CUDA_VISIBLE_DEVICES")


def test_two_runs_at_a_time_never_share_a_card_and_see_no_node_of_the_others(world):
    devices = ", ".join(f'"{node}"' for node in NODES)
    owns = f'{PUSHING}slots = 3\n[sandbox]\ndevices = [{devices}]\n[env]\nCUDA_VISIBLE_DEVICES = "0,1"\n'
    w = world(policy_text=owns, cards=CARDS)
    together = threading.Barrier(2, timeout=240)

    def program(spec, directory):
        together.wait()
        yield b""
        return 0

    w.program = program
    for _ in range(4):
        w.ask()
    runner = w.runner()
    assert runner.step() == 2  # three slots, two cards
    runner.join()
    runner.step()
    runner.join()

    ran = w.executor.executed
    for pair in (ran[:2], ran[2:]):
        assert sorted(map(visible, pair)) == ["GPU-aaaa", "GPU-bbbb"]
    for spec in ran:
        own = "/dev/nvidia0" if visible(spec) == "GPU-aaaa" else "/dev/nvidia1"
        assert spec.sandbox.devices == ("/dev/nvidiactl", "/dev/nvidia-uvm", own)
        assert f"card {visible(spec)} (this slot's own)" in spec.decisions


def test_a_run_that_outlived_its_runner_keeps_its_card(world, tmp_path):
    w = world(policy_text=f"{PUSHING}slots = 2\n", cards=CARDS)
    going, goes_on = threading.Event(), threading.Event()

    def program(spec, directory):
        going.set()
        goes_on.wait(240)
        yield b""
        return 0

    w.program = program
    first = w.ask()
    runner = w.runner()
    runner.step()
    assert going.wait(240)
    facts = w.process.rules.facts
    after_restart = RunSlots(2, CARDS, w.process.folder.runs)
    assert after_restart.assign("other", facts).card == "GPU-bbbb"
    assert after_restart.assign(first.id, facts).card == "GPU-aaaa"
    with pytest.raises(InfrastructureError, match="each of the 2 cards of this host is another run's"):
        after_restart.assign("third", facts)
    goes_on.set()
    runner.join()
    after_restart.release(first.id)
    assert after_restart.assign("third", facts).card == "GPU-aaaa"


def test_slots_are_as_many_as_asked_for_but_no_more_than_cards(tmp_path):
    counts = {cards: RunSlots(4, cards, tmp_path).count for cards in ((), CARDS, None)}
    assert counts == {(): 4, CARDS: 2, None: 1}  # cards that nobody names are shared by nobody
