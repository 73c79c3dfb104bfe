"""Trust in the policy file: strict keys, and the commands that write the lists beside it."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

from bridge.cli.host.main import main
from bridge.errors import PolicyRefusedError, UsageError
from bridge.runner.authorisation.signers import Signers
from bridge.runner.authorisation.trust_files import TrustFiles
from bridge.runner.maintenance.doctor import _policy
from bridge.runner.policy.file import load_policy, read_policy
from bridge.trust.ssh_signatures import fingerprint_of

GOOD = 'schema = 1\nname = "mini"\n'


def public(seed: int) -> str:
    kind = b"ssh-ed25519"
    blob = len(kind).to_bytes(4, "big") + kind + (32).to_bytes(4, "big") + bytes([seed]) * 32
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def entry(principals: str = '["a"]', more: str = "") -> str:
    return f'allowed_signers = [{{principals = {principals}, key = "{public(1)}"{more}}}]\n'


@pytest.fixture
def policy(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "policy.toml"
    path.write_text(GOOD)
    path.chmod(0o600)
    return path


@pytest.fixture
def trust(policy, capsys):
    def call(*words: str) -> tuple[int, str]:
        code = main([*words, "--policy", str(policy)])
        out = capsys.readouterr()
        return code, out.out + out.err

    return call


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('protected_refs = ["refs/heads/main"]\n', "go together"),
        ('floor_commit = "%s"\n' % ("a" * 40), "go together"),
        ('protected_refs = ["main"]\nfloor_commit = "%s"\n' % ("a" * 40), "protected_refs"),
        ('protected_refs = ["refs/heads/*"]\nfloor_commit = "%s"\n' % ("a" * 40), "protected_refs"),
        ('protected_refs = ["refs/replace/x"]\nfloor_commit = "%s"\n' % ("a" * 40), "protected_refs"),
        ('protected_refs = ["refs/heads/mac-bridge/x"]\nfloor_commit = "%s"\n' % ("a" * 40), "requesters push"),
        ('protected_refs = ["refs/heads/AgentMemory/mac-bridge-x"]\nfloor_commit = "%s"\n' % ("a" * 40), "requesters"),
        ('allowed_signers = "relative"\n', "allowed_signers"),
        (entry("[]"), "principals"),
        (entry('["*"]'), "principals"),
        ('allowed_signers = [{principals = ["a"], key = "x"}]\n', "key"),
        (entry(more=', namespaces = "git"'), "namespaces"),
        (entry(more=', valid_before = "soon"'), "valid_before"),
        ("quota_per_hour = -1\n", "quota_per_hour"),
        ('[quotas]\n"two words" = 3\n', "quotas"),
        ("require_signature = 1\n", "require_signature"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(text, says):
    with pytest.raises(UsageError, match=says):
        read_policy((GOOD + text).encode())


def test_lists_lie_beside_the_policy_unless_it_says_otherwise(policy):
    settings = load_policy(policy)
    assert settings.allowed_signers == str(policy.parent / "allowed_signers")
    assert settings.revoked == str(policy.parent / "revoked")
    policy.write_text(GOOD + 'revoked = "/elsewhere"\n')
    assert load_policy(policy).revoked == "/elsewhere"


def test_a_principal_is_revoked_together_with_its_key_under_every_name(trust, policy):
    key, other = public(1), public(2)
    assert trust("trust", "add", key, "--principal", "a@example.org", "--principal", "b@example.org")[0] == 0
    assert trust("trust", "add", key, "--principal", "c@example.org", "--code")[0] == 0
    assert trust("trust", "add", other, "--principal", "d@example.org")[0] == 0
    code, output = trust("revoke", "a@example.org")
    assert code == 0
    assert f"a@example.org is revoked, and with it {fingerprint_of(key)}" in output
    assert "b@example.org, c@example.org: refused too" in output
    revoked = (policy.parent / "revoked").read_text().split()
    assert revoked == ["a@example.org", fingerprint_of(key)]
    assert trust("trust", "add", key, "--principal", "a@example.org")[0] == 0  # and all of it comes back
    assert (policy.parent / "revoked").read_text() == ""


def test_a_key_is_trusted_listed_revoked_and_trusted_again(trust, policy):
    key, other = public(1), public(2)
    assert trust("trust", "list")[1].startswith("note  nobody is trusted")
    code, output = trust("trust", "add", key, "--principal", "agent@example.org", "--valid-before", "20300101")
    assert code == 0
    assert output.startswith(fingerprint_of(key))
    assert trust("trust", "add", *other.split(), "dev", "--code")[0] == 0
    listed = trust("trust", "list")[1].splitlines()
    assert [line.split()[:3] for line in listed] == [
        ["request", "agent@example.org", fingerprint_of(key)],
        ["code", "dev", fingerprint_of(other)],
    ]
    assert 'namespaces="kakeya-request-v1",valid-before="20300101"' in listed[0]
    assert (policy.parent / "allowed_signers").stat().st_mode & 0o777 == 0o600

    assert trust("revoke", "agent@example.org")[0] == 0
    assert trust("revoke", key)[0] == 0
    assert [line.split()[:2] for line in trust("trust", "list")[1].splitlines()[2:]] == [
        ["revoked", "agent@example.org"],
        ["revoked", "-"],
    ]
    trust("trust", "add", key, "--principal", "agent@example.org")
    assert "revoked" not in trust("trust", "list")[1]
    assert trust("trust", "list")[1].count(fingerprint_of(key)) == 1
    assert trust("trust", "remove", "agent@example.org")[0] == 0
    assert trust("trust", "remove", fingerprint_of(other), "--code")[0] == 0
    assert trust("trust", "list")[1].startswith("note  nobody")


@pytest.mark.parametrize(("padded", "comment"), [(300, ""), (299, " ann@desk"), (301, ""), (299, " made=2026")])
def test_the_text_of_a_key_is_no_path_however_long_and_no_runners_key_whatever_is_in_it(trust, policy, padded, comment):
    kind = b"ssh-rsa"
    blob = len(kind).to_bytes(4, "big") + kind + bytes(padded - 11)  # in base64 with none, one or two signs of equality
    key = f"ssh-rsa {base64.b64encode(blob).decode()}"
    assert trust("trust", "add", f"{key}{comment}", "--principal", "agent@example.org")[0] == 0
    assert trust("revoke", key)[0] == 0
    assert (policy.parent / "revoked").read_text().split() == [fingerprint_of(key)]
    assert trust("trust", "remove", key)[0] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("trust", "add"), "the following arguments are required: KEY"),
        (("trust", "add", "nonsense", "--principal", "a"), "no public key"),
        (("trust", "add", "ssh-ed25519", "AAAA", "--principal", "a"), "no public key"),
        (("trust", "add", public(1)), "give --principal NAME"),
        (("trust", "add", public(1), "--principal", "two words"), "expected a name"),
        (("trust", "add", public(1), "--principal", "unsigned"), "expected a name"),
        (("trust", "add", public(1), "--principal", "a", "--valid-before", "tomorrow"), "YYYYMMDD"),
        (("trust", "remove", "nobody"), "not trusted"),
        (("revoke", "two", "words"), "no public key"),
    ],
)
def test_a_mistake_is_one_clear_message_and_changes_nothing(trust, policy, words, says):
    code, output = trust(*words)
    assert (code, says in output) == (2, True), output
    assert "\nnext " in output
    assert not (policy.parent / "allowed_signers").exists()


def test_a_policy_that_lists_keys_itself_is_not_edited(trust, policy):
    policy.write_text(GOOD + entry())
    assert trust("trust", "list")[1].split()[:3] == ["request", "a", fingerprint_of(public(1))]
    code, output = trust("trust", "add", public(2), "--principal", "b")
    assert code == 2
    assert "policy.toml" in output


@pytest.mark.parametrize(
    ("slip", "mode"),
    [('colour = "red"\n', 0o600), ("quota_per_hour = -1\n", 0o600), ("slots = \n", 0o600), ("", 0o644)],
    ids=["an unknown key", "a value out of its bounds", "no TOML", "readable by others"],
)
def test_an_owners_no_is_heard_whatever_else_the_policy_says(trust, policy, tmp_path, slip, mode):
    lists = tmp_path / "lists"
    policy.write_text(f'{GOOD}revoked = "{lists}/revoked"\nallowed_signers = "{lists}/signers"\n')
    for seed, name in ((1, "a@example.org"), (2, "b@example.org")):
        assert trust("trust", "add", public(seed), "--principal", name)[0] == 0
    policy.write_text(policy.read_text() + slip)
    policy.chmod(mode)
    assert trust("trust", "add", public(3), "--principal", "c@example.org")[0] == 2
    code, output = trust("revoke", "a@example.org")
    assert (code, "once kakeya-runner policy check is content" in output) == (0, True), output
    assert (lists / "revoked").read_text().split() == ["a@example.org", fingerprint_of(public(1))]
    assert trust("trust", "remove", "b@example.org")[0] == 0
    assert "b@example.org" not in (lists / "signers").read_text()
    assert not (policy.parent / "revoked").exists()


def test_a_list_of_revoked_keys_whose_disk_is_not_mounted_is_no_empty_one(trust, policy, tmp_path):
    disk = tmp_path / "disk"
    policy.write_text(f'{GOOD}revoked = "{disk}/revoked"\n')
    disk.mkdir(mode=0o700)
    assert Signers(load_policy(policy)).revocations().principals == frozenset()
    assert trust("revoke", "a@example.org")[0] == 0
    assert Signers(load_policy(policy)).revocations().principals == {"a@example.org"}
    disk.rename(tmp_path / "elsewhere")
    with pytest.raises(PolicyRefusedError, match="the host's own revoked cannot be relied on"):
        Signers(load_policy(policy)).revocations()


def test_of_several_nos_at_once_none_is_lost(policy):
    files = TrustFiles(load_policy(policy), policy.parent)
    names = [f"agent{number}@example.org" for number in range(16)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(files.revoke, names))
    assert sorted((policy.parent / "revoked").read_text().split()) == sorted(names)


def test_a_no_that_no_runner_can_hear_is_refused_and_leaves_no_list(tmp_path, capsys):
    """As where the service has its policy elsewhere, and the folder is that of the account that types."""
    for words in (["revoke", "a@example.org"], ["trust", "remove", "a@example.org"]):
        assert main([*words, "--policy", str(tmp_path / "kakeya" / "policy.toml")]) == 2
        err = capsys.readouterr().err
        assert "nobody would hear it" in err
        assert "give the runner's own --policy FILE" in err
    assert not (tmp_path / "kakeya").exists()


def test_of_a_broken_policy_the_keys_that_it_lists_itself_are_revoked_with_their_name(trust, policy):
    policy.write_text(GOOD + entry().removesuffix("]\n") + ', {principals = ["b"], key = "no key"}]\n')
    assert trust("revoke", "a")[0] == 0
    assert (policy.parent / "revoked").read_text().split() == ["a", fingerprint_of(public(1))]


@pytest.mark.parametrize(
    ("lines", "mode", "level", "says"),
    [
        ("", None, "ok", "nobody may sign requests"),
        ("require_signature = true\n", None, "fail", "every request is refused"),
        ("", 0o600, "ok", "signed requests are checked; 1 revoked"),
        ("", 0o666, "fail", "cannot be relied on"),
    ],
    ids=["no list", "a list is missed", "a list", "a list others can write"],
)
def test_doctor_says_whose_signatures_count(trust, policy, lines, mode, level, says):
    policy.write_text(lines + GOOD)
    if mode is not None:
        trust("trust", "add", public(1), "--principal", "agent")
        trust("revoke", "somebody")
        (policy.parent / "allowed_signers").chmod(mode)
    (check,) = (check for check, _ in _policy(policy) if check.name == "signers")
    assert (check.level, says in check.text) == (level, True), check
    assert check.level == "ok" or "kakeya-runner" in check.remedy
