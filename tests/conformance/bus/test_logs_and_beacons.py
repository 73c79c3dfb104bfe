"""What a runner tells while it works: log chunks in order, its lease, its beacon, and who asked it to stop."""

from __future__ import annotations

import pytest

from bridge.bus.refs import names
from bridge.errors import (
    BusError,
    RunNotFoundError,
)
from tests.conformance.bus.conftest import Place
from tests.fakes.bus_actors import Actor, chunk


def test_a_log_is_read_in_order_and_without_gaps(host: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.start(sent.ref, host.claim(sent.ref))
    assert client.bus.read_log(sent.ref.id) == ()
    pieces = [b"one\n", b"two \x1b[31m\n", b"", b"four"]
    offset = 0
    for seq, piece in enumerate(pieces):
        claim = host.renew(sent.ref, claim, log=chunk(sent.ref.id, seq, offset, piece, final=seq == 3))
        offset += len(piece)
        if seq == 1:
            assert [log_chunk.data for log_chunk in client.bus.read_log(sent.ref.id)] == pieces[:2]
    assert [log_chunk.data for log_chunk in client.bus.read_log(sent.ref.id, 1)] == pieces[2:]
    assert [log_chunk.data for log_chunk in client.bus.read_log(sent.ref.id)] == pieces
    assert client.bus.read_log(sent.ref.id, 3) == ()


def test_a_log_chunk_that_does_not_follow_is_refused(host: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.start(sent.ref, host.claim(sent.ref))
    with pytest.raises(BusError, match="does not follow"):
        host.renew(sent.ref, claim, log=chunk(sent.ref.id, 1, 0, b"x"))


def test_one_push_carries_lease_log_and_beacon(host: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.start(sent.ref, host.claim(sent.ref))
    claim = host.renew(sent.ref, claim, log=chunk(sent.ref.id, 0, 0, b"x"), beacon=host.beacon(7))
    assert client.bus.view(sent.ref.id, with_log=True).claim is not None
    assert [log_chunk.data for log_chunk in client.bus.read_log(sent.ref.id)] == [b"x"]
    assert [beacon.sequence for _, beacon in client.bus.read_beacons()] == [7]


def test_a_run_that_is_watched_is_seen_as_it_is_at_each_look(place: Place, host: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.start(sent.ref, host.claim(sent.ref))
    for seq in range(3):
        claim = host.renew(sent.ref, claim, log=chunk(sent.ref.id, seq, seq, b"x"))
        view = client.bus.view(sent.ref.id, with_log=True)
        assert view.claim is not None
        assert (view.claim.oid, view.request) == (claim.oid, sent.ref)
        assert len(client.bus.read_log(sent.ref.id, tip=view.log)) == seq + 1
    place.set_ref(names.log_ref(names.DEFAULT_PREFIX, sent.ref.id), None)
    view = client.bus.view(sent.ref.id, with_log=True)
    assert (view.claim is not None, view.log) == (True, None)


def test_a_bus_that_is_opened_knows_the_beacons_of_that_listing(place: Place, host: Actor) -> None:
    host.bus.beacon(host.beacon(1))
    bus = place.bus()
    bus.identity()
    host.bus.beacon(host.beacon(2))
    assert [beacon.sequence for _, beacon in bus.read_beacons(as_opened=True)] == [1]
    assert [beacon.sequence for _, beacon in bus.read_beacons()] == [2]


def test_a_log_or_beacon_somebody_else_moved_does_not_stop_the_run(place: Place, host: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.start(sent.ref, host.claim(sent.ref))
    claim = host.renew(sent.ref, claim, log=chunk(sent.ref.id, 0, 0, b"a"), beacon=host.beacon(1))
    for ref in (names.log_ref(names.DEFAULT_PREFIX, sent.ref.id), names.beacon_ref(names.DEFAULT_PREFIX, "host-a")):
        place.set_ref(ref, sent.ref.oid)
    claim = host.renew(sent.ref, claim, log=chunk(sent.ref.id, 1, 1, b"b"), beacon=host.beacon(2))
    host.renew(sent.ref, claim, log=chunk(sent.ref.id, 2, 2, b"c"), beacon=host.beacon(3))
    assert [log_chunk.data for log_chunk in client.bus.read_log(sent.ref.id)] == [b"a", b"b", b"c"]
    assert [beacon.sequence for _, beacon in client.bus.read_beacons()] == [3]


def test_beacons_of_all_runners_are_read_and_unreadable_ones_left_out(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    sent = client.submit()
    host.bus.beacon(host.beacon(0))
    host.bus.beacon(host.beacon(1))
    other.bus.beacon(other.beacon(5))
    place.set_ref(names.beacon_ref(names.DEFAULT_PREFIX, "junk"), sent.ref.oid)
    place.set_ref(
        names.beacon_ref(names.DEFAULT_PREFIX, "liar"), place.refs()[names.beacon_ref(names.DEFAULT_PREFIX, "host-b")]
    )
    assert [(beacon.runner, beacon.sequence) for _, beacon in client.bus.read_beacons()] == [
        ("host-a", 1),
        ("host-b", 5),
    ]
    assert set(host.bus.snapshot().beacons) == {"host-a", "host-b", "junk", "liar"}


def test_a_runner_that_lost_its_state_goes_on_with_its_beacon(place: Place, host: Actor, client: Actor) -> None:
    host.bus.beacon(host.beacon(3))
    Actor(place.bus(), place.clock, "host-a").bus.beacon(host.beacon(4))
    assert [beacon.sequence for _, beacon in client.bus.read_beacons()] == [4]


def test_cancel_is_seen_by_runner_and_client_and_may_be_asked_twice(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    assert not client.bus.view(sent.ref.id).cancel_asked
    client.bus.ask_cancel(sent.ref.id, b'{"why":"a"}')
    other.bus.ask_cancel(sent.ref.id, b'{"why":"b"}')
    assert host.bus.snapshot().cancels == {sent.ref.id}
    assert client.bus.view(sent.ref.id).cancel_asked
    with pytest.raises(RunNotFoundError):
        client.bus.ask_cancel(client.new_id(), b"{}")


def test_a_view_shows_each_stage(host: Actor, client: Actor) -> None:
    sent = client.submit()
    view = client.bus.view(sent.ref.id)
    assert (view.request, view.claim, view.log, view.delivery) == (sent.ref, None, None, None)
    claim = host.claim(sent.ref)
    assert client.bus.view(sent.ref.id).claim is not None
    claim = host.renew(sent.ref, host.start(sent.ref, claim), log=chunk(sent.ref.id, 0, 0, b"x"))
    view = client.bus.view(sent.ref.id)
    assert view.claim is not None
    assert view.claim.claim.state == "started"
    assert view.log is not None
    unknown = client.bus.view(client.new_id())
    assert (unknown.request, unknown.claim) == (None, None)


def test_a_runner_takes_its_own_beacon_off_and_no_other(place: Place, host: Actor, other: Actor, client: Actor) -> None:
    other.bus.beacon(other.beacon(0))
    assert host.bus.withdraw_beacon("host-a")  # there never was one
    host.bus.beacon(host.beacon(0))
    assert host.bus.withdraw_beacon("host-a")
    assert [beacon.runner for _, beacon in client.bus.read_beacons()] == ["host-b"]
    host.bus.beacon(host.beacon(1))
    ref = names.beacon_ref(names.DEFAULT_PREFIX, "host-a")
    place.set_ref(ref, place.refs()[names.beacon_ref(names.DEFAULT_PREFIX, "host-b")])
    assert not host.bus.withdraw_beacon("host-a")  # somebody else wrote over it
    assert not other.bus.withdraw_beacon("host-a")  # never sent from there
    assert ref in place.refs()
