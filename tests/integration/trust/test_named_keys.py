"""Two runners whose keys are both pinned: what one of them signs in the other's name counts nowhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.views import RequestRef
from bridge.runner.connection.known_keys import KnownKeys
from bridge.system.clock import SystemClock
from bridge.trust import runner_key as keys
from tests.fakes.bus_actors import Actor
from tests.fakes.git_servers import git
from tests.integration.trust.test_verify import clone_of, failures, told
from tests.support.runner_site import Site

CLOCK = SystemClock()


@pytest.fixture
def place(tmp_path) -> Site:
    """Return a bus that signs, with a runner `hosta` and a runner `hostb`, each with a key of its own."""
    tmp_path.chmod(0o700)
    made = Site(tmp_path)
    made.create_bus()
    for name in ("hosta", "hostb"):
        assert made.run("keygen", "--bus", made.route, name=name).code == 0
    return made


def pins(place: Site) -> tuple[str, ...]:
    """Return both runners' keys as options."""
    public_keys = (keys.published(place.folder / "identity" / name)[0] for name in ("hosta", "hostb"))
    return tuple(word for key in public_keys for word in ("--runner-key", f"{key.name}={key.public}"))


def home(place: Site, *options: str) -> Path:
    """Return the folder of a requester with these pins."""
    folder = place.folder / "home"
    folder.mkdir()
    assert told(folder, "init", "--bus", place.route, *options)[0] == 0
    return folder


def stored(folder: Path) -> list[Path]:
    return list((folder / ".data").rglob("verdict.json"))


def actor(place: Site, name: str | None) -> Actor:
    """Return who writes claims with a runner's key, or with none, as whoever can push can."""
    bus = open_bus(place.route, repository=None, state=place.folder / f"actor-{name}", clock=CLOCK)
    if name is not None:
        bus.use_seals(KnownKeys(place.folder / "identity" / name, name).seals())
    return Actor(bus, CLOCK, name or "mallory")


def end_over(place: Site, who: Actor, ref: RequestRef) -> None:
    """Write a chain of claims over the one that is there, up to an end that names the result of the run."""
    tip = who.bus.read_claim(ref.id)
    git("update-ref", "-d", f"refs/kakeya/start/{ref.id}", cwd=place.folder / "bus.git")
    held_claim = who.start(ref, who.bus.claim(who.record(ref, "claimed", 0), tip.oid))
    result = tip.claim.result_oid
    who.bus.publish(held_claim, who.record(ref, "terminal", 2, reason="passed", exit_code=0, result_oid=result))


@pytest.mark.ci
def test_what_each_runner_signs_in_its_own_name_counts(place) -> None:
    folder = home(place, *pins(place))
    for name in ("hosta", "hostb"):
        ref = place.ask()
        place.run("once", "--bus", place.route, name=name)
        code, document = told(folder, "verify", ref.id)
        assert (code, document["data"]["signed"]) == (0, True), document
        (text,) = (check["text"] for check in document["data"]["checks"] if check["name"] == "signature")
        assert text.startswith(f"signed by {name}, key ")
        assert told(folder, "fetch", ref.id)[1]["where"]["runner"] == name


@pytest.mark.ci
def test_a_key_that_signs_in_another_runner_s_name_counts_nowhere(place, tmp_path) -> None:
    options = pins(place)
    folder = home(place, *options)
    policy = place.folder / "hostb.toml"
    policy.write_text(policy.read_text().replace('name = "hostb"', 'name = "hosta"'))
    own = place.folder / "identity" / "hosta"
    own.rename(tmp_path / "of-the-real-hosta")
    shutil.copytree(place.folder / "identity" / "hostb", own)
    ref = place.ask()
    place.run("once", "--bus", place.route, name="hostb")
    assert place.claim(ref).runner == "hosta"
    named = [(key.name, key.public) for key in place.requester().identity().keys]
    assert ("hosta", keys.published(place.folder / "identity" / "hostb")[0].public) in named  # the bus says so too

    clone = clone_of(place, ref, tmp_path / "clone")
    branch = f"origin/{ref.ref.removeprefix('refs/heads/')}"
    code, document = told(clone, "verify", branch, *options)
    assert (code, document["data"]["answer"]) == (11, "untrusted"), document
    assert "signed in the name of hosta with the key " in failures(document)
    assert told(folder, "wait", ref.id, "--wait-timeout", "1")[0] == 8
    for words in (("verify", ref.id), ("fetch", ref.id)):
        code, document = told(folder, *words)
        assert code not in {0, 4}, (words, document)
    assert stored(folder) == []


def test_a_claim_by_one_runner_on_the_result_of_another_is_refused(place) -> None:
    folder = home(place, *pins(place))
    ref = place.ask()
    place.run("once", "--bus", place.route, name="hosta")
    end_over(place, actor(place, "hostb"), ref)
    for words in (("wait", ref.id, "--wait-timeout", "5"), ("fetch", ref.id)):
        code, document = told(folder, *words)
        assert code == 11, (words, document)
        assert "signed by hosta, and the claim of this run is hostb's" in document["outcome"]["message"]
    assert "signed by hosta, and the claim of this run is hostb's" in failures(told(folder, "verify", ref.id)[1])
    assert stored(folder) == []


@pytest.mark.ci
@pytest.mark.parametrize("pinned", [True, False])
def test_an_unsigned_end_displaces_no_signed_chain(place, pinned) -> None:
    folder = home(place, *(pins(place) if pinned else ()))
    ref = place.ask()
    hosta, forger = actor(place, "hosta"), actor(place, None)
    hosta.start(ref, hosta.claim(ref))
    forger.take_over(ref, forger.bus.read_claim(ref.id), "terminal", reason="runner_lost", exit_code=3)
    assert told(folder, "status", ref.id)[1]["terminal"] is False
    assert told(folder, "wait", ref.id, "--wait-timeout", "1")[0] == 8


@pytest.mark.ci
def test_an_unsigned_end_does_not_borrow_the_signature_of_a_result(place) -> None:
    folder = home(place, *pins(place))
    ref = place.ask()
    place.run("once", "--bus", place.route, name="hosta")
    end_over(place, actor(place, None), ref)
    _, document = told(folder, "status", ref.id)
    assert (document["state"], document["terminal"]) == ("queued", False), document
    assert told(folder, "fetch", ref.id)[0] not in {0, 1}
    assert stored(folder) == []


@pytest.mark.ci
def test_a_key_without_a_name_is_pinned_nowhere(place) -> None:
    folder = place.folder / "home"
    folder.mkdir()
    bare = keys.published(place.folder / "identity" / "hosta")[0].public
    for words in (("init",), ("verify", "x")):
        code, document = told(folder, *words, "--bus", place.route, "--runner-key", bare)
        assert code == 2
        assert "expected NAME=KEY, a runner's name and its key" in document["outcome"]["message"]
