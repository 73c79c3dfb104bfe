"""A bus with an owner, over real git: set up, asked, attacked, its keys retired, revoked, rotated and lost."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import MINIMUM_CLIENT
from bridge.bus.refbus import RefBus
from bridge.bus.refs import names
from bridge.bus.store.gather import WorkBudget
from bridge.runner.connection.known_keys import KnownKeys
from bridge.system.clock import SystemClock
from bridge.trust import runner_key
from bridge.trust.root import TrustRoot, read_root, write_root
from bridge.trust.signing_key import make_key, open_key
from tests.fakes import ssh_keys
from tests.fakes.bus_actors import FakeClock
from tests.fakes.git_servers import git
from tests.integration.trust.test_verify import told
from tests.support.runner_site import Ran, Site

pytestmark = pytest.mark.ci

CLOCK = SystemClock()
ROOT, BUS = names.root_ref(names.DEFAULT_PREFIX), names.bus_ref(names.DEFAULT_PREFIX)
VERIFIED, FIRST_USE, UNTRUSTED = 0, 10, 11


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a bus that was set up with one runner, whose owner's key lies in a folder of its own."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("KAKEYA_OWNER_DIR", str(tmp_path / "owner"))
    made = Site(tmp_path)
    assert made.run("keygen").code == 0
    assert made.run("once", "--bus", made.route, "--create-bus").code == 0
    return made


def trust(place: Site, *words: str) -> Ran:
    return place.run("trust", *words, "--bus", place.route)


def owner(place: Site) -> str:
    return str(json.loads(trust(place, "show", "--json").stdout)["owner"])


def ran(place: Site, name: str = "mini") -> str:
    ref = place.ask()
    place.run("once", "--bus", place.route, name=name)
    return ref.id


def reader(place: Site, name: str, *options: str) -> Path:
    folder = place.folder / name
    folder.mkdir()
    code, document = told(folder, "init", "--bus", place.route, *options)
    assert code == 0, document
    return folder


def answer(folder: Path, *words: str) -> tuple[int, str | None]:
    code, document = told(folder, *words)
    verdict = document.get("answer") or (document.get("data") or {}).get("answer")
    return code, verdict["word"] if isinstance(verdict, dict) else verdict


def test_a_team_of_one_types_two_commands_and_everybody_gets_one_answer(place: Site) -> None:
    key = place.folder / "owner" / f"{place.requester().identity().bus_id}.key"
    assert key.stat().st_mode & 0o777 == 0o600
    run_id = ran(place)
    pinned, first = reader(place, "pinned", "--root-key", owner(place)), reader(place, "first")
    assert answer(pinned, "verify", run_id) == (VERIFIED, "verified")
    assert answer(first, "verify", run_id) == (FIRST_USE, "first use")
    for folder, word in ((pinned, "verified"), (first, "first use")):
        for words in (("wait", run_id), ("fetch", run_id), ("status", run_id)):
            code, actual = answer(folder, *words)
            assert (actual, code in {0, 1}) == (word, True), words  # an empty report: the gate's own code stays
        assert answer(folder, "verify", run_id)[1] == word
    text = told(first, "verify", run_id)[1]["outcome"]["message"]
    assert text.startswith("first use: signed by mini")
    assert owner(place) in text


def test_whoever_can_push_stops_and_misleads_nobody_who_knows_the_root(place: Site) -> None:
    run_id, folder, remote = ran(place), reader(place, "pinned", "--root-key", owner(place)), place.folder / "bus.git"
    honest = git("rev-parse", ROOT, cwd=remote).strip()
    forged = write_root(read_root_of(place).content, make_key(place.folder / "stranger"), CLOCK.now())
    assert stranger_bus(place).write_root(forged, honest)
    assert answer(folder, "verify", run_id) == (VERIFIED, "verified")
    stranger = place.requester()
    stranger.update(stranger.identity().evolve(minimum_client="99", attestation="none", keys=()))
    assert answer(folder, "verify", run_id) == (VERIFIED, "verified")
    place.run("once", "--bus", place.route)  # the runner goes on, and puts the root back
    assert read_root_of(place).owner == owner(place)
    git("update-ref", "-d", ROOT, cwd=remote)
    git("update-ref", "-d", BUS, cwd=remote)
    assert answer(folder, "status", run_id)[1] == "verified"


def stranger_bus(place: Site) -> RefBus:
    return open_bus(place.route, repository=None, state=place.folder / "a-stranger", clock=FakeClock())


def read_root_of(place: Site) -> TrustRoot:
    remote = place.folder / "bus.git"
    listed = git("ls-tree", ROOT, cwd=remote).splitlines()
    blobs = {line.split("\t")[1]: line.split()[2] for line in listed}
    return read_root({
        name: subprocess.run(["git", "cat-file", "blob", oid], cwd=remote, capture_output=True, check=True).stdout
        for name, oid in blobs.items()
    })  # fmt: skip


@pytest.mark.slow
def test_what_the_owner_adds_retires_and_revokes_counts_at_once(place: Site) -> None:
    folder = reader(place, "pinned", "--root-key", owner(place))
    assert place.run("keygen", name="hostb").code == 0
    new = runner_key.published(place.folder / "identity" / "hostb")[-1]
    early = ran(place, "hostb")
    assert answer(folder, "verify", early)[0] in {2, UNTRUSTED}  # its claim counts for nobody yet
    assert trust(place, "add", f"hostb={new.public}").code == 0
    late, mine = ran(place, "hostb"), ran(place)
    assert answer(folder, "verify", late) == (VERIFIED, "verified")
    assert trust(place, "retire", "hostb").code == 0
    assert answer(folder, "verify", late) == (VERIFIED, "verified")
    assert told(folder, "fetch", late)[0] == 0
    assert trust(place, "revoke", "hostb").code == 0
    assert answer(folder, "verify", late) == (UNTRUSTED, "untrusted")
    for words in (("fetch", late), ("status", late), ("quote", late)):
        assert told(folder, *words)[0] == UNTRUSTED, words  # also what is stored here already
    findings = {finding["check"]: finding for finding in told(folder, "doctor")[1]["data"]}
    assert "in the name of hostb" in findings["revoked"]["text"], findings
    assert "forged" not in findings
    message = told(folder, "retry", late, "--queue")[1]["outcome"]["message"]
    assert "still" not in message, message  # what ended and counts no more may be asked again, by who has its preset
    assert answer(folder, "verify", mine) == (VERIFIED, "verified")


@pytest.mark.parametrize("verb", ["retire", "revoke"])
def test_a_key_is_ended_by_its_name_its_text_its_file_and_as_it_is_pinned(place: Site, verb: str) -> None:
    people = {name: ssh_keys.make_key(place.folder, name) for name in ("ann", "bob", "eve")}
    for name, key in people.items():
        assert trust(place, "add", key.public, "--principal", name).code == 0
    assert place.run("keygen", name="hostb").code == 0
    hostb = runner_key.published(place.folder / "identity" / "hostb")[-1]
    assert trust(place, "add", f"hostb={hostb.public}").code == 0
    ways = [
        [str(people["ann"].path.with_suffix(".pub"))], people["bob"].public.split(), [people["eve"].fingerprint],
        [f"hostb={hostb.public}"],
    ]  # fmt: skip
    for words in ways:
        done = trust(place, verb, *words)
        assert done.code == 0, done.stderr
    shown = json.loads(trust(place, "show", "--json").stdout)
    if verb == "revoke":
        assert set(shown["revoked"]) == {hostb.public, *(key.fingerprint for key in people.values())}
    else:
        assert all("valid-before" in line for line in shown["signers"])
        assert [runner["until"] is None for runner in shown["runners"] if runner["name"] == "hostb"] == [False]
    missing = trust(place, verb, "nobody")
    assert (missing.code, "called nobody" in missing.stderr) == (2, True)


def test_the_command_that_uses_a_ticket_can_be_pasted_where_its_path_has_spaces(place: Site) -> None:
    file = place.folder / "Application Support" / "ci.ticket"
    file.parent.mkdir()
    done = trust(place, "ticket", "ci-1", "--for", "1h", "--out", str(file))
    assert done.code == 0, done.stderr
    (command,) = [line.partition("kakeya-runner ")[2] for line in done.stderr.splitlines() if "--ephemeral" in line]
    assert shlex.split(command) == ["once", "--ephemeral", "--ticket", str(file)]


def test_a_key_of_the_bus_is_revoked_whatever_the_policy_of_the_owners_own_runner_says(place: Site) -> None:
    policy = place.folder / "mini.toml"
    policy.write_text(f"{policy.read_text()}colour = 'red'\n")
    key = ssh_keys.make_key(place.folder, "dev")
    assert trust(place, "add", key.public, "--principal", "dev").code == 2
    done = trust(place, "revoke", "mini")
    assert done.code == 0, done.stderr
    policy.write_text(policy.read_text().replace("colour = 'red'\n", ""))
    assert json.loads(trust(place, "show", "--json").stdout)["revoked"]


def test_a_reader_who_was_away_follows_rotations_and_a_lost_key_has_a_way_back(place: Site) -> None:
    run_id, first_owner = ran(place), owner(place)
    folder, away = (reader(place, name, "--root-key", first_owner) for name in ("folder", "away"))
    for _ in range(3):
        assert trust(place, "rotate").code == 0
    assert owner(place) != first_owner
    assert answer(away, "verify", run_id) == (VERIFIED, "verified")
    assert answer(reader(place, "late", "--root-key", owner(place)), "verify", run_id)[0] == VERIFIED
    (place.folder / "owner" / f"{place.requester().identity().bus_id}.key").unlink()
    dev = ssh_keys.make_key(place.folder, "dev")
    for words in (("rotate",), ("add", str(dev.path.with_suffix(".pub")), "--principal", "dev")):
        lost = trust(place, *words)
        assert (lost.code, "whose key this account does not hold" in lost.stderr) == (2, True), words
    assert not (place.folder / "allowed_signers").exists()  # who named the bus did not mean this host's own list
    assert trust(place, "init").code == 2
    assert trust(place, "init", "--new-owner").code == 0
    told_new = owner(place)
    assert answer(folder, "verify", run_id) == (VERIFIED, "verified")  # it goes on with the root that it knows
    code, document = told(folder, "init", "--bus", place.route, "--root-key", told_new)
    assert (code, "--new-owner" in document["outcome"]["remedy"]) == (2, True)
    assert told(folder, "init", "--bus", place.route, "--root-key", told_new, "--new-owner")[0] == 0
    assert answer(folder, "verify", run_id) == (VERIFIED, "verified")


def test_a_stolen_runner_account_cannot_sign_a_root(place: Site) -> None:
    """The daemon's user reads no owner's key, and the runner's own key is no owner's."""
    key = next((place.folder / "owner").glob("*.key"))
    if os.geteuid() == 0:
        code = f"import os; os.setgid(65533); os.setuid(65533); open({str(key)!r}).read()"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode != 0
    stolen = runner_key.signing_key(place.folder / "identity" / "mini")
    before = read_root_of(place)
    files = {**dict(before.files), **write_root(before.content, stolen, CLOCK.now())}
    run_id, folder = ran(place), reader(place, "pinned", "--root-key", owner(place))
    assert stranger_bus(place).write_root(files, git("rev-parse", ROOT, cwd=place.folder / "bus.git").strip())
    assert answer(folder, "verify", run_id) == (VERIFIED, "verified")


def test_expiry_alone_stops_nothing(place: Site, tmp_path: Path) -> None:
    run_id, before = ran(place), read_root_of(place)
    folder = reader(place, "pinned", "--root-key", before.owner)
    own = tmp_path / "owner" / f"{before.bus_id}.key"
    old = CLOCK.now().replace(year=CLOCK.now().year - 11)
    expired = write_root(before.content, open_key(own), old)  # a first root of eleven years ago
    git("update-ref", "-d", ROOT, cwd=tmp_path / "bus.git")
    assert stranger_bus(place).write_root(expired, None)
    assert answer(folder, "verify", run_id) == (VERIFIED, "verified")
    fresh = reader(place, "fresh", "--root-key", before.owner)
    assert answer(fresh, "verify", run_id) == (VERIFIED, "verified")


def test_an_older_bus_is_refused_by_name_with_the_command_that_makes_a_new_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    place = Site(tmp_path)
    place.create_bus()
    remote = tmp_path / "bus.git"
    old = json.loads(git("show", f"{BUS}:bus.json", cwd=remote)) | {"schema_version": 1}
    (tmp_path / "bus.json").write_text(json.dumps(old))
    blob = git("hash-object", "-w", str(tmp_path / "bus.json"), cwd=remote).strip()
    subject = subprocess.run(["git", "mktree"], input=f"100644 blob {blob}\tbus.json\n", cwd=remote, text=True,
                             capture_output=True, check=True).stdout.strip()  # fmt: skip
    git("update-ref", BUS, git("commit-tree", subject, "-m", "bus", cwd=remote).strip(), cwd=remote)
    code, document = told(tmp_path, "ls", "--bus", place.route)
    assert (code, "protocol 1" in document["outcome"]["message"]) == (3, True)
    assert "setup --bus ROUTE --create-bus" in document["outcome"]["remedy"]
    git("push", str(remote), f":{BUS}", cwd=remote)  # as the remedy says
    assert place.run("once", "--bus", place.route, "--create-bus").code == 0
    assert told(tmp_path, "ls", "--bus", place.route)[0] == 0
    assert place.requester().identity().minimum_client == MINIMUM_CLIENT


@pytest.mark.slow
@pytest.mark.parametrize("days", [60, 20])
def test_a_run_counts_on_where_another_runner_archived_it_before_its_key_was_revoked(place: Site, days: int) -> None:
    """The other runner archives it in 40 days, and the owner revokes the key after or before that."""
    assert place.run("keygen", name="hostb").code == 0
    hostb = runner_key.published(place.folder / "identity" / "hostb")[-1].public
    assert trust(place, "add", f"hostb={hostb}").code == 0
    folder, other = (reader(place, name, "--root-key", owner(place)) for name in ("pinned", "other"))
    run_id = ran(place, "hostb")
    assert told(folder, "fetch", run_id)[0] in {0, 1}
    archive_as_mini(place, run_id)
    root = read_root_of(place)
    (key,) = (path for path in (place.folder / "owner").iterdir() if path.suffix == ".key")
    at = CLOCK.now().timestamp() + days * 86400
    files = write_root(dataclasses.replace(root.content, revoked={hostb: at}), open_key(key), CLOCK.now(), root)
    assert stranger_bus(place).write_root(files, git("rev-parse", ROOT, cwd=place.folder / "bus.git").strip())
    for home in (folder, other):  # the one holds the result, the other has to fetch it; both meet the revocation
        expected = (VERIFIED, "verified") if days == 60 else (UNTRUSTED, "untrusted")
        assert answer(home, "verify", run_id) == expected
        for word in ("status", "fetch", "quote"):
            code, document = told(home, word, run_id)
            assert (code == UNTRUSTED) == (days == 20), (word, document)


def archive_as_mini(place: Site, run_id: str) -> None:
    """Have `mini` archive in 40 days what `hostb` ended, and delete the refs that this makes needless."""
    remote = place.folder / "bus.git"
    later = FakeClock(CLOCK.now() + dt.timedelta(days=40))
    bus = open_bus(place.route, repository=None, state=place.folder / "archivist", clock=later)
    bus.use_seals(KnownKeys(place.folder / "identity" / "mini", "mini").seals())
    git("update-ref", "-d", names.beacon_ref(names.DEFAULT_PREFIX, "hostb"), cwd=remote)
    done = list(bus.archive("mini", budget=WorkBudget(50), drop_after_s=86400.0))
    assert any("/archive/" in ref for ref in done)
    assert run_id not in git("for-each-ref", cwd=remote)
