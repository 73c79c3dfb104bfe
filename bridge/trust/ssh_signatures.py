"""Sign and verify with ssh keys: `ssh-keygen -Y` under a namespace of our own.

The stored bytes are the signed bytes; they carry bus, ref, id and expiry, so a signature is worth nothing elsewhere.
Exit codes decide; ssh-keygen prints "Good signature" even where its code is not 0. Everything it reads is named on its
command line: no user or repository configuration is consulted. Format: OpenSSH PROTOCOL.sshsig.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.errors import InfrastructureError, PolicyRefusedError, UsageError
from bridge.records.request import FINGERPRINT_PATTERN, PRINCIPAL_PATTERN
from bridge.system import process

NAMESPACE: Final = "kakeya-request-v1"
COMMIT_NAMESPACE: Final = "git"
SIGNATURE_MAX_BYTES: Final = 16 * 1024
TIMEOUT_S: Final = 20.0
_FOUND = re.compile(rf"\bkey ({FINGERPRINT_PATTERN})\s*$".encode(), re.MULTILINE)
_PRINCIPAL = re.compile(PRINCIPAL_PATTERN)
_ARMOUR = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/=\n]+)\n-----END SSH SIGNATURE-----\n?")
_SHOWN_KEY_CHARS = 160
_SIGN_AGAIN: Final = (
    "send the request once more with kakeya-mac run, which signs it anew; changed or copied ones do not count"
)
_USE_OWN_NAME: Final = "whose key it is gives the name that the owner knows: kakeya-mac init --principal NAME"


@dataclass(frozen=True)
class Signer:
    """Who signed: a principal of a list, the fingerprint of the key, and whether it was the host's own list."""

    principal: str
    fingerprint: str
    on_host: bool = True


def fingerprint(key: Path) -> str:
    """Return the fingerprint of a public or private key file.

    Raises:
        UsageError: the file is no ssh key.
    """
    done = process.run([_tool(), "-l", "-E", "sha256", "-f", str(key)], timeout_s=TIMEOUT_S)
    words = done.stdout.decode("utf-8", "replace").split()
    if done.exit_code != 0 or len(words) < 2:
        raise UsageError(f"{key} is no ssh key", remedy="name a key made by ssh-keygen -t ed25519")
    return words[1]


def fingerprint_of(public_key: str) -> str:
    """Return the fingerprint of a public key's text, ``TYPE BASE64 [comment]``.

    Raises:
        UsageError: it is none.
    """
    words = public_key.split()
    try:
        blob = base64.b64decode(words[1], validate=True)
        length = int.from_bytes(blob[:4], "big")
        whole = blob[4 : 4 + length].decode("ascii") == words[0] and len(blob) > 4 + length
    except (IndexError, ValueError):
        blob, whole = b"", False
    if not whole:
        raise UsageError(
            f"{public_key[:60]!r} is no public key; expected 'ssh-ed25519 AAAA...'", remedy="cat ~/.ssh/id_ed25519.pub"
        )
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).rstrip(b"=").decode("ascii")


def public_key_in(signature: bytes) -> str | None:
    """Return the public key named in a signature (PROTOCOL.sshsig, blob format), unverified; None when it is none."""
    data = _decoded(signature)
    if data is None:
        return None
    try:
        size = int.from_bytes(data[10:14], "big")
        blob = data[14 : 14 + size]
        kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii")
    except UnicodeDecodeError:
        return None
    if data[:6] != b"SSHSIG" or len(blob) != size or not re.fullmatch(r"[a-z0-9@.-]{4,64}", kind):
        return None
    return f"{kind} {base64.b64encode(blob).decode('ascii')}"


def _decoded(signature: bytes) -> bytes | None:
    """Return the blob of an armoured signature; None where it is written as no program that signs writes it.

    ssh-keygen skips other white space and bits that base64 does not use: two texts would be one signature.
    """
    match = _ARMOUR.fullmatch(signature)
    text = match[1].replace(b"\n", b"") if match else b""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return data if text and base64.b64encode(data) == text else None


def sign(data: bytes, key: Path) -> bytes:
    """Return the signature of request bytes; with an agent, `key` may be the public half.

    Raises:
        UsageError: the key cannot sign; the terminal was not used.
    """
    hidden = {"DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS"}
    quiet = {name: value for name, value in os.environ.items() if name not in hidden}
    argv = [_tool(), "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key)]
    done = process.run(argv, timeout_s=TIMEOUT_S, input=data, env={**quiet, "SSH_ASKPASS_REQUIRE": "never"})
    if done.exit_code != 0 or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        cause = "no answer in time" if done.timed_out else _last(done.stderr)
        raise UsageError(
            f"{key} could not sign the request: {cause}",
            remedy="load it into ssh-agent, use a key without passphrase, or turn signing off: "
            "kakeya-mac init --signing-key none",
        )
    return done.stdout


def made_with(data: bytes, signature: bytes) -> str | None:
    """Return the fingerprint of the key that made a signature in our namespace over these bytes, listed or not.

    Raises:
        InfrastructureError: ssh-keygen is not there or did not answer in time.
    """
    if len(signature) > SIGNATURE_MAX_BYTES or _decoded(signature) is None:
        return None
    with tempfile.TemporaryDirectory(prefix="kakeya-signature-") as folder:
        path = Path(folder) / "signature"
        path.write_bytes(signature)
        argv = [_tool(), "-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(path)]
        done = _answer(argv, data)
    return _named(done.stdout) if done.exit_code == 0 else None


def verify(
    data: bytes, signature: bytes, *, principal: str, expected: str | None, signers: Path, revoked: Path | None = None
) -> Signer:
    """Return who signed these bytes.

    Args:
        data: the stored request bytes.
        signature: what was pushed beside them; untrusted.
        principal: whom the request names.
        expected: the key fingerprint that the request names.
        signers: the host's allowed_signers file; its options (namespaces, valid-before) hold at the present time.
        revoked: an OpenSSH revocation list of the host's owner, or None.

    Raises:
        PolicyRefusedError: malformed, unknown, expired or revoked, or not the key that the request names.
        InfrastructureError: ssh-keygen is not there or did not answer in time, which says nothing of the signature.
    """
    shaped = len(signature) <= SIGNATURE_MAX_BYTES and _decoded(signature) is not None
    if not shaped or _PRINCIPAL.fullmatch(principal) is None:
        raise PolicyRefusedError("the request's signature or principal is malformed")
    if not signers.is_file():
        raise PolicyRefusedError(
            "the request is signed and this host knows no signers", remedy=trust_command(signature, principal)
        )
    done = _verify(data, signature, namespace=NAMESPACE, principal=principal, signers=signers, revoked=revoked)
    if done.exit_code != 0:
        answer = (_last(done.stderr) or _last(done.stdout)).removeprefix(f"{signers}:")
        reason, remedy = _explain(re.sub(r"^\d+: ", "", answer), data, signature, principal, signers)
        raise PolicyRefusedError(f"the signature of principal {principal!r} is not accepted: {reason}", remedy=remedy)
    fingerprint = _named(done.stdout)
    if fingerprint != expected:
        raise PolicyRefusedError(f"the request names key {expected}, and {fingerprint} signed it")
    return Signer(principal, fingerprint)


def verify_commit(payload: bytes, signature: bytes, *, signers: Path, revoked: Path | None = None) -> Signer:
    """Return which code signer signed a commit, at the present time: a commit's own date proves nothing.

    Args:
        payload: the raw commit without its signature header.
        signature: that header's value; untrusted.
        signers: the host's list of code signers.
        revoked: an OpenSSH revocation list of the host's owner, or None.

    Raises:
        PolicyRefusedError: no listed signer signed it, or not with a key that is valid now.
        InfrastructureError: ssh-keygen is not there or did not answer in time.
    """
    if len(signature) > SIGNATURE_MAX_BYTES or not signers.is_file():
        raise PolicyRefusedError("this host knows no code signers, or the commit's signature is malformed")
    with tempfile.TemporaryDirectory(prefix="kakeya-signature-") as folder:
        path = Path(folder) / "commit.sig"
        path.write_bytes(signature)
        argv = [_tool(), "-Y", "find-principals", "-s", str(path), "-f", str(signers)]
        names = _answer(argv).stdout.decode("utf-8", "replace").split()
    for name in names[:1]:
        done = _verify(payload, signature, namespace=COMMIT_NAMESPACE, principal=name, signers=signers, revoked=revoked)
        if done.exit_code == 0:
            return Signer(name, _named(done.stdout))
    raise PolicyRefusedError("no code signer of this host signed it")


def _explain(answer: str, data: bytes, signature: bytes, principal: str, signers: Path) -> tuple[str, str]:
    """Return why a signature is not accepted, and what would change that.

    Args:
        answer: the tool's last line, without the file that it read.
        data: the stored request bytes.
        signature: what was pushed beside them, well shaped.
        principal: whom the request names.
        signers: the list that was gone by.
    """
    if made_with(data, signature) is None:
        return f"{answer}; it was not made over this request, or not for requests", _SIGN_AGAIN
    key = public_key_in(signature)
    blob = None if key is None else key.split()[1]
    lines = [line.split() for line in signers.read_text("utf-8", "replace").splitlines()]
    names = [words[0].split(",") for words in lines if blob in words[1:]]
    if names and all(re.fullmatch(PRINCIPAL_PATTERN, name) and name != principal for line in names for name in line):
        return "this host lists the key under another name", _USE_OWN_NAME
    if any(principal in words[0].split(",") for words in lines if words) and not names:
        return (
            answer,
            f"{principal} is listed with another key; if it was lost, its holder tells the owner, who replaces it",
        )
    return answer, trust_command(signature, principal)


def trust_command(signature: bytes, principal: str, *, code: bool = False) -> str:
    """Return the owner's one command that would make this key trusted."""
    key = public_key_in(signature)
    shown = f"'{key}'" if key is not None and len(key) <= _SHOWN_KEY_CHARS else "KEY"
    command = f"kakeya-runner trust add {shown}{' --code' * code} --principal {principal}"
    if key is not None and key.startswith("ssh-ed25519 ") and not code:
        command = f"kakeya-runner welcome '{principal} {key}'"
    return f"if the host's owner knows this key: {command}"


def _verify(
    data: bytes, signature: bytes, *, namespace: str, principal: str, signers: Path, revoked: Path | None
) -> process.Completed:
    with tempfile.TemporaryDirectory(prefix="kakeya-signature-") as folder:
        path = Path(folder) / "signature"
        path.write_bytes(signature)
        argv = [_tool(), "-Y", "verify", "-n", namespace, "-I", principal, "-f", str(signers), "-s", str(path)]
        if revoked is not None and revoked.is_file():
            argv += ["-r", str(revoked)]
        return _answer(argv, data)


def _answer(argv: list[str], data: bytes = b"") -> process.Completed:
    """Return what ssh-keygen said of a signature; one that a busy host did not let answer said nothing.

    Raises:
        InfrastructureError: it did not answer in time.
    """
    done = process.run(argv, timeout_s=TIMEOUT_S, input=data)
    if done.timed_out:
        raise InfrastructureError(f"ssh-keygen did not answer within {TIMEOUT_S:.0f} s", remedy="look at its load")
    return done


def _named(stdout: bytes) -> str:
    match = _FOUND.search(stdout)
    if match is None:
        raise InfrastructureError(
            "ssh-keygen accepted a signature and named no key", remedy="update OpenSSH to 8.9 or newer"
        )
    return match.group(1).decode("ascii")


def _tool() -> str:
    path = shutil.which("ssh-keygen")
    if path is None:
        raise InfrastructureError("ssh-keygen is not installed", remedy="install the OpenSSH client")
    return path


def _last(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
