"""Real runners and the real commands on a remote where somebody forges claims: what runs and what is said."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.views import RequestRef
from bridge.cli.mac.program import Surroundings, main
from bridge.errors import FencedError
from bridge.system.clock import SystemClock
from bridge.trust import runner_key as keys
from bridge.trust.verifier import verify_tree
from tests.fakes.bus_actors import Actor
from tests.integration.trust.test_verify import told
from tests.support.runner_site import Site, site  # noqa: F401 (a fixture)

CLOCK = SystemClock()


def signing(site, **changes) -> Site:  # noqa: F811
    """Return a site whose runner has a key and whose bus names it."""
    place = site(**changes)
    assert place.run("keygen").code == 0
    place.create_bus()
    assert place.run("keygen", "--bus", place.route).code == 0
    return place


def public(place: Site) -> str:
    return keys.published(place.folder / "identity" / "mini")[-1].public


def forger(place: Site, name: str = "mini") -> Actor:
    """Return somebody who may push to the remote and has no key."""
    bus = open_bus(place.route, repository=None, state=place.folder / "forger", clock=CLOCK)
    return Actor(bus, CLOCK, name)


def home(place: Site) -> Path:
    """Return the folder of a requester who pins the runner's key."""
    folder = place.folder / "home"
    folder.mkdir(exist_ok=True)
    assert told(folder, "init", "--bus", place.route, "--runner-key", f"mini={public(place)}")[0] == 0
    return folder


def unsigned(folder: Path) -> str:
    """Return what is said there of something that the runner's pinned key has not signed."""
    return f"not signed, and mini signs ({folder / '.config' / 'config.toml'})"


def displace(liar: Actor, ref: RequestRef) -> bool:
    """Put a claim of the forger's own in place of what is there; whether it got in before the owner moved on."""
    try:
        liar.displace(ref, liar.bus.read_claim(ref.id).oid)
    except FencedError:
        return False
    return True


def test_a_request_that_a_forged_claim_would_starve_is_run_and_its_result_verifies(site) -> None:  # noqa: F811
    place = signing(site)
    ref = place.ask()
    liar = forger(place)
    liar.start(ref, liar.claim(ref))
    ran = place.run("once", "--bus", place.route)
    assert "taken over the head of a claim that its runner did not sign" in ran.stderr
    assert place.starts() == [ref.id]
    claim = place.ended(ref)
    assert (claim.runner, claim.reason) == ("mini", "gate_rejected")
    code, document = told(home(place), "verify", ref.id)
    assert (code, document["data"]["signed"]) == (0, True), document


@pytest.mark.ci
def test_what_is_ignored_is_said_by_status_and_doctor_and_missing_in_ls(site) -> None:  # noqa: F811
    place = signing(site)
    folder, ref = home(place), place.ask()
    liar = forger(place)
    liar.publish(ref, liar.start(ref, liar.claim(ref)))
    liar.bus.beacon(liar.beacon(5))
    assert told(folder, "ls")[1]["data"][0]["state"] == "queued"
    _, document = told(folder, "status", ref.id)
    assert (document["state"], document["terminal"]) == ("queued", False)
    out = io.StringIO()
    places = {"KAKEYA_DATA_DIR": str(folder / ".data"), "KAKEYA_CONFIG_DIR": str(folder / ".config")}
    assert main(["status", ref.id], Surroundings(out, io.StringIO(), places, folder, CLOCK, None)) == 0
    assert f"a claim in the name of mini: {unsigned(folder)}" in out.getvalue()
    _, document = told(folder, "doctor")
    forged = [finding["text"] for finding in document["data"] if finding["check"] == "forged"]
    assert len(forged) == 2, document["data"]
    assert any(f"claim/{ref.id} does not count" in text for text in forged)
    (absent,) = (finding for finding in document["data"] if finding["check"] == "runners")
    assert absent["text"] == "no runner counts: 1 not signed by a key that counts here"
    assert "compare the pinned key" in absent["remedy"]
    _, document = told(folder, "runners")
    assert document["data"] == []


@pytest.mark.ci
def test_a_request_for_an_older_runner_that_signs_nothing_says_so_and_what_to_do(site) -> None:  # noqa: F811
    place = signing(site)
    folder, ref = home(place), place.ask()
    older = forger(place)
    older.bus.beacon(older.beacon(5))
    older.claim(ref)
    out = io.StringIO()
    places = {"KAKEYA_DATA_DIR": str(folder / ".data"), "KAKEYA_CONFIG_DIR": str(folder / ".config")}
    code = main(["run", "mlx-env-probe"], Surroundings(io.StringIO(), out, places, folder, CLOCK, None))
    assert code == 3
    assert f"no runner on this bus counts: a beacon of mini does not count: {unsigned(folder)}" in out.getvalue()
    assert "upgrade kakeya" in out.getvalue()
    assert "kakeya-mac init --runner-key NAME=KEY" in out.getvalue()
    assert place.requester().snapshot().requests == (ref,)  # nothing was sent


@pytest.mark.ci
def test_a_forged_end_does_not_end_what_runs(site) -> None:  # noqa: F811
    place = signing(site, work="while [ ! -e $(dirname $0)/counted/go ]; do sleep 0.05; done")
    ref = place.ask()
    place.start("serve", "--bus", place.route)
    place.until(lambda: place.starts() == [ref.id], "never started")
    liar = forger(place, "mallory")
    place.until(lambda: displace(liar, ref), "the forger never got in")
    (place.folder / "counted" / "go").touch()
    claim = place.ended(ref)
    assert (claim.runner, claim.reason) == ("mini", "gate_rejected")
    assert place.starts() == [ref.id]


@pytest.mark.ci
def test_a_claim_displaced_while_its_runner_was_down_is_still_its_own_and_nothing_runs_twice(site) -> None:  # noqa: F811
    place = signing(site, work="while [ ! -e $(dirname $0)/counted/go ]; do sleep 0.05; done")
    ref = place.ask()
    process = place.start("serve", "--bus", place.route)
    place.until(lambda: (claim := place.claim(ref)) is not None and claim.state == "started", "never started")
    place.until(lambda: place.starts() == [ref.id], "never ran")
    process.kill()
    process.wait()
    liar = forger(place)
    # A push that the runner had on its way when it was killed may move the claim once more.
    place.until(lambda: displace(liar, ref), "the forger never got in")
    (place.folder / "counted" / "go").touch()
    place.run("once", "--bus", place.route)
    claim = place.ended(ref)
    assert (claim.runner, claim.reason) == ("mini", "gate_rejected")  # an empty report: the program ran to its end
    assert place.starts() == [ref.id]


@pytest.mark.ci
def test_the_claims_in_a_result_carry_their_signatures(site) -> None:  # noqa: F811
    place = signing(site)
    ref = place.ask()
    place.run("once", "--bus", place.route)
    files = dict(place.requester().read_result(place.ended(ref).result_oid).files)
    assert verify_tree(files, run_id=ref.id) == []
    lines = files["claims.jsonl"].splitlines()
    assert len(lines) >= 2
    assert all(b"Kakeya-Seal: mini " in line for line in lines)
