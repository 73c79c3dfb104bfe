"""Runs that ended long ago: folded by runner and day, found again, their refs dropped only where that is allowed."""

from __future__ import annotations

import dataclasses

import pytest

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import RequestRef
from tests.conformance.bus.conftest import Place
from tests.fakes.bus_actors import Actor, chunk

DAY_S = 24 * 3600.0


def archive(host: Actor, **options: object) -> list[str]:
    return list(host.bus.archive(host.name, budget=WorkBudget(100), **options))


def ended(host: Actor, client: Actor, count: int = 1) -> list[RequestRef]:
    refs = []
    for number in range(count):
        ref = client.submit().ref
        claim = host.start(ref, host.claim(ref))
        host.publish(ref, host.renew(ref, claim, log=chunk(ref.id, 0, 0, b"x")), {"manifest.json": b"%d" % number})
        refs.append(ref)
    return refs


def test_runs_of_a_day_that_is_over_are_folded_into_one_ref_and_their_logs_go(
    place: Place, host: Actor, client: Actor
) -> None:
    first = ended(host, client, 3)
    going = client.submit().ref
    host.start(going, host.claim(going))
    assert archive(host) == []
    place.clock.advance(3 * DAY_S)
    logs = [f"refs/kakeya/{kind}/{ref.id}" for ref in first for kind in ("log", "start")]
    before = place.refs()
    planned = archive(host, dry_run=True)
    assert place.refs() == before
    done = archive(host)
    assert done[0] == f"refs/kakeya/archive/{host.name}/2026-01-02"
    assert sorted(done[1:]) == sorted(logs)
    assert sorted(planned) == sorted(done)
    assert set(before) - set(place.refs()) == set(logs)
    assert archive(host) == []
    archived = {run.tip.claim.id: run for run in client.bus.archived()}
    assert set(archived) == {ref.id for ref in first}
    assert all(archived[ref.id].ref == ref.ref for ref in first)


@pytest.mark.ci
def test_an_owner_drops_refs_and_every_result_stays(place: Place, host: Actor, client: Actor) -> None:
    refs = ended(host, client, 2)
    place.clock.advance(3 * DAY_S)
    archive(host)
    young = ended(host, client, 1)
    assert archive(host, drop_after_s=30 * DAY_S) == []
    gone = archive(host, drop_after_s=2 * DAY_S)
    assert sorted(gone) == sorted([*(ref.ref for ref in refs), *(f"refs/kakeya/claim/{ref.id}" for ref in refs)])
    reader = Actor(place.bus(), place.clock)
    for number, ref in enumerate(refs):
        view = reader.bus.view(ref.id)
        assert view.claim is not None
        assert [claim.state for claim in view.claim.history] == ["claimed", "started", "started", "terminal"]
        assert reader.bus.read_result(view.claim.claim.result_oid or "").files == {"manifest.json": b"%d" % number}
        assert (view.request, view.delivery) == (None, "branch_deleted")
    assert {ref.id for ref in reader.bus.snapshot().requests} == {ref.id for ref in young}
    assert set(reader.bus.neighbours(refs[0].id, host.name, 8).claims) == {ref.id for ref in (*refs, *young)}


def test_names_that_anybody_pushes_around_a_run_hide_no_run_beside_it(place: Place, host: Actor, client: Actor) -> None:
    refs = []
    for _ in range(3):
        place.clock.advance(1.0)
        refs += ended(host, client)
    before, middle, after = refs
    (others,) = ended(dataclasses.replace(host, name="other"), client)
    tip = place.refs()["refs/kakeya/bus"]
    for last in set("23456789") - {middle.id[-1]}:  # nearer to it in time than any run of its runner
        place.set_ref(f"refs/kakeya/claim/{middle.id[:-1]}{last}", tip)
    near = client.bus.neighbours(middle.id, host.name, 3)
    assert set(near.claims) == {before.id, middle.id, after.id}
    assert near.left == 0
    assert set(client.bus.neighbours(middle.id, "other", 3).claims) == {others.id}


def test_a_name_that_is_pushed_again_does_not_hide_the_archived_run(place: Place, host: Actor, client: Actor) -> None:
    (ref,) = ended(host, client)
    place.clock.advance(3 * DAY_S)
    archive(host, drop_after_s=2 * DAY_S)
    place.set_ref(f"refs/kakeya/claim/{ref.id}", place.refs()["refs/kakeya/bus"])
    reader = Actor(place.bus(), place.clock)
    assert set(reader.bus.neighbours(ref.id, host.name, 3).claims) == {ref.id}


def test_what_ends_late_is_added_to_the_archive_of_its_day(place: Place, host: Actor, client: Actor) -> None:
    early = ended(host, client, 1)
    late = client.submit().ref
    claim = host.start(late, host.claim(late))
    place.clock.advance(3 * DAY_S)
    (written, *_) = archive(host)
    host.publish(late, claim)
    place.clock.advance(2 * DAY_S)
    assert archive(host)[0] == written
    assert {run.tip.claim.id for run in client.bus.archived()} == {early[0].id, late.id}


def test_a_claim_goes_where_its_sender_deleted_the_branch(place: Place, host: Actor, client: Actor) -> None:
    (ref,) = ended(host, client)
    place.set_ref(ref.ref, None)
    place.clock.advance(3 * DAY_S)
    assert archive(host)[1:] == [f"refs/kakeya/{kind}/{ref.id}" for kind in ("log", "start", "claim")]
    assert client.bus.view(ref.id).claim is not None


def test_a_runner_folds_its_own_runs_and_those_of_runners_that_are_gone(
    place: Place, host: Actor, client: Actor
) -> None:
    other = dataclasses.replace(host, name="other")
    (ref,) = ended(other, client)
    place.clock.advance(3 * DAY_S)
    assert archive(host) == []
    host.bus.beacon(other.beacon(1))
    place.clock.advance(28 * DAY_S)
    assert archive(host) == []
    place.clock.advance(31 * DAY_S)
    assert archive(host)[0] == f"refs/kakeya/archive/{host.name}/2026-01-02"
    assert [run.tip.claim.id for run in client.bus.archived()] == [ref.id]


def test_what_is_no_archive_hides_no_run(place: Place, host: Actor, client: Actor) -> None:
    (ref,) = ended(host, client)
    place.clock.advance(3 * DAY_S)
    archive(host, drop_after_s=2 * DAY_S)
    tips = place.refs()
    place.set_ref("refs/kakeya/archive/aaa/2026-01-02", tips["refs/kakeya/bus"])
    place.set_ref("refs/kakeya/archive/zzz/2026-01-02", tips[f"refs/kakeya/archive/{host.name}/2026-01-02"])
    reader = Actor(place.bus(), place.clock)
    assert reader.bus.view(ref.id).claim is not None
    assert [run.tip.claim.id for run in reader.bus.archived()] == [ref.id]


def test_a_day_that_no_calendar_has_stops_nobody(place: Place, host: Actor, client: Actor) -> None:
    (ref,) = ended(host, client)
    tip = place.refs()["refs/kakeya/bus"]
    place.set_ref(f"refs/kakeya/claim/7{'z' * 25}", tip)  # in the year 10889
    place.set_ref("refs/kakeya/archive/aaa/2026-99-99", tip)
    place.clock.advance(3 * DAY_S)
    assert archive(host)[0] == f"refs/kakeya/archive/{host.name}/2026-01-02"
    assert ref.id in client.bus.neighbours(ref.id, host.name, 2).claims
    assert client.bus.view(f"7{'z' * 25}").claim is None
