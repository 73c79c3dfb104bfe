"""A run has one owner at a time, its life is told by a chain, and its end is final."""

from __future__ import annotations

import threading

import pytest

from bridge.bus.refs import names
from bridge.bus.views import ClaimView, HeldClaim, RequestRef
from bridge.errors import BusError, FencedError
from bridge.system.gitobjects import GitObject
from tests.conformance.bus.conftest import Place
from tests.fakes.bus_actors import Actor


def _claim_seen_by(actor: Actor, ref: RequestRef) -> ClaimView:
    """Return the claim on a run, which is there."""
    view = actor.bus.read_claim(ref.id)
    assert view is not None
    return view


def _claimed_before(watcher: Actor, owner: Actor, client: Actor) -> tuple[RequestRef, HeldClaim, ClaimView]:
    """Let one runner claim a new request while another looks on; return the request, the claim and the view of it."""
    ref = client.submit().ref
    claim = owner.claim(ref)
    return ref, claim, _claim_seen_by(watcher, ref)


def test_a_claim_has_one_winner(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.claim(sent.ref)
    with pytest.raises(FencedError):
        other.claim(sent.ref)
    view = _claim_seen_by(client, sent.ref)
    assert (view.oid, view.claim, view.chain) == (claim.oid, claim.claim, claim.chain)


def test_a_race_of_claimers_has_one_winner_each_time(place: Place, client: Actor) -> None:
    racers, rounds = (16, 8) if place.kind == "memory" else (4, 2)
    actors = [Actor(place.bus(), place.clock, f"host-{number}") for number in range(racers)]
    for actor in actors:
        actor.bus.identity()
    for _ in range(rounds):
        sent = client.submit()
        won, lost = _race(actors, sent.ref)
        view = _claim_seen_by(client, sent.ref)
        assert won == [view.claim.runner]
        assert len(lost) == racers - 1


def _race(actors: list[Actor], ref: RequestRef) -> tuple[list[str], list[str]]:
    won: list[str] = []
    lost: list[str] = []
    gate = threading.Barrier(len(actors))

    def race(actor: Actor) -> None:
        gate.wait()
        try:
            actor.claim(ref)
            won.append(actor.name)
        except FencedError:
            lost.append(actor.name)

    threads = [threading.Thread(target=race, args=(actor,)) for actor in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, lost


def test_repeating_a_claim_after_a_lost_answer_is_no_second_claim(host: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.record(sent.ref, "claimed", 0)
    assert host.bus.claim(claim) == host.bus.claim(claim)


def test_the_chain_tells_the_whole_life_of_a_run(host: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.publish(sent.ref, host.renew(sent.ref, host.start(sent.ref, host.claim(sent.ref))))
    view = _claim_seen_by(client, sent.ref)
    assert [claim.state for claim in view.history] == ["claimed", "started", "started", "terminal"]
    assert view.chain == claim.chain
    raw = host.bus.claim_commits(claim.chain)
    assert [GitObject("commit", data).oid for data, _ in raw] == list(claim.chain)
    assert [data for _, data in raw] == [claim.canonical() for claim in view.history]


def test_an_expired_claim_is_taken_over_and_its_old_owner_is_fenced(host: Actor, other: Actor, client: Actor) -> None:
    ref, claim, view = _claimed_before(other, host, client)
    taken = other.take_over(ref, view)
    with pytest.raises(FencedError):
        host.start(ref, claim)
    with pytest.raises(FencedError):
        host.publish(ref, claim)
    started = other.start(ref, taken)
    assert started.chain[:2] == (claim.oid, taken.oid)


def test_a_renewed_claim_is_not_taken_over(host: Actor, other: Actor, client: Actor) -> None:
    ref, claim, view = _claimed_before(other, host, client)
    renewed = host.renew(ref, claim)
    with pytest.raises(FencedError):
        other.take_over(ref, view)
    assert host.start(ref, renewed).claim.state == "started"


def test_a_started_run_in_other_hands_may_only_be_ended(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    claim = host.start(sent.ref, host.claim(sent.ref))
    before = _claim_seen_by(other, sent.ref)
    for state in ("claimed", "started"):
        with pytest.raises(BusError, match="started run"):
            other.take_over(sent.ref, before, state)
    with pytest.raises(BusError, match="started run"):
        other.take_over(sent.ref, before, "terminal", reason="passed")
    other.take_over(sent.ref, before, "terminal", reason="runner_lost", exit_code=3)
    with pytest.raises(FencedError):
        host.publish(sent.ref, claim)
    view = _claim_seen_by(client, sent.ref)
    assert view.claim.reason == "runner_lost"


def test_an_end_is_final(host: Actor, client: Actor) -> None:
    sent = client.submit()
    ended = host.run(sent.ref)
    with pytest.raises(BusError, match="has ended"):
        host.publish(sent.ref, ended)
    with pytest.raises(FencedError):
        host.claim(sent.ref)


def test_a_foreign_thing_at_a_claim_ref_is_named_and_blocks_nobody_else(
    place: Place, host: Actor, client: Actor
) -> None:
    bad, good = client.submit(), client.submit()
    place.set_ref(names.claim_ref(names.DEFAULT_PREFIX, bad.ref.id), good.ref.oid)
    with pytest.raises(BusError, match=r"claim\.json"):
        host.bus.read_claim(bad.ref.id)
    with pytest.raises(FencedError):
        host.claim(bad.ref)
    assert {ref.id for ref in host.bus.snapshot().requests} == {bad.ref.id, good.ref.id}
    host.run(good.ref)
