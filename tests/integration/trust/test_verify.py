"""`kakeya-mac verify` on results that a real runner signed: from a plain clone, byte by byte, run by run."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

from bridge.bus.open.embedded import embedded_folder
from bridge.bus.tree import Tree
from bridge.cli.mac.program import Surroundings, main
from bridge.client.clone.config import discover
from bridge.client.connection.pins import Pins, answer_about, pins
from bridge.client.evidence.verify import verify
from bridge.records.bus import KeyRecord
from bridge.system.clock import SystemClock
from bridge.trust import runner_key as keys
from bridge.trust.attestation import ATTESTATION_FILE
from bridge.trust.judgement import KeyAuthority, NamedKey
from bridge.trust.keyring import PUBLIC_FILE, decode, pin
from tests.fakes.git_servers import git
from tests.support.runner_site import Site, site  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """Three signed results of one runner on one bus."""
    folder = tmp_path_factory.mktemp("signed")
    folder.chmod(0o700)
    place = Site(folder)
    assert place.run("keygen").code == 0
    refs = []
    for number in range(3):
        if number == 0:
            place.run("once", "--bus", place.route, "--create-bus")
        refs.append(place.ask())
        assert place.run("once", "--bus", place.route).code == 1  # an empty report: the gate said no, the run is whole
    return place, refs


def tree_of(place, ref) -> dict[str, bytes]:
    bus = place.requester()
    return dict(bus.read_result(bus.view(ref.id).claim.claim.result_oid).files)


def trusted(place) -> Pins:
    return going_by(*decode((place.folder / "identity" / "mini" / PUBLIC_FILE).read_bytes()))


def going_by(*records: KeyRecord) -> Pins:
    return Pins(KeyAuthority(tuple(NamedKey(record.name, record.public) for record in records), where="a test"))


def pinned(place) -> str:
    return trusted(place).texts[-1]


def told(folder, *words, home=None):
    """Run the command in a folder; return (exit code, document)."""
    out, err = io.StringIO(), io.StringIO()
    home = home or folder
    environment = {"KAKEYA_DATA_DIR": str(home / ".data"), "KAKEYA_CONFIG_DIR": str(home / ".config")}
    code = main([*words, "--json"], Surroundings(out, err, environment, folder, SystemClock(), None))
    return code, json.loads(out.getvalue())


def failures(document) -> str:
    return "; ".join(f"{check['name']}: {check['text']}" for check in document["data"]["checks"] if not check["ok"])


def notes(document) -> str:
    return "; ".join(f"{check['name']}: {check['text']}" for check in document["data"]["checks"])


def clone_of(place, ref, folder) -> Path:
    branch = ref.ref.removeprefix("refs/heads/")
    git("clone", "--quiet", "--single-branch", "--branch", branch, place.route, str(folder))
    return folder


def test_a_plain_clone_of_the_request_branch_is_enough(signed, tmp_path) -> None:
    place, refs = signed
    clone = clone_of(place, refs[0], tmp_path / "clone")
    git("remote", "set-url", "origin", "file:///nowhere", cwd=clone)
    for what in (refs[0].id, refs[0].id[-8:], f"origin/{refs[0].ref.removeprefix('refs/heads/')}"):
        code, document = told(clone, "verify", what, "--runner-key", pinned(place), "--bus", "origin")
        assert (code, document["data"]["signed"], document["data"]["id"]) == (0, True, refs[0].id), document
    code, document = told(clone, "verify", refs[0].id, "--bus", "origin")
    assert (code, document["data"]["signed"]) == (9, False)
    assert "which you have not pinned" in document["outcome"]["message"]


def test_keys_come_from_the_default_branch_and_never_from_a_work_tree(signed, tmp_path) -> None:
    place, refs = signed
    clone = clone_of(place, refs[0], tmp_path / "clone")
    branch = f"origin/{refs[0].ref.removeprefix('refs/heads/')}"
    text = f'schema = 1\nroute = "origin"\nrunner_keys = ["{pinned(place)}"]\n'
    (clone / "kakeya.toml").write_text(text)
    code, document = told(clone, "verify", branch)
    assert (code, document["data"]["signed"]) == (9, False)
    who = {f"GIT_{role}_{part}": "x" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    git("checkout", "--quiet", "--orphan", "main", cwd=clone)
    git("add", "kakeya.toml", cwd=clone)
    git("commit", "--quiet", "-m", "pin", cwd=clone, env=who)
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=clone)
    git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main", cwd=clone)
    (clone / "kakeya.toml").write_text("schema = 1\n")
    code, document = told(clone, "verify", branch)
    assert (code, document["data"]["signed"]) == (0, True), document


def test_the_default_branch_of_a_stranger_s_remote_pins_nothing(signed, tmp_path) -> None:
    place, refs = signed
    clone = clone_of(place, refs[0], tmp_path / "clone")
    branch = f"origin/{refs[0].ref.removeprefix('refs/heads/')}"
    git("checkout", "--quiet", "--orphan", "theirs", cwd=clone)
    (clone / "kakeya.toml").write_text(f'schema = 1\nroute = "a-fork"\nrunner_keys = ["{pinned(place)}"]\n')
    who = {f"GIT_{role}_{part}": "x" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    git("add", "kakeya.toml", cwd=clone)
    git("commit", "--quiet", "-m", "pin", cwd=clone, env=who)
    git("remote", "add", "a-fork", str(tmp_path / "fork.git"), cwd=clone)
    git("update-ref", "refs/remotes/a-fork/main", "HEAD", cwd=clone)
    git("symbolic-ref", "refs/remotes/a-fork/HEAD", "refs/remotes/a-fork/main", cwd=clone)
    code, document = told(clone, "verify", branch)
    assert (code, document["data"]["signed"]) == (9, False), document


def some_of(size: int, most: int | None) -> range:
    """Return places from first to last, about so many, all where `most` is None.

    The step is odd: it has no factor in common with the eight bits of a byte, so that each of them is met.
    """
    return range(0, size, 1 if most is None else max(1, size // most) | 1)


@pytest.mark.parametrize("most", [pytest.param(None, marks=pytest.mark.slow, id="each"), pytest.param(40, id="some")])
def test_any_changed_byte_of_any_file_is_refused(signed, most) -> None:
    place, refs = signed
    files, pins = tree_of(place, refs[0]), trusted(place)
    assert answer_about(files, pins).word == "verified"
    for path, data in files.items():
        for index in some_of(len(data), most):
            damaged = data[:index] + bytes([data[index] ^ (1 << index % 8)]) + data[index + 1 :]
            answer = answer_about({**files, path: damaged}, pins)
            assert answer.refused, f"{path} byte {index}"


@pytest.mark.parametrize("most", [pytest.param(None, marks=pytest.mark.slow, id="each"), pytest.param(200, id="some")])
def test_every_bit_of_the_envelope_counts(signed, most) -> None:
    place, refs = signed
    files, pins = tree_of(place, refs[0]), trusted(place)
    data = files[ATTESTATION_FILE]
    for place in some_of(8 * len(data), most):
        index, bit = divmod(place, 8)
        damaged = data[:index] + bytes([data[index] ^ (1 << bit)]) + data[index + 1 :]
        assert answer_about({**files, ATTESTATION_FILE: damaged}, pins).refused, (index, bit)


def test_a_dropped_or_added_file_is_refused(signed) -> None:
    place, refs = signed
    files, pins = tree_of(place, refs[0]), trusted(place)
    for path in files:
        left = {name: data for name, data in files.items() if name != path}
        assert not verify(Tree(left), pins, source="test").ok, path
    for path in ("extra.txt", "reports/extra.json", "request.json.sig", ".mac-bridge"):
        assert not verify(Tree({**files, path: b""}), pins, source="test").ok, path


def test_an_attestation_of_another_run_is_refused(signed) -> None:
    place, refs = signed
    files, other = tree_of(place, refs[0]), tree_of(place, refs[1])
    swapped = {**files, ATTESTATION_FILE: other[ATTESTATION_FILE]}
    assert "attested was" in answer_about(swapped, trusted(place)).why


def test_an_unknown_key_is_refused(signed, tmp_path) -> None:
    place, refs = signed
    stranger = keys.generate(tmp_path, "mini")
    verdict = answer_about(tree_of(place, refs[0]), going_by(stranger))
    assert verdict.word == "untrusted"
    assert "not signed for this place by mini" in verdict.why


def test_a_result_resealed_without_its_signature_is_refused_where_one_is_required(signed) -> None:
    place, refs = signed
    files = tree_of(place, refs[0])
    del files[ATTESTATION_FILE]
    manifest = json.loads(files["manifest.json"])
    files["manifest.json"] = json.dumps(
        {**manifest, "attestation": "none"}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()
    verification = verify(Tree(files), trusted(place), source="test")
    assert verification.answer.word == "altered"
    unpinned = verify(Tree(files), Pins(), source="test")
    assert (unpinned.answer.word, unpinned.exit_code) == ("altered", 12)
    assert "mini signed its claims: it was taken off" in unpinned.answer.why


@pytest.mark.ci
def test_an_omitted_run_shows_when_several_are_given_and_when_the_bus_is_there(signed, tmp_path) -> None:
    place, refs = signed
    folders = []
    for number, ref in enumerate(refs):
        folder = tmp_path / f"result-{number}"
        for path, data in tree_of(place, ref).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        folders.append(str(folder))
    key = ("--runner-key", pinned(place))
    assert told(tmp_path, "verify", *folders, *key)[0] == 0
    code, document = told(tmp_path, "verify", folders[0], folders[2], *key)
    assert code == 0
    assert f"not shown: 2 of mini (before 3 came run {refs[1].id[-8:]})" in notes(document)

    bus = tmp_path / "bus.git"
    shutil.copytree(place.folder / "bus.git", bus)
    code, document = told(tmp_path, "verify", refs[2].id, *key, "--bus", str(bus))
    assert code == 0, document
    git("update-ref", "-d", f"refs/kakeya/claim/{refs[1].id}", cwd=bus)
    git("update-ref", "-d", refs[1].ref, cwd=bus)
    code, document = told(tmp_path, "verify", refs[2].id, *key, "--bus", str(bus))
    assert code == 0
    assert "not shown: 2 of mini" in notes(document)
    git("update-ref", "-d", f"refs/kakeya/claim/{refs[0].id}", cwd=bus)  # the oldest go first, which is no omission
    assert told(tmp_path, "verify", refs[2].id, *key, "--bus", str(bus))[0] == 0


def test_a_bus_without_keys_ends_in_unsigned_and_says_so(tmp_path) -> None:
    tmp_path.chmod(0o700)
    place = Site(tmp_path)
    made = place.run("once", "--bus", place.route, "--create-bus")
    assert "unsigned" in made.stderr
    ref = place.ask()
    place.run("once", "--bus", place.route)
    code, document = told(tmp_path, "verify", ref.id, "--bus", place.route)
    assert (code, document["data"]["signed"]) == (9, False)
    assert "unsigned bus: carries no signature" in document["outcome"]["message"]


@pytest.mark.ci
def test_an_unsigned_result_on_a_bus_whose_record_says_signed_is_refused_and_not_stored(tmp_path) -> None:
    tmp_path.chmod(0o700)
    place = Site(tmp_path)
    place.run("once", "--bus", place.route, "--create-bus")
    ref = place.ask()
    place.run("once", "--bus", place.route)
    assert place.run("keygen").code == 0
    assert place.run("keygen").code == 2  # there is one, and nobody asked to rotate it
    assert place.run("keygen", "--bus", place.route).code == 0
    code, document = told(tmp_path, "verify", ref.id, "--bus", place.route)
    assert code == 12
    assert "carries no signature, and this bus says that its results are signed" in failures(document)
    code, document = told(tmp_path, "fetch", ref.id, "--bus", place.route)
    assert code == 12
    assert "is altered: carries no signature" in document["outcome"]["message"]
    assert not list((tmp_path / ".data").rglob("verdict.json"))


def test_the_gate_judges_a_folder_as_its_host_did_only_with_a_signature_by_a_pinned_key(signed, tmp_path) -> None:
    place, refs = signed
    for path, data in tree_of(place, refs[0]).items():
        (tmp_path / "result" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "result" / path).write_bytes(data)

    def codes(*words):
        judged = told(tmp_path, "gate", "check", str(tmp_path / "result"), *words)[1]["data"][0]
        return {finding["code"] for finding in judged["verdict"]["findings"]}, judged["problems"]

    assert "G2-AUTHORITY" in codes()[0]
    assert "G2-AUTHORITY" not in codes("--runner-key", pinned(place))[0]
    log = tmp_path / "result" / "log.txt"
    honest = log.read_bytes()
    log.write_bytes(honest + b"more")
    finding_codes, problems = codes("--runner-key", pinned(place))
    assert "G2-AUTHORITY" in finding_codes
    assert problems
    log.write_bytes(honest)
    stranger = pin(keys.generate(tmp_path / "stranger", "mini"))
    assert any("not signed for this place" in problem for problem in codes("--runner-key", stranger)[1])


def test_a_key_pinned_for_a_bus_does_not_judge_the_embedded_one(signed, tmp_path) -> None:
    place, _ = signed
    folder = tmp_path / "clone"
    git("init", "--quiet", str(folder))
    (folder / ".git" / "kakeya.toml").write_text(f'schema = 1\nroute = "a"\nrunner_keys = ["{pinned(place)}"]\n')
    environment = {"KAKEYA_DATA_DIR": str(tmp_path / "data"), "KAKEYA_CONFIG_DIR": str(tmp_path / "config")}
    settings = discover(folder, environment, "embedded")
    runner = embedded_folder(settings.data_dir) / "runner"
    runner.mkdir(parents=True)
    own = keys.generate(runner, "vm")
    record = place.requester().identity()
    own_pins = pins(settings, record=record.model_copy(update={"keys": (own,)}))
    assert ([key.key for key in own_pins.authority.keys], own_pins.authority.closed) == ([own.public], True)
    elsewhere = pins(discover(folder, environment), record=record)
    assert list(elsewhere.texts) == [pinned(place)]
    option = pins(settings, option=(pinned(place),), record=record)
    assert list(option.texts) == [pinned(place)]


def test_a_branch_that_is_not_there_is_named_with_the_fetch_that_brings_it(tmp_path) -> None:
    git("init", "--quiet", str(tmp_path))
    git("remote", "add", "hub", "/nowhere", cwd=tmp_path)
    _, document = told(tmp_path, "verify", "hub/mac-bridge/x-1")
    assert document["outcome"]["remedy"] == ("git fetch hub 'refs/heads/mac-bridge/*:refs/remotes/hub/mac-bridge/*'")
