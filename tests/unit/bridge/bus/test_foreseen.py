"""A run that is looked at next is listed by the call that finds the bus record, once."""

from __future__ import annotations

from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.scripted_host import ScriptedHost


class Listed:
    """Counts the listings of a store."""

    def __init__(self, bus):
        self.count, self._list = 0, bus.store.list
        bus.store.list = self

    def __call__(self, *words, **named):
        self.count += 1
        return self._list(*words, **named)


def test_the_call_that_finds_the_bus_lists_the_run_and_the_next_look_lists_it_anew():
    clock = FakeClock()
    bus = MemoryBus(clock=clock)
    host, sent = ScriptedHost(bus, clock), Actor(bus, clock).submit().ref
    host.claim(sent.id)
    reader = MemoryBus(bus.remote, clock=clock)
    listed = Listed(reader)
    reader.foresee(sent.id, sent.ref)
    reader.identity()
    reader.remember(sent.id, sent.ref)
    assert reader.view(sent.id).claim.claim.state == "claimed"
    assert listed.count == 1
    host.start(sent.id)
    assert reader.view(sent.id).claim.claim.state == "started"
    assert listed.count == 2


def test_a_look_at_another_run_goes_by_a_listing_of_its_own():
    clock = FakeClock()
    bus = MemoryBus(clock=clock)
    actor = Actor(bus, clock)
    foreseen, other = actor.submit().ref, actor.submit().ref
    reader = MemoryBus(bus.remote, clock=clock)
    reader.foresee(foreseen.id, foreseen.ref)
    reader.identity()
    assert reader.view(other.id).request == other
    reader.remember(other.id, other.ref)
    assert reader.view(other.id).request == other
