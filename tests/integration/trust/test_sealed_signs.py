"""Beacons and live logs on a git remote that anybody may push to: forged, replayed, cut, rewritten."""

from __future__ import annotations

import pytest

from bridge.bus.content.commits import beacon_commit, log_commit
from bridge.bus.refs import names
from bridge.bus.store.interface import RefUpdate
from bridge.client.connection.liveness import doubts, look, require_runner
from bridge.errors import NoRunnerError, UntrustedLogError
from bridge.records.request import RunnerSelector
from tests.fakes.bus_actors import chunk
from tests.fakes.sealed_fleet import Fleet, seal_at

pytestmark = pytest.mark.ci

PREFIX = names.DEFAULT_PREFIX
ANYBODY = RunnerSelector()


@pytest.fixture
def fleet(tmp_path) -> Fleet:
    tmp_path.chmod(0o700)
    return Fleet(tmp_path)


def beacon_ref(name: str) -> str:
    return names.beacon_ref(PREFIX, name)


def runners(fleet: Fleet, client) -> list[tuple[str, bool]]:
    return [(runner.beacon.runner, runner.live) for runner in look(client, client.identity(), fleet.clock.now())]


def logged(fleet: Fleet, texts: list[bytes]):
    """Run a signed run that logs these texts; return (alpha, ref, held, tips of the log)."""
    alpha = fleet.runner("alpha")
    ref = alpha.submit().ref
    held_claim = alpha.start(ref, alpha.claim(ref))
    tips, offset = [], 0
    for number, text in enumerate(texts):
        held_claim = alpha.renew(ref, held_claim, log=chunk(ref.id, number, offset, text))
        offset += len(text)
        tips.append(fleet.tip(names.log_ref(PREFIX, ref.id)))
    return alpha, ref, held_claim, tips


def plant(fleet: Fleet, ref: str, made, expect: str | None) -> None:
    """Push a commit to a ref as somebody without any key."""
    head, objects = made
    store = fleet.open("forger")._store
    store.write(objects)
    if expect is not None:
        store.obtain({ref: expect}, max_bytes=1 << 20)
    assert store.push([RefUpdate(ref, head.oid, expect)])[ref]


def test_a_forged_beacon_makes_no_runner_live_and_is_said(fleet) -> None:
    client = fleet.client(fleet.key("alpha"))
    forger = fleet.forger("alpha")
    forger.bus.beacon(forger.beacon(7))
    assert runners(fleet, client) == []
    (doubt,) = doubts(client)
    assert doubt.startswith("a beacon of alpha does not count: not signed, and alpha signs")
    with pytest.raises(NoRunnerError, match="no runner on this bus counts: a beacon of alpha does not count"):
        require_runner(client, client.identity(), fleet.clock, preset="mlx-env-probe", selector=ANYBODY, poll_s=1.0)
    alpha = fleet.runner("alpha")
    alpha.bus.beacon(alpha.beacon(1))  # lands on top of the forged one
    assert runners(fleet, client) == [("alpha", True)]
    assert doubts(client) == []


def test_a_runner_is_not_led_on_by_a_forged_beacon_in_its_own_name(fleet) -> None:
    forger, alpha = fleet.forger("alpha"), fleet.runner("alpha")
    forger.bus.beacon(forger.beacon(10**9))
    assert alpha.bus.read_beacons() == ()


def test_a_beacon_in_another_runner_s_place_is_refused(fleet) -> None:
    alpha = fleet.runner("alpha")
    fleet.key("beta")
    alpha.bus.beacon(alpha.beacon(3))
    sealed = seal_at(fleet, fleet.tip(beacon_ref("alpha")))
    plant(fleet, beacon_ref("beta"), beacon_commit(alpha.beacon(3, runner="beta"), (), sealed), None)
    client = fleet.client(fleet.key("alpha"), fleet.key("beta"))
    assert runners(fleet, client) == [("alpha", True)]
    assert [refusal.runner for refusal in client.refused] == ["beta"]


def test_an_old_beacon_pushed_again_is_no_sign_of_life(fleet) -> None:
    client, alpha = fleet.client(fleet.key("alpha")), fleet.runner("alpha")
    alpha.bus.beacon(alpha.beacon(1))
    first = fleet.tip(beacon_ref("alpha"))
    alpha.bus.beacon(alpha.beacon(2, state="stopped"))
    assert runners(fleet, client) == [("alpha", False)]
    fleet.put(beacon_ref("alpha"), first)
    assert runners(fleet, client) == []
    assert doubts(client) == ["a beacon of alpha does not count: an old one again: number 1, 2 was seen"]


def test_an_old_beacon_does_not_advance_for_a_reader_who_waits(fleet) -> None:
    alpha = fleet.runner("alpha")
    alpha.bus.beacon(alpha.beacon(1))
    first = fleet.tip(beacon_ref("alpha"))
    alpha.bus.beacon(alpha.beacon(2))
    fleet.clock.advance(10**6)
    client = fleet.client(fleet.key("alpha"))

    class Meddled:
        """The clock of a reader during whose pause somebody puts the old beacon back."""

        now, steady_s = fleet.clock.now, fleet.clock.steady_s

        def sleep(self, seconds: float) -> None:
            fleet.put(beacon_ref("alpha"), first)

    with pytest.raises(NoRunnerError):
        require_runner(client, client.identity(), Meddled(), preset="mlx-env-probe", selector=ANYBODY, poll_s=1.0)


def test_beacons_of_runners_without_a_key_are_shown_to_who_demands_nothing(fleet) -> None:
    old = fleet.runner("old", signs=False)
    old.bus.beacon(old.beacon(1))
    alpha = fleet.runner("alpha")
    assert runners(fleet, fleet.client()) == [("old", True)]
    assert [beacon.runner for _, beacon in alpha.bus.read_beacons()] == ["old"]


def test_a_signed_log_is_read_piece_by_piece(fleet) -> None:
    _, ref, _, _ = logged(fleet, [b"one\n", b"two\n"])
    client = fleet.client(fleet.key("alpha"))
    assert [log_chunk.data for log_chunk in client.read_log(ref.id)] == [b"one\n", b"two\n"]
    assert client.log_signature(ref.id).word == "verified"


def test_a_log_with_a_forged_end_is_not_shown(fleet) -> None:
    _, ref, _, tips = logged(fleet, [b"one\n", b"two\n"])
    client = fleet.client(fleet.key("alpha"))
    where = names.log_ref(PREFIX, ref.id)
    lie = chunk(ref.id, 2, 8, b"all tests passed\n")
    plant(fleet, where, log_commit(lie, (tips[-1],), 1_700_000_000, seal_at(fleet, tips[-1])), tips[-1])
    with pytest.raises(UntrustedLogError, match="not its runner's"):
        client.read_log(ref.id)
    assert [refusal.kind for refusal in client.refused] == ["log"]


def test_a_rewritten_log_does_not_carry_the_signature_of_the_true_one(fleet) -> None:
    _, ref, _, tips = logged(fleet, [b"one\n", b"two\n"])
    where = names.log_ref(PREFIX, ref.id)
    head, objects = log_commit(chunk(ref.id, 0, 0, b"ONE\n"), (), 1_700_000_000)
    fleet.open("forger")._store.write(objects)
    plant(
        fleet,
        where,
        log_commit(chunk(ref.id, 1, 4, b"two\n"), (head.oid,), 1_700_000_000, seal_at(fleet, tips[1])),
        tips[1],
    )
    with pytest.raises(UntrustedLogError):
        fleet.client(fleet.key("alpha")).read_log(ref.id)


def test_a_chunk_with_other_words_in_the_same_place_is_refused(fleet) -> None:
    _, ref, _, tips = logged(fleet, [b"one\n"])
    lie = log_commit(chunk(ref.id, 0, 0, b"ONE\n"), (), 1_700_000_000, seal_at(fleet, tips[0]))
    plant(fleet, names.log_ref(PREFIX, ref.id), lie, tips[0])
    with pytest.raises(UntrustedLogError):
        fleet.client(fleet.key("alpha")).read_log(ref.id)


def test_a_log_that_is_cut_behind_what_was_seen_is_not_believed_and_grows_on(fleet) -> None:
    alpha, ref, held_claim, tips = logged(fleet, [b"one\n", b"two\n", b"three\n"])
    client = fleet.client(fleet.key("alpha"))
    chunks = client.read_log(ref.id)
    fleet.put(names.log_ref(PREFIX, ref.id), tips[0])
    with pytest.raises(UntrustedLogError, match="set back from chunk 2 to 0"):
        client.read_log(ref.id, chunks[-1].head.seq)
    held_claim = alpha.renew(ref, held_claim, log=chunk(ref.id, 3, 14, b"four\n"))
    alpha.renew(ref, held_claim)  # the first push learnt where the ref is, this one puts the log back
    assert [log_chunk.data for log_chunk in client.read_log(ref.id, 2)] == [b"four\n"]


def test_a_log_of_another_run_is_refused(fleet) -> None:
    alpha, _, _, tips = logged(fleet, [b"one\n"])
    other = alpha.submit().ref
    plant(
        fleet, names.log_ref(PREFIX, other.id),
        log_commit(chunk(other.id, 0, 0, b"one\n"), (), 1_700_000_000, seal_at(fleet, tips[0])), None,
    )  # fmt: skip
    with pytest.raises(UntrustedLogError):
        fleet.client(fleet.key("alpha")).read_log(other.id)


def test_an_unsigned_log_is_shown_and_said_to_be_unsigned(fleet) -> None:
    old = fleet.forger("old")
    ref = old.submit().ref
    held_claim = old.start(ref, old.claim(ref))
    old.renew(ref, held_claim, log=chunk(ref.id, 0, 0, b"one\n"))
    client = fleet.client(fleet.key("alpha"))
    assert [log_chunk.data for log_chunk in client.read_log(ref.id)] == [b"one\n"]
    answer = client.log_signature(ref.id)
    assert (answer.word, answer.why) == ("unsigned", "not signed, and its runner signs (a test)")
