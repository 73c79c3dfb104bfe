"""Sign and verify request bytes with ssh keys: `ssh-keygen -Y` under a namespace of our own.

The stored bytes are the signed bytes; they carry bus, ref, id and expiry, so a signature is worth nothing elsewhere.
Exit codes decide; ssh-keygen prints "Good signature" even where its code is not 0. Everything it reads is named on its
command line: no user or repository configuration is consulted. Format: OpenSSH PROTOCOL.sshsig.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import InfrastructureError, PolicyRefusedError, UsageError
from bridge.system import process

NAMESPACE = "kakeya-request-v1"
SIGNATURE_MAX_BYTES = 16 * 1024
TIMEOUT_S = 20.0
_FINGERPRINT = re.compile(rb"\bkey (SHA256:[A-Za-z0-9+/]{43})\s*$", re.MULTILINE)
_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")


@dataclass(frozen=True)
class Signer:
    """Who signed: a principal of the host's list, and the fingerprint of the key."""

    principal: str
    fingerprint: str


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


def sign(data: bytes, key: Path) -> bytes:
    """Return the signature of request bytes; with an agent, `key` may be the public half.

    Raises:
        UsageError: the key cannot sign; nothing was asked of a terminal.
    """
    done = process.run([_tool(), "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key)], timeout_s=TIMEOUT_S, input=data)
    if done.exit_code != 0 or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise UsageError(
            f"{key} could not sign the request: {_last(done.stderr)}",
            remedy="load it into ssh-agent, or use a key without passphrase",
        )
    return done.stdout


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
        revoked: the host's revocation list, or None.

    Raises:
        PolicyRefusedError: malformed, unknown, expired or revoked, or not the key that the request names.
    """
    if len(signature) > SIGNATURE_MAX_BYTES or _PRINCIPAL.fullmatch(principal) is None:
        raise PolicyRefusedError("the request's signature or principal is malformed")
    if not signers.is_file():
        raise PolicyRefusedError(
            "the request is signed and this host knows no signers",
            remedy="kakeya-runner trust add KEY --principal NAME",
        )
    with tempfile.TemporaryDirectory(prefix="kakeya-signature-") as folder:
        path = Path(folder) / "request.sig"
        path.write_bytes(signature)
        argv = [_tool(), "-Y", "verify", "-n", NAMESPACE, "-I", principal, "-f", str(signers), "-s", str(path)]
        if revoked is not None and revoked.is_file():
            argv += ["-r", str(revoked)]
        done = process.run(argv, timeout_s=TIMEOUT_S, input=data)
    if done.exit_code != 0:
        raise PolicyRefusedError(
            f"the signature of principal {principal!r} is not accepted: {_last(done.stderr) or _last(done.stdout)}",
            remedy="the host's owner adds the key with `kakeya-runner trust add KEY --principal NAME`",
        )
    match = _FINGERPRINT.search(done.stdout)
    if match is None:
        raise InfrastructureError(
            "ssh-keygen accepted a signature and named no key", remedy="update OpenSSH to 8.9 or newer"
        )
    found = match.group(1).decode("ascii")
    if found != expected:
        raise PolicyRefusedError(f"the request names key {expected}, and {found} signed it")
    return Signer(principal, found)


def _tool() -> str:
    found = shutil.which("ssh-keygen")
    if found is None:
        raise InfrastructureError("ssh-keygen is not installed", remedy="install the OpenSSH client")
    return found


def _last(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
