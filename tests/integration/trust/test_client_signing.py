"""The requester's side of signing: keys found, made, kept by an agent, or unusable; nothing is ever asked."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from bridge.client.clone.config import discover
from bridge.errors import UsageError
from bridge.records.bus import SIGNED_REQUESTS
from bridge.request import parse, request_branch
from bridge.request.branches import DEFAULT_TEMPLATE
from bridge.trust.ssh_signatures import made_with, sign
from tests.fakes.git_servers import git
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost
from tests.fakes.ssh_keys import WHO, make_key, push_signed, signed_request
from tests.support import guarded
from tests.support.waiting import until


@pytest.fixture
def requester(tmp_path: Path) -> Requester:
    made = Requester(tmp_path, environment={"HOME": str(tmp_path / "home")})
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    ScriptedHost(made.bus, made.clock).beat()
    return made


def received(requester: Requester, run_id: str):
    return requester.bus.read_request(requester.bus.view(run_id).request)


def init(requester: Requester, *words: str):
    ran = requester.run("init", "--bus", "memory", "--principal", WHO, *words, "--json")
    assert ran.code == 0, ran.err
    return ran.document["data"]


def sent_id(requester: Requester, *words: str) -> str:
    ran = requester.run("run", "mlx-env-probe", *words)
    assert ran.code == 0, ran.err
    return ran.out.strip()


def test_a_signed_request_carries_the_very_bytes_that_were_signed(requester, tmp_path):
    key = make_key(tmp_path, "mine")
    data = init(requester, "--signing-key", str(key.path))
    assert (data["signer"], data["public_key"]) == (key.fingerprint, key.public)
    received_request = received(requester, sent_id(requester))
    assert made_with(received_request.data, received_request.signature) == key.fingerprint
    request = parse(
        received_request.data,
        ref=received_request.ref.ref,
        bus_id=requester.bus.identity().bus_id,
        now=requester.clock.now(),
    )
    assert (request.principal, request.signer) == (WHO, key.fingerprint)


@pytest.mark.needs("ssh-keygen")
def test_a_killed_client_sends_the_same_signature_again(requester, tmp_path):
    """ecdsa signatures are random: signing again would be another commit under the same name."""
    path = tmp_path / "ecdsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(path)], check=True, timeout=240)
    init(requester, "--signing-key", str(path))
    run_id = sent_id(requester)
    first = received(requester, run_id)
    with requester.bus.remote.lock:  # the push never arrived
        del requester.bus.remote.refs[first.ref.ref]
    assert sent_id(requester) == run_id
    assert received(requester, run_id).signature == first.signature


def test_the_same_question_of_two_principals_is_two_runs(requester, tmp_path):
    init(requester, "--signing-key", str(make_key(tmp_path, "mine").path))
    signed = sent_id(requester)
    assert sent_id(requester) == signed
    requester.run("init", "--bus", "memory", "--signing-key", "none")
    unsigned = sent_id(requester)
    assert unsigned != signed
    assert received(requester, unsigned).signature is None


def test_a_request_in_our_name_by_a_strangers_key_is_not_taken_for_ours(requester, tmp_path):
    mine, stranger = make_key(tmp_path, "mine"), make_key(tmp_path, "stranger")
    init(requester, "--signing-key", str(mine.path))
    bus_id = requester.bus.identity().bus_id
    own = parse_wish(requester)
    wish = requester.run("run", "mlx-env-probe", "--dry-run", "--json").document["data"]["request"]
    made, _ = signed_request(
        bus_id, "mlx-env-probe", stranger, wish["principal"], now=requester.clock.now(), params=own
    )
    named = request_branch(DEFAULT_TEMPLATE, made.preset, made.id, wish["idempotency_key"])  # else nobody looks at it
    forged = made.evolve(ref=named, idempotency_key=wish["idempotency_key"])
    push_signed(requester.bus, forged, sign(forged.canonical(), stranger.path))
    assert sent_id(requester) != forged.id


def parse_wish(requester: Requester) -> dict:
    return requester.run("run", "mlx-env-probe", "--dry-run", "--json").document["data"]["request"]["params"]


@pytest.mark.needs("ssh-keygen")
def test_auto_finds_the_users_key_before_it_makes_one(requester, tmp_path):
    made = init(requester, "--signing-key", "auto")
    assert (tmp_path / "config" / "signing_key").is_file()
    assert init(requester, "--signing-key", "auto")["signer"] == made["signer"]
    own = make_key(tmp_path / "home" / ".ssh", "id_ed25519")
    assert init(requester, "--signing-key", "auto")["signer"] == own.fingerprint


@pytest.mark.needs("ssh-keygen")
def test_auto_passes_over_a_key_that_no_line_for_welcome_can_hold(requester, tmp_path):
    other = tmp_path / "home" / ".ssh" / "id_ecdsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(other)], check=True, timeout=240)
    assert init(requester, "--signing-key", "auto")["public_key"].startswith("ssh-ed25519 ")
    assert discover(tmp_path, environment_of(requester)).signing.key.endswith("/signing_key")


@pytest.mark.needs("ssh-keygen")
def test_the_owner_of_a_host_is_told_the_command_that_takes_the_type_of_a_named_key(requester, tmp_path):
    other, mine = tmp_path / "ecdsa", make_key(tmp_path, "mine")
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(other)], check=True, timeout=240)
    public = " ".join(other.with_suffix(".pub").read_text().split()[:2])
    for key, command in (
        (other, f"kakeya-runner trust add '{public}' --principal {WHO}"),
        (mine.path, f"kakeya-runner welcome '{WHO} {mine.public}'"),
    ):
        ran = requester.run("init", "--bus", "memory", "--principal", WHO, "--signing-key", str(key))
        assert (ran.code, command in ran.err) == (0, True), ran.err


@pytest.mark.needs("ssh-keygen")
def test_a_key_with_a_passphrase_is_passed_over_and_asks_nothing(requester, tmp_path):
    path = tmp_path / "home" / ".ssh" / "id_ed25519"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(path)]
    subprocess.run(argv, check=True, timeout=240)
    init(requester, "--signing-key", "auto")
    assert discover(tmp_path, environment_of(requester)).signing.key.endswith("/signing_key")
    ran = requester.run("init", "--bus", "memory", "--signing-key", str(path))
    assert ran.code == 2
    assert "could not sign" in ran.err
    assert "load it into ssh-agent" in ran.err


def environment_of(requester: Requester) -> dict[str, str]:
    folder = requester.folder
    return {"KAKEYA_DATA_DIR": str(folder / "data"), "KAKEYA_CONFIG_DIR": str(folder / "config")}


def test_a_key_only_an_agent_holds_signs(tmp_path, monkeypatch):
    key = make_key(tmp_path, "held")
    socket = tmp_path / "agent.sock"
    agent = guarded.start(["ssh-agent", "-D", "-a", socket])
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        add = ["ssh-add", "-q", str(key.path)]  # its socket is there before it listens
        until(lambda: subprocess.run(add, capture_output=True, check=False).returncode == 0, why="it took no key")
        key.path.unlink()
        asking = Requester(tmp_path, environment={"SSH_AUTH_SOCK": str(socket), "PATH": os.environ["PATH"]})
        ScriptedHost(asking.bus, asking.clock).beat()
        assert init(asking, "--signing-key", "auto")["signer"] == key.fingerprint
        received_request = received(asking, sent_id(asking))
        assert made_with(received_request.data, received_request.signature) == key.fingerprint
    finally:
        guarded.stop(agent)


@pytest.mark.needs("ssh-keygen")
def test_no_key_is_made_unless_asked_for_whoever_checks(requester, tmp_path):
    ran = requester.run("init", "--bus", "memory")
    assert "requests are unsigned; on with: kakeya-mac init --signing-key auto" in ran.out
    assert not (tmp_path / "config" / "signing_key").exists()
    checking = requester.bus.read_beacons()[0][1].evolve(sequence=99, capabilities=(SIGNED_REQUESTS,))
    requester.bus.beacon(checking)
    ran = requester.run("init", "--bus", "memory")
    assert (ran.code, "requests are unsigned; on with: kakeya-mac init --signing-key auto" in ran.out) == (0, True)
    ran = requester.run("init", "--bus", "memory", "--principal", WHO)
    assert (ran.code, "--signing-key auto makes one" in " ".join(ran.err.split())) == (2, True)
    assert not (tmp_path / "config" / "signing_key").exists()
    ran = requester.run("init", "--bus", "memory", "--principal", WHO, "--signing-key", "auto")
    assert f"kakeya-runner welcome '{WHO} ssh-ed25519 " in ran.err
    doctor = {finding["check"]: finding for finding in requester.run("doctor", "--json").document["data"]}
    assert doctor["signing"]["level"] == "ok"


def test_a_user_without_a_login_name_pins_the_bus_all_the_same(requester, monkeypatch):
    """A container may run with a number that its list of users lacks; nobody becomes such a user inside a test."""

    def find_nobody(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", find_nobody)
    checking = requester.bus.read_beacons()[0][1].evolve(sequence=99, capabilities=(SIGNED_REQUESTS,))
    requester.bus.beacon(checking)
    ran = requester.run("init", "--bus", "memory")
    assert (ran.code, "requests are unsigned" in ran.out) == (0, True), ran.err


def test_an_agent_that_nothing_here_can_ask_is_none(requester, tmp_path):
    """A container is given the socket of its host's agent, and has no ssh where its remotes are on https."""
    requester.environment |= {"SSH_AUTH_SOCK": str(tmp_path / "agent.sock"), "PATH": str(tmp_path / "empty")}
    checking = requester.bus.read_beacons()[0][1].evolve(sequence=99, capabilities=(SIGNED_REQUESTS,))
    requester.bus.beacon(checking)
    ran = requester.run("init", "--bus", "memory")
    assert (ran.code, "requests are unsigned" in ran.out) == (0, True), ran.err


@pytest.mark.parametrize("kind", ["ssh-rsa", "key::ssh-rsa"])
def test_a_key_that_git_is_told_as_a_text_is_looked_for_as_no_file(requester, tmp_path, kind):
    git("init", "--quiet", str(tmp_path))
    git("config", "gpg.format", "ssh", cwd=tmp_path)
    git("config", "user.signingkey", f"{kind} {'A' * 700}", cwd=tmp_path)
    checking = requester.bus.read_beacons()[0][1].evolve(sequence=99, capabilities=(SIGNED_REQUESTS,))
    requester.bus.beacon(checking)
    ran = requester.run("init", "--bus", "memory")
    assert (ran.code, "requests are unsigned" in ran.out) == (0, True), ran.err


def test_doctor_names_what_is_missing(requester, tmp_path):
    key = make_key(tmp_path, "mine")
    init(requester, "--signing-key", str(key.path))
    doctor = {finding["check"]: finding for finding in requester.run("doctor", "--json").document["data"]}
    assert doctor["signing"]["level"] == "warn"
    assert f"kakeya-runner welcome '{WHO} {key.public}'" in doctor["signing"]["remedy"]
    key.path.unlink()
    doctor = {finding["check"]: finding for finding in requester.run("doctor", "--json").document["data"]}
    assert doctor["signing"]["level"] == "fail"
    assert doctor["signing"]["remedy"] == "kakeya-mac init --signing-key auto"
    assert requester.run("run", "mlx-env-probe").code == 2


def test_a_cancel_is_signed_too(requester, tmp_path):
    key = make_key(tmp_path, "mine")
    init(requester, "--signing-key", str(key.path))
    run_id = sent_id(requester)
    assert requester.run("cancel", run_id).code == 0
    (cancel,) = requester.bus.history.cancels(run_id)
    assert made_with(cancel.data, cancel.signature) == key.fingerprint
    assert requester.bus.view(run_id).cancel_asked


@pytest.mark.parametrize("name", ["two words", "-I", "*", "unsigned", ""])
def test_a_principal_that_is_no_name_is_refused(requester, name):
    ran = requester.run("init", "--bus", "memory", f"--principal={name}")
    assert (ran.code, "expected a name" in ran.err) == (2, True)


def test_a_committed_file_chooses_nobodys_key(tmp_path):
    top = tmp_path / "clone"
    (top / ".git").mkdir(parents=True)
    (top / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    environment = {"KAKEYA_DATA_DIR": str(tmp_path / "data"), "KAKEYA_CONFIG_DIR": str(tmp_path / "config")}
    (top / "kakeya.toml").write_text('schema = 1\nroute = "origin"\nsigning_key = "/x"\nprincipal = "a"\n')
    with pytest.raises(UsageError, match="everybody's own choice"):
        discover(top, environment)


def test_nobody_signs_to_their_own_machine(requester, tmp_path):
    from bridge.client.connection.signing import identity_of

    key = make_key(tmp_path, "mine")
    init(requester, "--signing-key", str(key.path))
    settings = discover(tmp_path, environment_of(requester), "embedded")
    session = requester.open(settings, requester.clock)
    assert settings.signing is not None
    assert identity_of(session) is None
