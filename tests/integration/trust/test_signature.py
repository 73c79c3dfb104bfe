"""ssh signatures over request bytes, with the real ssh-keygen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import PolicyRefusedError, UsageError
from bridge.trust import ssh_signatures as signature
from bridge.trust.ssh_signatures import NAMESPACE, fingerprint, sign, verify

pytestmark = pytest.mark.needs("ssh-keygen")

DATA = b'{"id":"x","preset":"mlx-env-probe"}'
WHO = "agent@example.org"


def make_key(folder: Path, name: str) -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True, timeout=240)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def key(folder: Path) -> Path:
    return make_key(folder, "agent")


@pytest.fixture(scope="module")
def signed(key: Path) -> bytes:
    return sign(DATA, key)


def signers(folder: Path, key: Path, options: str = f'namespaces="{NAMESPACE}"', who: str = WHO) -> Path:
    path = folder / f"signers-{abs(hash((str(key), options, who)))}"
    path.write_text(f"{who} {options} {key.with_suffix('.pub').read_text()}")
    return path


def check(data: bytes, signed: bytes, key: Path, path: Path, **changes) -> signature.Signer:
    named = {"principal": WHO, "expected": fingerprint(key), "signers": path, **changes}
    return verify(data, signed, **named)


def test_a_signature_of_a_listed_key_names_its_signer(folder, key, signed) -> None:
    signer = check(DATA, signed, key, signers(folder, key))
    assert (signer.principal, signer.fingerprint) == (WHO, fingerprint(key))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, len(DATA) - 1), bit=st.integers(0, 7))
def test_any_changed_bit_of_the_request_is_refused(folder, key, signed, position: int, bit: int) -> None:
    changed = bytearray(DATA)
    changed[position] ^= 1 << bit
    with pytest.raises(PolicyRefusedError):
        check(bytes(changed), signed, key, signers(folder, key))


@pytest.mark.parametrize(
    ("options", "who", "why"),
    [
        (f'namespaces="{NAMESPACE}"', "other@example.org", "another principal"),
        ('namespaces="git"', WHO, "another namespace"),
        (f'namespaces="{NAMESPACE}",valid-before="20200101"', WHO, "expired"),
        (f'namespaces="{NAMESPACE}",valid-after="29990101"', WHO, "not valid yet"),
    ],
    ids=lambda value: value if " " in value or value in {"expired"} else "",
)
def test_the_owners_list_decides_at_the_present_time(folder, key, signed, options: str, who: str, why: str) -> None:
    with pytest.raises(PolicyRefusedError):
        check(DATA, signed, key, signers(folder, key, options, who))


def test_a_signature_made_for_git_does_not_count(folder, key) -> None:
    other = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(key)],
        input=DATA,
        capture_output=True,
        check=True,
        timeout=240,
    ).stdout
    with pytest.raises(PolicyRefusedError):
        check(DATA, other, key, signers(folder, key, options=""))


def test_a_revoked_key_is_refused(folder, key, signed) -> None:
    revoked = folder / "revoked"
    revoked.write_text(key.with_suffix(".pub").read_text())
    with pytest.raises(PolicyRefusedError):
        check(DATA, signed, key, signers(folder, key), revoked=revoked)


def test_an_unlisted_key_and_a_host_without_a_list_are_refused(folder, signed, key) -> None:
    stranger = make_key(folder, "stranger")
    with pytest.raises(PolicyRefusedError, match="not accepted"):
        check(DATA, sign(DATA, stranger), stranger, signers(folder, key))
    with pytest.raises(PolicyRefusedError, match="knows no signers"):
        check(DATA, signed, key, folder / "absent")


def test_the_key_must_be_the_one_the_request_names(folder, key, signed) -> None:
    with pytest.raises(PolicyRefusedError, match="names key"):
        check(DATA, signed, key, signers(folder, key), expected="SHA256:" + "A" * 43)


@pytest.mark.parametrize("data", [b"", b"x", b"-----BEGIN SSH SIGNATURE-----\n", b"\x00" * 100, b"a" * 20_000])
def test_bytes_that_are_no_signature_are_refused(folder, key, data: bytes) -> None:
    with pytest.raises(PolicyRefusedError):
        check(DATA, data, key, signers(folder, key))


@pytest.mark.parametrize("who", ["", "-I", "a b", "a\n", "*", "x" * 200])
def test_a_principal_that_is_no_name_never_reaches_the_tool(folder, key, signed, who: str) -> None:
    with pytest.raises(PolicyRefusedError, match="malformed"):
        check(DATA, signed, key, signers(folder, key), principal=who)


def test_a_file_that_is_no_key_is_one_clear_error(folder) -> None:
    path = folder / "text"
    path.write_text("hello")
    with pytest.raises(UsageError):
        fingerprint(path)
    with pytest.raises(UsageError):
        sign(DATA, path)
