"""The promises of `bridge.bus.sides`, over every transport."""

from __future__ import annotations

import shlex

import pytest

from bridge.bus.refs import names
from bridge.bus.views import RequestRef
from bridge.errors import (
    BusError,
    FencedError,
    RemoteError,
    RequestRejectedError,
    UsageError,
    WrongBusError,
)
from bridge.request import DEFAULT_TEMPLATE, request_branch, run_id_of
from tests.conformance.bus.conftest import Place
from tests.fakes.bus_actors import Actor, chunk
from tests.fakes.memory_bus import BUS_ID, bus_record


def test_says_which_bus_it_is_and_is_made_only_once(place: Place, host: Actor) -> None:
    record = host.bus.identity()
    assert record.prefix == names.DEFAULT_PREFIX
    with pytest.raises(BusError, match="carries a bus already"):
        host.bus.create(bus_record(place.clock, bus_id="f" * 32))
    assert host.bus.identity() == record == place.bus(record.bus_id).identity()


def test_its_record_can_be_replaced_by_its_own_and_only_from_the_newest(
    host: Actor, other: Actor, client: Actor
) -> None:
    old, stale = host.bus.identity(), other.bus.identity()
    host.bus.update(old.evolve(lease_s=old.lease_s + 1))
    with pytest.raises(BusError, match="another writer changed"):
        other.bus.update(stale.evolve(lease_s=1.0))
    with pytest.raises(BusError, match="keeps its id"):
        host.bus.update(old.evolve(bus_id="f" * 32))
    client.bus.snapshot()
    assert client.bus.identity() == host.bus.identity() == old.evolve(lease_s=old.lease_s + 1)


def test_refuses_another_bus_than_the_pinned_one_naming_both(place: Place) -> None:
    bus_id = place.bus().identity().bus_id
    pinned = place.bus("e" * 32)
    before = place.refs()
    with pytest.raises(WrongBusError, match="a fork") as caught:
        Actor(pinned, place.clock).submit(Actor(place.bus(), place.clock).request())
    assert bus_id in str(caught.value)
    assert "e" * 32 in str(caught.value)
    assert bus_id not in (caught.value.remedy or "")  # whoever follows remedies would pin whatever is there
    assert place.refs() == before


def test_refuses_another_bus_in_the_place_of_the_one_it_was_opened_on(place: Place) -> None:
    opened = place.bus()
    identity = opened.identity()
    (ref, tip), *_ = place.refs().items()
    place.set_ref(ref, None)
    place.bus().create(bus_record(place.clock, bus_id="f" * 32))
    with pytest.raises(WrongBusError, match=f"carries bus {'f' * 32}, expected {identity.bus_id}"):
        opened.snapshot()
    place.set_ref(ref, tip)
    opened.snapshot()
    assert opened.identity() == identity


def test_a_request_arrives_with_the_bytes_that_were_sent(host: Actor, client: Actor) -> None:
    request = client.request()
    sent = client.submit(request)
    assert not sent.reattached
    (ref,) = host.bus.snapshot().requests
    assert ref == sent.ref == RequestRef(request.id, request.ref, sent.ref.oid)
    received = host.bus.read_request(ref)
    assert (received.data, received.signature) == (request.canonical(), None)


def test_a_signature_travels_beside_the_request(host: Actor, client: Actor) -> None:
    request = client.request()
    sent = client.bus.submit(request.canonical(), request.ref, None, b"signed")
    assert host.bus.read_request(sent.ref).signature == b"signed"


def test_sending_the_same_request_again_finds_it_there(place: Place, client: Actor) -> None:
    request = client.request()
    first = client.submit(request)
    again = Actor(place.bus(), place.clock).submit(request)
    assert again.reattached
    assert again.ref == first.ref


def test_sending_it_again_after_its_result_was_appended_finds_it_there(host: Actor, client: Actor) -> None:
    request = client.request()
    sent = client.submit(request)
    ended = host.run(sent.ref)
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"
    assert client.submit(request).reattached


def test_a_request_branch_is_never_overwritten(place: Place, client: Actor) -> None:
    request = client.request()
    sent = client.submit(request)
    with pytest.raises(FencedError, match="never overwritten"):
        client.submit(request.evolve(params={"a": 1}))
    with pytest.raises(FencedError, match="never overwritten"):
        client.bus.submit(request.evolve(params={"a": 2}).canonical(), request.ref, None, first=True)
    assert place.refs()[request.ref] == sent.ref.oid


def test_a_ref_where_a_folder_belongs_is_named_with_what_deletes_it(place: Place, host: Actor, client: Actor) -> None:
    anything = place.refs()["refs/kakeya/bus"]
    place.set_ref("refs/heads/mac-bridge", anything)
    with pytest.raises(RemoteError, match=": refs/heads/mac-bridge is in its way") as caught:
        client.submit()
    assert f"git push {shlex.quote(client.bus.route)} :refs/heads/mac-bridge" in (caught.value.remedy or "")
    place.set_ref("refs/heads/mac-bridge", None)
    sent = client.submit()

    for taken in ("refs/kakeya/claim", f"refs/kakeya/claim/{sent.ref.id}/x"):
        place.set_ref(taken, anything)
        with pytest.raises(RemoteError, match=f": {taken} is in its way") as caught:
            host.claim(sent.ref)
        assert "kakeya-runner bus repair" in (caught.value.remedy or "")
        place.set_ref(taken, None)
    host.claim(sent.ref)


def test_requests_outside_the_bus_s_patterns_are_neither_sent_nor_seen(
    place: Place, host: Actor, client: Actor
) -> None:
    request = client.request(template="elsewhere/mac-bridge-{preset}-{id}")
    with pytest.raises(BusError, match="accepts requests on"):
        client.submit(request)
    sent = client.submit()
    place.set_ref(request.ref, sent.ref.oid)
    assert [ref.ref for ref in host.bus.snapshot().requests] == [sent.ref.ref]


def test_an_agent_s_namespace_carries_requests_and_cancels(host: Actor, client: Actor) -> None:
    request = client.request(template="AgentMemory/mac-bridge-{preset}-{id}-4f2a")
    sent = client.submit(request)
    client.bus.ask_cancel(request.id, b"{}")
    snapshot = host.bus.snapshot()
    assert snapshot.requests == (sent.ref,)
    assert snapshot.cancels == {request.id}


def test_what_is_no_request_is_rejected_in_one_line(place: Place, host: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.claim(sent.ref)
    ref = request_branch(DEFAULT_TEMPLATE, "x", client.new_id())
    place.set_ref(ref, claim.oid)
    with pytest.raises(RequestRejectedError, match=r"holds no \.mac-bridge/request\.json") as caught:
        host.bus.read_request(RequestRef(run_id_of(ref) or "", ref, claim.oid))
    assert "\n" not in caught.value.message


def test_a_request_larger_than_its_bound_is_rejected(host: Actor, client: Actor) -> None:
    request = client.request()
    big = request.canonical() + b" " * 70_000
    sent = client.bus.submit(big, request.ref, None)
    with pytest.raises(RequestRejectedError, match="70"):
        host.bus.read_request(sent.ref)


def test_a_request_that_was_withdrawn_is_rejected(place: Place, host: Actor, client: Actor) -> None:
    gone = RequestRef(client.new_id(), "refs/heads/mac-bridge/x-" + client.new_id(), "0123" * 10)
    with pytest.raises(RequestRejectedError):
        host.bus.read_request(gone)


def test_gc_deletes_branch_log_and_start_of_old_runs_only(place: Place, host: Actor, client: Actor) -> None:
    old = client.submit()
    claim = host.start(old.ref, host.claim(old.ref))
    claim = host.publish(old.ref, host.renew(old.ref, claim, log=chunk(old.ref.id, 0, 0, b"x")))
    client.bus.ask_cancel(old.ref.id, b"{}")
    assert list(host.bus.collect(older_than_s=0, dry_run=False)) == []  # within reach of a replay
    place.clock.advance(30 * 3600)
    fresh, running = client.submit(), client.submit()
    host.run(fresh.ref)
    host.start(running.ref, host.claim(running.ref))
    planned = list(host.bus.collect(older_than_s=0, dry_run=True))
    assert len(planned) == 4  # two branches, log and start
    before = place.refs()
    assert all(ref in before for ref in planned)
    assert list(host.bus.collect(older_than_s=40 * 3600, dry_run=False)) == []
    gone = list(host.bus.collect(older_than_s=0, dry_run=False))
    assert sorted(gone) == sorted(planned)
    assert host.bus.read_claim(old.ref.id) is not None  # it keeps the result reachable until it is archived
    assert set(before) - set(place.refs()) == set(planned)


def test_a_branch_template_that_hides_the_id_is_refused() -> None:
    for template in (
        "mac-bridge/{id}",
        "main",
        "mac-bridge/{preset}-{id}.lock",
        "mac-bridge/../{preset}-{id}",
        "x/{preset}-{id}",
    ):
        with pytest.raises(UsageError):
            request_branch(template, "a", "0" * 26)


def test_the_first_contact_needs_no_pin(place: Place) -> None:
    assert place.bus().identity().bus_id == (BUS_ID if place.kind != "embedded" else place.bus().identity().bus_id)
