"""`welcome` gives one person a name, a key and rights in one line; `who` shows them; no text of the policy is lost."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from bridge.cli.host.main import main
from bridge.runner.policy.file import load_policy
from bridge.runner.policy.name_files import FOLDER
from bridge.runner.policy.policy_file import REST_S, PolicyFile
from tests.fakes.ssh_keys import make_key
from tests.support.waiting import until
from tests.support.workload_folder import write_workload
from tests.unit.bridge.runner.test_leases import HandClock

ADA = "ada@example.org"


@pytest.fixture
def host(tmp_path, capsys, monkeypatch):
    """Return a function that runs the command on a machine that owns its bus; gives code, stdout, stderr."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("KAKEYA_OWNER_DIR", str(tmp_path / "owner"))
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bus.git"], check=True, timeout=60)

    def run(*words: str):
        places = ["--policy", str(tmp_path / "config" / "policy.toml"), "--state", str(tmp_path / "state")]
        code = main([words[0], *words[1:], *places])
        return code, *capsys.readouterr()

    run.folder = tmp_path
    assert run("setup", "--bus", str(tmp_path / "bus.git"), "--create-bus", "--name", "desk")[0] == 0
    return run


@pytest.fixture
def key(tmp_path):
    return make_key(tmp_path, "ada")


def policy_path(host) -> Path:
    return host.folder / "config" / "policy.toml"


def test_one_line_lets_a_person_in_and_who_shows_it(host, key):
    text = policy_path(host).read_bytes()
    code, out, err = host("welcome", ADA, *key.public.split(), "--may", "pytest-path", "--yes")
    assert code == 0, err
    assert key.fingerprint in out
    assert "bring code of its own, sandboxed, to pytest-path" in out
    assert "the root of the bus" in err
    assert policy_path(host).read_bytes() == text
    rules = load_policy(policy_path(host)).names[ADA]
    assert (rules.presets, rules.own_code) == (("pytest-path",), True)

    code, shown, _ = host("who", ADA)
    assert code == 0
    for words in (key.fingerprint, "the root of the bus", f"{FOLDER}/{ADA}.toml", "60 requests an hour"):
        assert words in shown


def test_without_a_preset_it_is_no_more_than_an_unsigned_request_may(host, key):
    code, out, _ = host("welcome", f"{ADA} {key.public}", "--yes")
    assert code == 0
    assert "bring no code: no more than an unsigned request may" in out
    assert load_policy(policy_path(host)).names[ADA].own_code is False


def test_vouching_for_code_is_said_and_written(host, key):
    code, out, _ = host("welcome", f"{ADA} {key.public}", "--code", "--yes")
    assert code == 0
    assert "commits signed with the key are trusted code" in out
    assert "code   " + key.fingerprint in host("who", ADA)[1]


def test_where_nobody_can_be_asked_nothing_is_written(host, key):
    code, _, err = host("welcome", f"{ADA} {key.public}")
    assert (code, "add --yes" in err) == (2, True)
    assert not (host.folder / "config" / FOLDER).exists()
    assert host("who", ADA)[0] == 1


def test_a_name_of_somebody_else_and_a_key_of_somebody_else_are_refused(host, key, tmp_path):
    other = make_key(tmp_path, "bob")
    assert host("welcome", f"{ADA} {key.public}", "--yes")[0] == 0
    for line, words in (
        (f"{ADA} {other.public}", "listed with another key"),
        (f"bob@example.org {key.public}", f"the key is {ADA}'s already"),
        (f"desk {other.public}", "desk is a runner of this bus"),
    ):
        code, _, err = host("welcome", line, "--yes")
        assert (code, words in err) == (2, True), err


def typed_remedy(err: str) -> list[str]:
    """Return the words of the command that an error says to type, without the program's name."""
    command = re.search(r"kakeya-runner (trust .*?)(?:,| takes|$)", " ".join(err.split()))
    assert command is not None, err
    return shlex.split(command[1])


@pytest.mark.parametrize("owns", [True, False], ids=["in the root", "in the host's list"])
def test_who_has_a_new_key_is_let_in_once_the_command_that_the_refusal_names_was_typed(
    host, key, tmp_path, monkeypatch, owns
):
    if not owns:
        monkeypatch.setenv("KAKEYA_OWNER_DIR", str(tmp_path / "somebody-else"))
    new = make_key(tmp_path, "new")
    assert host("welcome", f"{ADA} {key.public}", "--yes")[0] == 0
    code, _, err = host("welcome", f"{ADA} {new.public}", "--yes")
    assert (code, "listed with another key" in err) == (2, True), err
    assert host(*typed_remedy(err))[0] == 0
    code, _, err = host("welcome", f"{ADA} {new.public}", "--yes")
    assert code == 0, err


def test_a_revoked_person_is_not_let_in_again_by_the_same_line_before_the_command_that_it_names(host, key):
    assert host("revoke", ADA)[0] == 0
    code, _, err = host("welcome", f"{ADA} {key.public}", "--yes")
    assert (code, "is revoked on this host" in err) == (2, True)
    assert host(*typed_remedy(err))[0] == 0
    code, _, err = host("welcome", f"{ADA} {key.public}", "--yes")
    assert code == 0, err


@pytest.mark.parametrize(
    ("words", "end"),
    [(("revoke",), "revoked"), (("trust", "revoke"), "revoked"), (("trust", "retire"), "retired")],
    ids=["on this host", "on the bus", "retired on the bus"],
)
def test_who_says_of_a_key_that_it_was_ended(host, key, words, end):
    assert host("welcome", f"{ADA} {key.public}", "--code", "--yes")[0] == 0
    shown = host("who", ADA)[1]
    assert shown.count(key.fingerprint) == 2
    assert "are trusted code" in shown
    assert end not in shown
    assert host(*words, key.fingerprint)[0] == 0
    until(lambda: host("who", ADA)[1].count(f", {end}\n") == 2, why="it is shown as good")  # to retire takes a second
    code, shown, _ = host("who", ADA)
    assert code == 0
    assert "are trusted code" not in shown


def test_a_preset_that_this_host_has_not_is_refused_with_its_own(host, key, tmp_path):
    code, _, err = host("welcome", f"{ADA} {key.public}", "--may", "sorter", "--yes")
    assert (code, "no preset 'sorter'; known: commit-comparison" in err) == (2, True), err
    (host.folder / "config" / "workloads").write_text(f"{write_workload(tmp_path)}\n")
    code, _, err = host("welcome", f"{ADA} {key.public}", "--may", "sorter", "--yes")
    assert (code, "no preset 'sorter'" in err, "known: my-train" in err) == (2, True, True)


def test_a_runner_sees_the_rights_of_a_name_at_once(host, key):
    clock = HandClock()
    file = PolicyFile(policy_path(host), clock)
    assert host("welcome", f"{ADA} {key.public}", "--may", "pytest-path", "--yes")[0] == 0
    file.look()
    clock.sleep(REST_S)
    assert file.look().names[ADA].presets == ("pytest-path",)


@pytest.mark.parametrize(
    ("text", "words"),
    [("presets = 1\n", "presets"), ("rights = ['x']\n", "rights"), ("presets = [", "Invalid value")],
)
def test_a_rules_file_that_is_none_stops_the_policy_in_one_line(host, text, words):
    folder = host.folder / "config" / FOLDER
    folder.mkdir(mode=0o700)
    (folder / f"{ADA}.toml").write_text(text)
    (folder / f"{ADA}.toml").chmod(0o600)
    code, _, err = host("who", ADA)
    assert (code, f"{ADA}.toml" in err, words in err) == (2, True, True), err
