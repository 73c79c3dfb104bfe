"""A result whose signature was taken off verifies nowhere better than with it: not in a folder, not on a bus."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bridge import strictjson
from bridge.bus import open_bus
from bridge.bus.open.embedded import embedded_folder
from bridge.system.clock import SystemClock
from bridge.trust import runner_key as keys
from bridge.trust.attestation import ATTESTATION_FILE
from bridge.trust.claim_chain import read_chain, write_chain
from bridge.trust.keyring import pin
from tests.fakes.bus_actors import Actor
from tests.fakes.git_servers import git
from tests.integration.trust.test_verify import clone_of, failures, told, tree_of
from tests.support.runner_site import Site

CLOCK = SystemClock()
UNSIGNED, FIRST_USE, UNTRUSTED, ALTERED = 9, 10, 11, 12


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return a bus that signs with one run of its runner, whose result is signed."""
    folder = tmp_path_factory.mktemp("stripped")
    folder.chmod(0o700)
    place = Site(folder)
    assert place.run("keygen").code == 0
    place.run("once", "--bus", place.route, "--create-bus")
    ref = place.ask()
    assert place.run("once", "--bus", place.route).code == 1
    return place, ref


def sealed_anew(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return a result whose manifest describes its files and says that nobody signed it."""
    files = {path: data for path, data in files.items() if path != ATTESTATION_FILE}
    manifest = strictjson.decode(files.pop("manifest.json"), max_bytes=2**20)
    listed = [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(files.items())
    ]
    return {**files, "manifest.json": strictjson.encode({**manifest, "attestation": "none", "files": listed})}


def with_unsigned_claims(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return a result whose claims were written again without their signatures, and which says so throughout."""
    lines, oids = [], []
    for line in files["claims.jsonl"].splitlines():
        link = strictjson.decode(line, max_bytes=2**16)
        commit = link["commit"].encode("latin-1").split(b"\n\nKakeya-Seal")[0].rstrip(b"\n") + b"\n"
        if oids:
            before = next(part for part in commit.split(b"\n") if part.startswith(b"parent "))
            commit = commit.replace(before, b"parent " + oids[-1].encode(), 1)
        lines.append((commit, link["claim"].encode("latin-1")))
        oids.append(read_chain(write_chain(lines), hex_chars=40)[-1].oid)
    record = strictjson.decode(files["run.json"], max_bytes=2**20)
    record["claims"] = oids[: len(record["claims"])]
    return {**files, "claims.jsonl": write_chain(lines), "run.json": strictjson.encode(record)}


def written(folder: Path, files: dict[str, bytes]) -> str:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return str(folder)


def pinned(place: Site) -> tuple[str, str]:
    return "--runner-key", pin(keys.published(place.folder / "identity" / "mini")[-1])


def test_only_a_signature_by_a_pinned_key_ends_in_zero(ran, tmp_path) -> None:
    place, ref = ran
    signed = tree_of(place, ref)
    clone = clone_of(place, ref, tmp_path / "clone")
    results = {
        "signed": signed,
        "taken off": sealed_anew(signed),
        "claims too": sealed_anew(with_unsigned_claims(signed)),
    }
    folders = {name: written(tmp_path / name, files) for name, files in results.items()}
    codes = {name: told(clone, "verify", folder)[0] for name, folder in folders.items()}
    assert codes == {"signed": UNSIGNED, "taken off": ALTERED, "claims too": UNSIGNED}
    _, document = told(clone, "verify", folders["signed"])
    assert (document["data"]["signed"], document["outcome"]["reason"]) == (False, "unsigned")
    assert "which you have not pinned" in document["outcome"]["message"]
    _, document = told(clone, "verify", folders["taken off"])
    assert "carries no signature, and mini signed its claims: it was taken off" in failures(document)
    codes = {name: told(clone, "verify", folder, *pinned(place))[0] for name, folder in folders.items()}
    assert codes == {"signed": 0, "taken off": ALTERED, "claims too": UNTRUSTED}
    both = told(clone, "verify", folders["signed"], folders["claims too"])
    assert both[0] == UNSIGNED


def test_a_branch_and_a_bus_show_no_stripped_result_to_who_pins_nobody(ran, tmp_path) -> None:
    place, ref = ran
    remote = tmp_path / "bus.git"
    git("clone", "--quiet", "--mirror", place.route, str(remote))
    git("update-ref", "-d", f"refs/kakeya/start/{ref.id}", cwd=remote)
    bus = open_bus(f"file://{remote}", repository=None, state=tmp_path / "thief", clock=CLOCK)
    bus.update(bus.identity().evolve(attestation="none", keys=()))  # whoever can push can write that nobody signs
    thief = Actor(bus, CLOCK, "mini")
    tip = bus.read_claim(ref.id)
    held_claim = thief.start(ref, bus.claim(thief.record(ref, "claimed", 0), tip.oid))
    thief.publish(ref, held_claim, sealed_anew(tree_of(place, ref)), reason="gate_rejected", exit_code=1)
    words = ("--bus", f"file://{remote}")
    git("update-ref", "-d", "refs/kakeya/root", cwd=remote)  # with the root, the forged claims are nothing at all
    for command in (("wait", ref.id), ("fetch", ref.id)):
        code, document = told(tmp_path, *command, *words)
        assert code == ALTERED
        assert "mini signed its claims: it was taken off" in document["outcome"]["message"], command
    assert not list((tmp_path / ".data").rglob("verdict.json"))
    code, document = told(tmp_path, "verify", ref.id, *words)
    assert code == ALTERED
    assert "mini signed its claims" in failures(document)


def test_keys_of_this_machine_s_own_bus_make_a_result_from_elsewhere_no_worse(ran, tmp_path) -> None:
    place, ref = ran
    own = embedded_folder(tmp_path / ".data") / "runner"
    keys.generate(own, "embedded")
    folder = written(tmp_path / "signed", tree_of(place, ref))
    assert told(tmp_path, "verify", folder)[0] == UNSIGNED


def test_a_stripped_result_is_a_problem_to_the_gate_where_a_key_is_pinned(ran, tmp_path) -> None:
    place, ref = ran
    folder = written(tmp_path / "claims too", sealed_anew(with_unsigned_claims(tree_of(place, ref))))
    (judged,) = told(tmp_path, "gate", "check", folder, *pinned(place))[1]["data"]
    assert judged["problems"] == ["untrusted: not signed, and mini signs (--runner-key)"]
    (judged,) = told(tmp_path, "gate", "check", folder)[1]["data"]
    assert judged["problems"] == []


def test_a_runner_with_a_key_signs_whatever_the_bus_record_says(tmp_path) -> None:
    tmp_path.chmod(0o700)
    place = Site(tmp_path)
    place.create_bus()
    assert place.run("keygen").code == 0
    ref = place.ask()
    place.run("once", "--bus", place.route)
    assert place.requester().identity().attestation == "none"
    assert ATTESTATION_FILE in tree_of(place, ref)
    code, document = told(tmp_path, "verify", ref.id, "--bus", place.route, *pinned(place))
    assert (code, document["data"]["signed"]) == (0, True), document
