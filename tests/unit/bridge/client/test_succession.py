"""What is said of the runs beside a run, where strangers push what they like around it."""

from __future__ import annotations

from bridge.client.connection.pins import Pins
from bridge.client.evidence.succession import compare_with_bus
from bridge.ids import new_id, unix_ms
from bridge.trust.attestation import Attested, ChainPosition
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record


def test_that_not_all_names_around_a_run_were_looked_at_is_said():
    clock, remote = FakeClock(), MemoryRemote()
    host = Actor(MemoryBus(remote, clock=clock), clock, "mini")
    host.bus.create(bus_record(clock))
    ref = host.submit().ref
    host.publish(ref, host.start(ref, host.claim(ref)))
    attested = Attested("key", ChainPosition("c" * 64, 7), "d" * 64, {"runner": "mini", "run": ref.id})
    assert compare_with_bus(host.bus, ref.id, attested, Pins()) == (True, "number 7 alone; nothing to compare it with")
    tip = remote.refs["refs/kakeya/bus"]
    for number in range(600):
        remote.refs[f"refs/kakeya/claim/{new_id(unix_ms(ref.id), number.to_bytes(10, 'big'))}"] = tip
    whole, text = compare_with_bus(Actor(MemoryBus(remote, clock=clock), clock).bus, ref.id, attested, Pins())
    assert whole
    assert text.endswith("nothing to compare it with; looked at the 512 claims nearest in time, 89 more were left")
