"""Claims on a git remote that anybody may push to: who may speak for a runner, and what others come to."""

from __future__ import annotations

import pytest

from bridge.bus.content.commits import claim_commit
from bridge.bus.refs import names
from bridge.bus.views import RequestRef
from bridge.client.run.status import state_of_view
from bridge.errors import FencedError
from bridge.system.gitobjects import GitObject
from bridge.trust.keyring import pin
from bridge.trust.seals import Statement
from tests.fakes.git_servers import git
from tests.fakes.sealed_fleet import Fleet, seal_at

PREFIX = names.DEFAULT_PREFIX


@pytest.fixture
def fleet(tmp_path) -> Fleet:
    tmp_path.chmod(0o700)
    return Fleet(tmp_path)


def claim_ref(ref: RequestRef) -> str:
    return names.claim_ref(PREFIX, ref.id)


def ask(fleet: Fleet) -> RequestRef:
    return fleet.forger("a-requester").submit().ref


def write(fleet: Fleet, obj: GitObject) -> str:
    """Store an object in the remote as a push would."""
    path = fleet.folder / "object"
    path.write_bytes(obj.data)
    return git("hash-object", "-t", obj.kind, "-w", str(path), cwd=fleet.path).strip()


def test_a_signed_claim_is_verified_by_who_knows_the_key_and_unsigned_to_who_knows_none(fleet) -> None:
    ref, alpha, beta = ask(fleet), fleet.runner("alpha"), fleet.knowing("beta", "alpha")
    held_claim = alpha.start(ref, alpha.claim(ref))
    for bus in (fleet.client(fleet.key("alpha")), alpha.bus, beta.bus):
        view = bus.read_claim(ref.id)
        assert (view.oid, view.signature.word, view.sealed) == (held_claim.oid, "verified", True)
    for bus in (fleet.client(), fleet.runner("gamma").bus):  # they know no key of alpha's
        assert bus.read_claim(ref.id).signature.word == "unsigned"


@pytest.mark.parametrize("state", ["claimed", "started", "terminal"])
def test_a_forged_claim_is_nothing_to_a_client_and_does_not_starve_the_request(fleet, state) -> None:
    ref, alpha = ask(fleet), fleet.runner("alpha")
    forger = fleet.forger("alpha")
    held_claim = forger.claim(ref)
    if state != "claimed":
        held_claim = forger.start(ref, held_claim)
    if state == "terminal":
        held_claim = forger.publish(ref, held_claim)
    client = fleet.client(fleet.key("alpha"))
    view = client.view(ref.id)
    assert (view.claim, state_of_view(view)) == (None, "queued")
    assert view.ignored.runner == "alpha"
    assert view.ignored.why == "not signed, and alpha signs (a test)"
    assert [refusal.kind for refusal in client.refused] == ["claim"]
    assert alpha.bus.read_claim(ref.id).signature.refused
    with pytest.raises(FencedError):
        alpha.claim(ref)
    mine = alpha.bus.claim(alpha.record(ref, "claimed", 0), held_claim.oid)
    assert client.view(ref.id).claim.oid == mine.oid
    assert client.refused == () or client.refused[0].oid == held_claim.oid


@pytest.mark.ci
def test_a_forged_end_does_not_hide_a_request_from_runners(fleet) -> None:
    ref, alpha = ask(fleet), fleet.runner("alpha")
    forger = fleet.forger("alpha")
    forger.publish(ref, forger.start(ref, forger.claim(ref)))
    alpha.bus.read_claim(ref.id)
    assert [request.id for request in alpha.bus.snapshot().requests] == [ref.id]


def test_a_claim_of_another_run_is_refused(fleet) -> None:
    first, second = ask(fleet), ask(fleet)
    alpha = fleet.runner("alpha")
    held_claim = alpha.claim(first)
    claim = held_claim.claim.evolve(id=second.id, request_oid=second.oid)
    head, objects = claim_commit(claim, (), seal_at(fleet, held_claim.oid))
    for obj in objects:
        write(fleet, obj)
    fleet.put(claim_ref(second), head.oid)
    client = fleet.client(fleet.key("alpha"))
    assert client.view(second.id).ignored.why.startswith("not signed for this place by alpha with ")
    assert alpha.bus.read_claim(second.id).signature.refused
    assert client.view(first.id).claim.signature.word == "verified"


def test_a_claim_of_which_a_field_was_changed_is_refused(fleet) -> None:
    alpha = fleet.runner("alpha")
    client = fleet.client(fleet.key("alpha"))
    for changes in (
        {"sequence": 0, "lease_s": 9000.0}, {"nonce": "0" * 32}, {"time": "2026-01-02T03:04:06Z"}, {"phase": "judging"},
    ):  # fmt: skip
        ref = ask(fleet)
        held_claim = alpha.claim(ref)
        head, objects = claim_commit(held_claim.claim.evolve(**changes), (), seal_at(fleet, held_claim.oid))
        for obj in objects:
            write(fleet, obj)
        fleet.put(claim_ref(ref), head.oid)
        assert client.view(ref.id).ignored.oid == head.oid, changes


@pytest.mark.ci
def test_a_claim_of_the_same_run_on_another_bus_is_refused(fleet) -> None:
    other = Fleet(fleet.folder, "other")
    other.key("alpha")
    alpha = fleet.runner("alpha")
    request = alpha.request()
    ref = alpha.submit(request).ref
    held_claim = alpha.claim(ref)
    other.take_objects_of(fleet)
    other.put(ref.ref, ref.oid)
    other.put(claim_ref(ref), held_claim.oid)
    assert other.client(fleet.key("alpha")).view(ref.id).ignored.oid == held_claim.oid
    assert other.runner("alpha").bus.read_claim(ref.id).signature.refused
    assert fleet.client(fleet.key("alpha")).view(ref.id).claim.oid == held_claim.oid


@pytest.mark.ci
def test_a_signed_claim_in_a_commit_of_somebody_else_s_making_is_refused(fleet) -> None:
    ref, alpha = ask(fleet), fleet.runner("alpha")
    held_claim = alpha.claim(ref)
    raw = git("cat-file", "commit", held_claim.oid, cwd=fleet.path).replace("claimed ", "Claimed ")
    copy = write(fleet, GitObject("commit", raw.encode()))
    fleet.put(claim_ref(ref), copy)
    assert fleet.client(fleet.key("alpha")).view(ref.id).ignored.oid == copy
    assert alpha.renew(ref, held_claim).oid == fleet.tip(claim_ref(ref))  # and its owner goes on


@pytest.mark.ci
def test_a_seal_of_one_kind_is_none_of_another(fleet) -> None:
    fleet.key("alpha")
    seals = fleet.seals("alpha")
    statement = Statement("claim", fleet.bus_id, "refs/kakeya/claim/x", "alpha", (), b"{}")
    other = Statement("log", fleet.bus_id, "refs/kakeya/claim/x", "alpha", (), b"{}")
    assert seals.verify(statement, seals.sign(statement)).word == "verified"
    assert seals.verify(other, seals.sign(statement)).refused


@pytest.mark.ci
@pytest.mark.parametrize("name", ["alpha", "mallory"])
def test_an_owner_takes_its_claim_back_from_whoever_displaced_it(fleet, name) -> None:
    ref, alpha = ask(fleet), fleet.runner("alpha")
    held_claim = alpha.start(ref, alpha.claim(ref))
    forger = fleet.forger(name)
    forger.displace(ref, held_claim.oid)
    held_claim = alpha.renew(ref, held_claim)
    assert fleet.tip(claim_ref(ref)) == held_claim.oid
    forger.take_over(ref, forger.bus.read_claim(ref.id), "terminal", reason="runner_lost", exit_code=3)
    ended = alpha.publish(ref, held_claim)
    view = fleet.client(fleet.key("alpha")).view(ref.id)
    assert (view.claim.oid, view.claim.claim.reason) == (ended.oid, "passed")


@pytest.mark.ci
def test_a_claim_that_was_set_back_is_put_forward_again(fleet) -> None:
    ref, alpha = ask(fleet), fleet.runner("alpha")
    first = alpha.claim(ref)
    held_claim = alpha.start(ref, first)
    fleet.put(claim_ref(ref), first.oid)
    assert alpha.renew(ref, held_claim).oid == fleet.tip(claim_ref(ref))


@pytest.mark.ci
def test_a_runner_that_may_take_over_is_not_thrown_out(fleet) -> None:
    ref, alpha, beta = ask(fleet), fleet.runner("alpha"), fleet.runner("beta")
    held_claim = alpha.claim(ref)
    mine = beta.take_over(ref, beta.bus.read_claim(ref.id))
    with pytest.raises(FencedError):
        alpha.start(ref, held_claim)
    assert fleet.tip(claim_ref(ref)) == mine.oid
    view = fleet.client(fleet.key("alpha"), fleet.key("beta")).view(ref.id)
    assert (view.claim.claim.runner, view.claim.signature.word) == ("beta", "verified")


@pytest.mark.ci
def test_a_key_signs_for_the_runner_whose_it_is_and_for_no_other(fleet) -> None:
    ref = ask(fleet)
    pinned = fleet.key("alpha"), fleet.key("beta")
    beta = fleet.runner("beta")
    beta.bus.claim(beta.record(ref, "claimed", 0))
    held_claim = beta.bus.read_claim(ref.id)
    claim = held_claim.claim.evolve(runner="alpha")
    bus = fleet.open("beta-as-alpha", fleet.seals("alpha", folder="beta"))  # beta under alpha's name
    bus.claim(claim, held_claim.oid)
    assert fleet.client(*pinned).view(ref.id).ignored.runner == "alpha"


@pytest.mark.ci
def test_runners_without_a_key_go_on_in_a_fleet_where_others_have_one(fleet) -> None:
    ref, alpha = ask(fleet), fleet.runner("alpha")
    old = fleet.runner("old", signs=False)
    held_claim = old.claim(ref)
    assert (alpha.bus.read_claim(ref.id).signature.word, alpha.bus.refused) == ("unsigned", ())
    ended = old.publish(ref, old.start(ref, held_claim))
    assert alpha.bus.read_claim(ref.id).signature.word == "unsigned"
    assert fleet.client().view(ref.id).claim.oid == ended.oid  # a client that pins nobody
    assert fleet.client(fleet.key("alpha")).view(ref.id).ignored.runner == "old"  # one that demands a signature


@pytest.mark.ci
def test_a_runner_that_does_not_sign_yet_is_not_robbed_of_its_run(fleet) -> None:
    """An older version has a key on the bus, signs results and no claims: others leave its claims alone."""
    ref, alpha = ask(fleet), fleet.runner("alpha")
    fleet.key("old")
    old = fleet.forger("old")
    old.start(ref, old.claim(ref))
    assert alpha.bus.read_claim(ref.id).signature.word == "unsigned"


@pytest.mark.ci
def test_what_a_signed_claim_holds_only_a_signed_one_moves_on(fleet) -> None:
    ref, alpha, beta = ask(fleet), fleet.runner("alpha"), fleet.runner("beta")
    alpha.claim(ref)
    stranger = fleet.forger("stranger")
    stranger.take_over(ref, stranger.bus.read_claim(ref.id))
    signature = beta.bus.read_claim(ref.id).signature
    assert (signature.refused, signature.why) == (True, "an unsigned claim follows a signed one")


@pytest.mark.ci
def test_an_owner_may_demand_signatures_of_everybody(fleet) -> None:
    ref = ask(fleet)
    alpha = fleet.runner("alpha", pin(fleet.key("beta")))
    stranger = fleet.forger("stranger")
    held_claim = stranger.claim(ref)
    assert alpha.bus.read_claim(ref.id).signature.refused
    beta = fleet.runner("beta")
    beta.bus.claim(beta.record(ref, "claimed", 0), held_claim.oid)
    assert alpha.bus.read_claim(ref.id).signature.word == "verified"


@pytest.mark.ci
def test_a_new_key_of_a_runner_counts_when_it_is_pinned_and_not_before(fleet) -> None:
    ref, pinned = ask(fleet), fleet.key("alpha")
    fleet.rotate("alpha")
    fleet.runner("alpha").claim(ref)
    assert (
        fleet.client(pinned).view(ref.id).ignored.runner == "alpha"
    )  # the bus record names the new key, as anybody can
    assert fleet.client(pinned, fleet.key("alpha")).view(ref.id).claim is not None


@pytest.mark.ci
def test_a_key_that_is_pinned_no_more_signs_for_nobody(fleet) -> None:
    ref, stolen = ask(fleet), fleet.key("alpha")
    thief = fleet.runner("alpha")
    thief.claim(ref)
    for left in fleet.state("alpha").iterdir():
        left.unlink()
    fresh = fleet.key("alpha")
    assert fleet.client(stolen).view(ref.id).claim is not None
    assert fleet.client(fresh).view(ref.id).ignored.runner == "alpha"
    beta = fleet.runner("beta", pin(fresh))
    assert beta.bus.read_claim(ref.id).signature.refused
