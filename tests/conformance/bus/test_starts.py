"""A run is begun by one claim, whatever is deleted between any two steps of two runners."""

from __future__ import annotations

import pytest

from bridge.bus.refs import names
from bridge.bus.views import HeldClaim, RequestRef
from bridge.errors import BegunError, FencedError
from tests.conformance.bus.conftest import Place
from tests.fakes.bus_actors import Actor, chunk


def claim_of(ref: RequestRef) -> str:
    return names.claim_ref(names.DEFAULT_PREFIX, ref.id)


def start_of(ref: RequestRef) -> str:
    return names.start_ref(names.DEFAULT_PREFIX, ref.id)


def begins(actor: Actor, ref: RequestRef, place: Place) -> HeldClaim:
    """Let a runner claim and begin a run, whose claim somebody deletes then."""
    started = actor.start(ref, actor.claim(ref))
    place.set_ref(claim_of(ref), None)
    return started


def at(place: Place, ref: RequestRef) -> tuple[str | None, str | None]:
    """Return the tips of a run's claim and start."""
    refs = place.refs()
    return refs.get(claim_of(ref)), refs.get(start_of(ref))


def test_the_claim_that_begins_a_run_is_at_the_ref_of_its_start(place: Place, host: Actor, client: Actor) -> None:
    ref = client.submit().ref
    started = host.start(ref, host.claim(ref))
    assert at(place, ref) == (started.oid, started.oid)
    renewed = host.renew(ref, started)
    assert at(place, ref) == (renewed.oid, started.oid)


def test_a_run_that_another_began_before_the_claim_is_given_back_to_it(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    ref = client.submit().ref
    started = begins(other, ref, place)
    with pytest.raises(BegunError, match=other.name):
        host.claim(ref)
    assert at(place, ref) == (started.oid, started.oid)


def test_a_run_that_another_began_after_the_claim_was_deleted_is_not_begun_again(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    ref = client.submit().ref
    claim = host.claim(ref)
    place.set_ref(claim_of(ref), None)
    started = begins(other, ref, place)
    with pytest.raises(BegunError):
        host.start(ref, claim)
    assert at(place, ref) == (started.oid, started.oid)
    with pytest.raises(FencedError):
        host.bus.put_back(claim)
    place.set_ref(claim_of(ref), None)
    host.bus.put_back(claim)
    with pytest.raises(BegunError):
        host.start(ref, claim)
    assert at(place, ref) == (started.oid, started.oid)


def test_a_claim_put_back_before_another_begins_keeps_that_one_from_it(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    ref = client.submit().ref
    claim = host.claim(ref)
    place.set_ref(claim_of(ref), None)
    theirs = other.claim(ref)
    place.set_ref(claim_of(ref), None)
    host.bus.put_back(claim)
    with pytest.raises(FencedError):
        other.start(ref, theirs)
    started = host.start(ref, claim)
    place.set_ref(claim_of(ref), None)
    other.bus.put_back(theirs)
    with pytest.raises(BegunError):
        other.start(ref, theirs)
    assert at(place, ref) == (started.oid, started.oid)
    assert host.publish(ref, host.renew(ref, started)).claim.state == "terminal"


def test_who_began_a_run_puts_its_claim_over_one_of_another(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    ref = client.submit().ref
    claim = host.claim(ref)
    place.set_ref(claim_of(ref), None)
    theirs = other.claim(ref)
    place.set_ref(claim_of(ref), None)
    started = host.start(ref, _put_back(host, claim))
    place.set_ref(claim_of(ref), theirs.oid)
    host.bus.put_back(started)
    assert at(place, ref)[0] == started.oid
    place.set_ref(claim_of(ref), theirs.oid)
    place.set_ref(start_of(ref), None)  # nothing shows who began it, but that the other did not
    host.bus.put_back(started)
    place.set_ref(claim_of(ref), None)
    stranger = other.start(ref, _put_back(other, theirs))
    with pytest.raises(FencedError):
        host.bus.put_back(started)
    assert at(place, ref) == (stranger.oid, stranger.oid)


def _put_back(actor: Actor, claim: HeldClaim) -> HeldClaim:
    actor.bus.put_back(claim)
    return claim


def test_what_a_runner_that_is_gone_began_is_ended_and_not_run(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    ref = client.submit().ref
    begins(other, ref, place)
    with pytest.raises(BegunError):
        host.claim(ref)
    view = host.bus.read_claim(ref.id)
    assert view is not None
    host.take_over(ref, view, "terminal", reason="runner_lost", exit_code=3)
    ended = client.bus.read_claim(ref.id)
    assert ended is not None
    assert ended.claim.reason == "runner_lost"


def test_a_start_is_its_own_after_a_crash_and_another_s_is_not(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    ref = client.submit().ref
    started = host.renew(ref, host.start(ref, host.claim(ref)))
    host.bus.begin_again(started)
    place.set_ref(start_of(ref), None)
    host.bus.begin_again(started)  # deleted meanwhile: it is written anew
    assert at(place, ref) == (started.oid, started.chain[1])

    lost = client.submit().ref
    mine = host.start(lost, host.claim(lost))
    place.set_ref(start_of(lost), None)
    theirs = begins(other, lost, _without_claim(place, lost))
    place.set_ref(claim_of(lost), mine.oid)
    with pytest.raises(BegunError):
        host.bus.begin_again(mine)
    assert at(place, lost) == (theirs.oid, theirs.oid)


def _without_claim(place: Place, ref: RequestRef) -> Place:
    place.set_ref(claim_of(ref), None)
    return place


def test_what_is_no_start_keeps_nobody_from_a_run(place: Place, host: Actor, client: Actor) -> None:
    ref, another = client.submit().ref, client.submit().ref
    place.set_ref(start_of(ref), another.oid)  # no claim at all
    claim = host.claim(ref)
    place.set_ref(start_of(ref), claim.oid)  # a claim that began nothing
    started = host.start(ref, claim)
    assert at(place, ref) == (started.oid, started.oid)


def test_a_sign_of_life_that_another_moved_does_not_keep_a_run_from_its_start(
    place: Place, host: Actor, client: Actor
) -> None:
    ref = client.submit().ref
    host.bus.beacon(host.beacon(1))
    claim = host.claim(ref)
    place.set_ref(names.beacon_ref(names.DEFAULT_PREFIX, host.name), claim.oid)
    started = host.bus.advance(claim, host.record(ref, "started", 1, phase="running"), beacon=host.beacon(2))
    assert at(place, ref) == (started.oid, started.oid)


def test_a_log_without_a_claim_shows_that_somebody_began_the_run(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    ref = client.submit().ref
    other.renew(ref, other.start(ref, other.claim(ref)), log=chunk(ref.id, 0, 0, b"x"))
    for name in (claim_of(ref), start_of(ref)):
        place.set_ref(name, None)
    with pytest.raises(BegunError, match="its log is there"):
        host.claim(ref)
    assert at(place, ref) == (None, None)
