"""A daemon's key: real keys of ssh-keygen, with and without a passphrase, in both formats."""

from __future__ import annotations

import subprocess

import pytest

from bridge.runner.maintenance.ssh_checks import check_ssh, key_kind, ssh_host


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name, words in {
        "open": ("ed25519", "-N", ""),
        "locked": ("ed25519", "-N", "secret phrase"),
        "pem-open": ("ecdsa", "-m", "PEM", "-N", ""),
        "pem-locked": ("ecdsa", "-m", "PEM", "-N", "secret phrase"),
    }.items():
        subprocess.run(["ssh-keygen", "-q", "-t", *words, "-f", str(folder / name)], check=True)
    (folder / "none").write_text("not a key\n")
    (folder / "broken").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n%%%\n-----END OPENSSH PRIVATE KEY-----\n")
    return folder


@pytest.mark.parametrize(
    ("name", "kind"),
    [("open", "open"), ("locked", "locked"), ("pem-open", "open"), ("pem-locked", "locked"), ("none", None),
     ("broken", None), ("absent", None)],
)  # fmt: skip
@pytest.mark.needs("ssh-keygen")
def test_a_key_says_whether_it_wants_a_passphrase(keys, name, kind):
    assert key_kind(keys / name) == kind


@pytest.mark.parametrize(
    ("route", "host"),
    [("git@example.org:o/bus.git", "example.org"), ("ssh://git@example.org:22/o/bus.git", "example.org"),
     ("https://example.org/bus.git", None), ("/srv/bus.git", None), ("file:///srv/bus.git", None)],
)  # fmt: skip
def test_only_a_route_by_ssh_has_a_host_to_log_in_to(route, host):
    assert ssh_host(route) == host


@pytest.mark.parametrize(
    ("names", "level", "text"),
    [(("locked",), "warn", "no keychain or agent"), (("absent",), "warn", "no private key for example.org"),
     (("locked", "open"), "ok", "opens without a passphrase")],
)  # fmt: skip
@pytest.mark.needs("ssh-keygen")
def test_a_bus_by_ssh_needs_a_key_that_opens_by_itself(keys, names, level, text):
    listed = "".join(f"identityfile {keys / name}\n" for name in names)
    checks = list(check_ssh("git@example.org:o/bus.git", lambda *_: f"user git\n{listed}", keys))
    assert [check.level for check in checks] == [level]
    assert text in checks[0].text
    assert level == "ok" or "ssh-keygen -t ed25519 -N ''" in checks[0].remedy
    assert list(check_ssh("https://example.org/bus.git", lambda *_: listed, keys)) == []
