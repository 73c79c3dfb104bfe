"""The promises of `bridge.bus.interface.Bus`, over every transport."""

from __future__ import annotations

import threading

import pytest

from bridge.bus import names
from bridge.bus.interface import RequestRef, Tree
from bridge.errors import (
    BusError,
    FencedError,
    IntegrityError,
    RequestRejectedError,
    RunNotFoundError,
    UsageError,
    WrongBusError,
)
from bridge.system.gitobjects import GitObject
from tests.conformance.bus.conftest import Place
from tests.fakes.bus_actors import Actor, chunk
from tests.fakes.memory_bus import BUS_ID, bus_record


@pytest.fixture
def host(place: Place) -> Actor:
    return Actor(place.bus(), place.clock, "host-a")


@pytest.fixture
def other(place: Place) -> Actor:
    return Actor(place.bus(), place.clock, "host-b")


@pytest.fixture
def client(place: Place) -> Actor:
    return Actor(place.bus(), place.clock, "client")


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
    with pytest.raises(BusError, match="somebody else changed"):
        other.bus.update(stale.evolve(lease_s=1.0))
    with pytest.raises(BusError, match="keeps its id"):
        host.bus.update(old.evolve(bus_id="f" * 32))
    client.bus.snapshot()
    assert client.bus.identity() == host.bus.identity() == old.evolve(lease_s=old.lease_s + 1)


def test_refuses_another_bus_than_the_pinned_one_naming_both(place: Place) -> None:
    found = place.bus().identity().bus_id
    pinned = place.bus("e" * 32)
    before = place.refs()
    with pytest.raises(WrongBusError, match="a fork") as caught:
        Actor(pinned, place.clock).submit(Actor(place.bus(), place.clock).request())
    assert found in str(caught.value)
    assert "e" * 32 in str(caught.value)
    assert place.refs() == before


def test_a_request_arrives_with_the_bytes_that_were_sent(host: Actor, client: Actor) -> None:
    request = client.request()
    sent = client.submit(request)
    assert not sent.reattached
    (seen,) = host.bus.snapshot().requests
    assert seen == sent.ref == RequestRef(request.id, request.ref, sent.ref.oid)
    received = host.bus.read_request(seen)
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
    assert place.refs()[request.ref] == sent.ref.oid


def test_requests_outside_the_bus_s_patterns_are_neither_sent_nor_seen(
    place: Place, host: Actor, client: Actor
) -> None:
    request = client.request(template="elsewhere/mac-bridge-{preset}-{id}")
    with pytest.raises(BusError, match="accepts requests on"):
        client.submit(request)
    sent = client.submit()
    place.set_ref(request.ref, sent.ref.oid)
    assert [one.ref for one in host.bus.snapshot().requests] == [sent.ref.ref]


def test_an_agent_s_namespace_carries_requests_and_cancels(host: Actor, client: Actor) -> None:
    request = client.request(template="AgentMemory/mac-bridge-{preset}-{id}-4f2a")
    sent = client.submit(request)
    client.bus.ask_cancel(request.id, b"{}")
    seen = host.bus.snapshot()
    assert seen.requests == (sent.ref,)
    assert seen.cancels == {request.id}


def test_what_is_no_request_is_rejected_in_one_line(place: Place, host: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.claim(sent.ref)
    ref = names.request_branch(names.DEFAULT_TEMPLATE, "x", client.new_id())
    place.set_ref(ref, held.oid)
    with pytest.raises(RequestRejectedError, match=r"holds no \.mac-bridge/request\.json") as caught:
        host.bus.read_request(RequestRef(names.run_id_of(ref) or "", ref, held.oid))
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


def test_a_claim_has_one_winner(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.claim(sent.ref)
    with pytest.raises(FencedError):
        other.claim(sent.ref)
    view = client.bus.read_claim(sent.ref.id)
    assert view is not None
    assert (view.oid, view.claim, view.chain) == (held.oid, held.claim, held.chain)


def test_a_race_of_claimers_has_one_winner_each_time(place: Place, client: Actor) -> None:
    racers, rounds = (16, 8) if place.kind == "memory" else (4, 2)
    actors = [Actor(place.bus(), place.clock, f"host-{number}") for number in range(racers)]
    for actor in actors:
        actor.bus.identity()
    for _ in range(rounds):
        sent = client.submit()
        won, lost = _race(actors, sent.ref)
        view = client.bus.read_claim(sent.ref.id)
        assert view is not None
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
    held = host.publish(sent.ref, host.renew(sent.ref, host.start(sent.ref, host.claim(sent.ref))))
    view = client.bus.read_claim(sent.ref.id)
    assert view is not None
    assert [claim.state for claim in view.history] == ["claimed", "started", "started", "terminal"]
    assert view.chain == held.chain
    raw = host.bus.claim_commits(held.chain)
    assert [GitObject("commit", data).oid for data, _ in raw] == list(held.chain)
    assert [data for _, data in raw] == [claim.canonical() for claim in view.history]


def test_an_expired_claim_is_taken_over_and_its_old_owner_is_fenced(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.claim(sent.ref)
    seen = other.bus.read_claim(sent.ref.id)
    assert seen is not None
    taken = other.take_over(sent.ref, seen)
    with pytest.raises(FencedError):
        host.start(sent.ref, held)
    with pytest.raises(FencedError):
        host.publish(sent.ref, held)
    started = other.start(sent.ref, taken)
    assert started.chain[:2] == (held.oid, taken.oid)


def test_a_renewed_claim_is_not_taken_over(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.claim(sent.ref)
    seen = other.bus.read_claim(sent.ref.id)
    assert seen is not None
    renewed = host.renew(sent.ref, held)
    with pytest.raises(FencedError):
        other.take_over(sent.ref, seen)
    assert host.start(sent.ref, renewed).claim.state == "started"


def test_a_started_run_in_other_hands_may_only_be_ended(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.start(sent.ref, host.claim(sent.ref))
    seen = other.bus.read_claim(sent.ref.id)
    assert seen is not None
    for state in ("claimed", "started"):
        with pytest.raises(BusError, match="started run"):
            other.take_over(sent.ref, seen, state)
    with pytest.raises(BusError, match="started run"):
        other.take_over(sent.ref, seen, "terminal", reason="passed")
    other.take_over(sent.ref, seen, "terminal", reason="runner_lost", exit_code=3)
    with pytest.raises(FencedError):
        host.publish(sent.ref, held)
    view = client.bus.read_claim(sent.ref.id)
    assert view is not None
    assert view.claim.reason == "runner_lost"


def test_an_end_is_final(host: Actor, client: Actor) -> None:
    sent = client.submit()
    ended = host.run(sent.ref)
    with pytest.raises(BusError, match="has ended"):
        host.publish(sent.ref, ended)
    with pytest.raises(FencedError):
        host.claim(sent.ref)


def test_publishing_shows_the_result_and_the_copy_reaches_the_branch(place: Place, host: Actor, client: Actor) -> None:
    sent = client.submit()
    files = {"manifest.json": b"{}", "reports/deep/a.json": b"\x00\xff", "log.txt": b""}
    ended = host.publish(sent.ref, host.start(sent.ref, host.claim(sent.ref)), files)
    view = client.bus.view(sent.ref.id)
    assert view.claim is not None
    assert view.delivery is None
    assert client.bus.read_result(view.claim.claim.result_oid or "") == Tree(files)
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"
    assert client.bus.view(sent.ref.id).delivery == "copied"
    assert place.refs()[sent.ref.ref] != sent.ref.oid


def test_an_ended_request_is_no_longer_pending(host: Actor, client: Actor) -> None:
    first, second = client.submit(), client.submit()
    ended = host.run(first.ref)
    host.bus.copy_result(first.ref, ended.claim.result_oid or "")
    assert host.bus.snapshot().requests == (second.ref,)


def test_a_branch_that_carries_a_result_is_done_even_without_its_claim(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    sent = client.submit()
    ended = host.run(sent.ref)
    host.bus.copy_result(sent.ref, ended.claim.result_oid or "")
    place.set_ref(names.claim_ref(names.DEFAULT_PREFIX, sent.ref.id), None)
    (seen,) = other.bus.snapshot().requests
    with pytest.raises(FencedError, match="carries a result"):
        other.bus.read_request(seen)
    assert other.bus.snapshot().requests == ()


@pytest.mark.parametrize("fate", ["branch_deleted", "branch_moved", "branch_rewound"])
def test_a_branch_that_went_elsewhere_keeps_its_result_under_the_claim(
    place: Place, host: Actor, client: Actor, fate: str
) -> None:
    sent, unrelated = client.submit(), client.submit()
    host.bus.read_request(sent.ref)
    if fate == "branch_rewound":
        host.claim(unrelated.ref)
    place.set_ref(sent.ref.ref, None if fate == "branch_deleted" else unrelated.ref.oid)
    ended = host.run(sent.ref)
    expected = "branch_deleted" if fate == "branch_deleted" else "branch_moved"
    before = place.refs().get(sent.ref.ref)
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == expected
    assert place.refs().get(sent.ref.ref) == before
    view = client.bus.view(sent.ref.id)
    assert view.delivery == expected
    assert view.claim is not None
    assert "manifest.json" in client.bus.read_result(view.claim.claim.result_oid or "").files


def test_a_copy_can_be_made_by_another_process_of_the_same_host(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    ended = host.run(sent.ref)
    seen = other.bus.read_claim(sent.ref.id)
    assert seen is not None
    assert other.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"


def test_a_log_is_read_in_order_and_without_gaps(host: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.start(sent.ref, host.claim(sent.ref))
    assert client.bus.read_log(sent.ref.id) == ()
    pieces = [b"one\n", b"two \x1b[31m\n", b"", b"four"]
    offset = 0
    for seq, piece in enumerate(pieces):
        held = host.renew(sent.ref, held, log=chunk(sent.ref.id, seq, offset, piece, final=seq == 3))
        offset += len(piece)
        if seq == 1:
            assert [one.data for one in client.bus.read_log(sent.ref.id)] == pieces[:2]
    assert [one.data for one in client.bus.read_log(sent.ref.id, 1)] == pieces[2:]
    assert [one.data for one in client.bus.read_log(sent.ref.id)] == pieces
    assert client.bus.read_log(sent.ref.id, 3) == ()


def test_a_log_chunk_that_does_not_follow_is_refused(host: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.start(sent.ref, host.claim(sent.ref))
    with pytest.raises(BusError, match="does not follow"):
        host.renew(sent.ref, held, log=chunk(sent.ref.id, 1, 0, b"x"))


def test_one_push_carries_lease_log_and_beacon(host: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.start(sent.ref, host.claim(sent.ref))
    host.renew(sent.ref, held, log=chunk(sent.ref.id, 0, 0, b"x"), beacon=host.beacon(7))
    assert [one.data for one in client.bus.read_log(sent.ref.id)] == [b"x"]
    assert [one.sequence for _, one in client.bus.read_beacons()] == [7]


def test_a_log_or_beacon_somebody_else_moved_does_not_stop_the_run(place: Place, host: Actor, client: Actor) -> None:
    sent = client.submit()
    held = host.start(sent.ref, host.claim(sent.ref))
    held = host.renew(sent.ref, held, log=chunk(sent.ref.id, 0, 0, b"a"), beacon=host.beacon(1))
    for ref in (names.log_ref(names.DEFAULT_PREFIX, sent.ref.id), names.beacon_ref(names.DEFAULT_PREFIX, "host-a")):
        place.set_ref(ref, sent.ref.oid)
    held = host.renew(sent.ref, held, log=chunk(sent.ref.id, 1, 1, b"b"), beacon=host.beacon(2))
    host.renew(sent.ref, held, log=chunk(sent.ref.id, 2, 2, b"c"), beacon=host.beacon(3))
    assert [one.data for one in client.bus.read_log(sent.ref.id)] == [b"a", b"b", b"c"]
    assert [one.sequence for _, one in client.bus.read_beacons()] == [3]


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
    assert [(one.runner, one.sequence) for _, one in client.bus.read_beacons()] == [("host-a", 1), ("host-b", 5)]
    assert set(host.bus.snapshot().beacons) == {"host-a", "host-b", "junk", "liar"}


def test_a_runner_that_lost_its_state_goes_on_with_its_beacon(place: Place, host: Actor, client: Actor) -> None:
    host.bus.beacon(host.beacon(3))
    Actor(place.bus(), place.clock, "host-a").bus.beacon(host.beacon(4))
    assert [one.sequence for _, one in client.bus.read_beacons()] == [4]


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
    held = host.claim(sent.ref)
    assert client.bus.view(sent.ref.id).claim is not None
    held = host.renew(sent.ref, host.start(sent.ref, held), log=chunk(sent.ref.id, 0, 0, b"x"))
    view = client.bus.view(sent.ref.id)
    assert view.claim is not None
    assert view.claim.claim.state == "started"
    assert view.log is not None
    unknown = client.bus.view(client.new_id())
    assert (unknown.request, unknown.claim) == (None, None)


def test_results_are_the_same_commit_for_the_same_input(host: Actor, other: Actor) -> None:
    run_id = host.new_id()
    tree = Tree({"b": b"2", "a/x": b"1"})
    assert host.bus.build_result(tree, run_id) == other.bus.build_result(tree, run_id)
    assert host.bus.build_result(tree, run_id) != host.bus.build_result(Tree({"b": b"3"}), run_id)


@pytest.mark.parametrize("path", ["../x", ".github/workflows/a.yml", "a/.git/config", "/x", "a//b", "a\nb"])
def test_a_result_holds_only_plain_relative_paths(host: Actor, path: str) -> None:
    with pytest.raises(IntegrityError):
        host.bus.build_result(Tree({path: b""}), host.new_id())


def test_what_is_no_result_is_an_integrity_error(host: Actor, client: Actor) -> None:
    with pytest.raises(IntegrityError):
        client.bus.read_result("0123" * 10)


def test_a_foreign_thing_at_a_claim_ref_is_named_and_blocks_nobody_else(
    place: Place, host: Actor, client: Actor
) -> None:
    bad, good = client.submit(), client.submit()
    place.set_ref(names.claim_ref(names.DEFAULT_PREFIX, bad.ref.id), good.ref.oid)
    with pytest.raises(BusError, match=r"claim\.json"):
        host.bus.read_claim(bad.ref.id)
    with pytest.raises(FencedError):
        host.claim(bad.ref)
    assert {one.id for one in host.bus.snapshot().requests} == {bad.ref.id, good.ref.id}
    host.run(good.ref)


def test_gc_deletes_branch_log_and_claim_of_old_runs_only(place: Place, host: Actor, client: Actor) -> None:
    old = client.submit()
    held = host.start(old.ref, host.claim(old.ref))
    held = host.publish(old.ref, host.renew(old.ref, held, log=chunk(old.ref.id, 0, 0, b"x")))
    client.bus.ask_cancel(old.ref.id, b"{}")
    assert list(host.bus.collect(older_than_s=0, dry_run=False)) == []  # within reach of a replay
    place.clock.advance(30 * 3600)
    fresh, running = client.submit(), client.submit()
    host.run(fresh.ref)
    host.start(running.ref, host.claim(running.ref))
    planned = list(host.bus.collect(older_than_s=0, dry_run=True))
    assert len(planned) == 4
    before = place.refs()
    assert all(ref in before for ref in planned)
    assert list(host.bus.collect(older_than_s=40 * 3600, dry_run=False)) == []
    gone = list(host.bus.collect(older_than_s=0, dry_run=False))
    assert sorted(gone) == sorted(planned)
    assert gone[-1].endswith(f"claim/{old.ref.id}")
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
            names.request_branch(template, "a", "0" * 26)


def test_the_first_contact_needs_no_pin(place: Place) -> None:
    assert place.bus().identity().bus_id == (BUS_ID if place.kind != "embedded" else place.bus().identity().bus_id)
