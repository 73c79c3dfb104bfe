"""A request that a FIDO key (`sk-`) signed is verified by OpenSSH; the authenticator is imitated, byte for byte.

Formats: OpenSSH PROTOCOL.sshsig (what is signed) and PROTOCOL.u2f (what an authenticator adds to it).
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bridge.errors import PolicyRefusedError
from bridge.trust.ssh_signatures import NAMESPACE, fingerprint_of, verify

pytestmark = pytest.mark.needs("ssh-keygen")

KIND, APPLICATION = b"sk-ssh-ed25519@openssh.com", b"ssh:"


def text(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Authenticator:
    """A key that signs application, flags, counter and a digest, as a FIDO device does."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._blob = text(KIND) + text(self._key.public_key().public_bytes_raw()) + text(APPLICATION)
        self.public = f"{KIND.decode()} {base64.b64encode(self._blob).decode()}"

    def sign(self, data: bytes) -> bytes:
        """Return an armoured SSHSIG over some bytes."""
        head = text(NAMESPACE.encode()) + text(b"") + text(b"sha512")
        signed = b"SSHSIG" + head + text(hashlib.sha512(data).digest())
        state = b"\x01" + (7).to_bytes(4, "big")
        digest = hashlib.sha256(APPLICATION).digest() + state + hashlib.sha256(signed).digest()
        signature = text(KIND) + text(self._key.sign(digest)) + state
        blob = b"SSHSIG" + (1).to_bytes(4, "big") + text(self._blob) + head + text(signature)
        body = base64.encodebytes(blob).decode().replace("\n", "")
        lines = "\n".join(body[at : at + 70] for at in range(0, len(body), 70))
        return f"-----BEGIN SSH SIGNATURE-----\n{lines}\n-----END SSH SIGNATURE-----\n".encode()


def test_a_fido_key_counts_and_another_one_or_other_bytes_do_not(tmp_path: Path) -> None:
    key, data = Authenticator(), b'{"a":"request"}'
    signers = tmp_path / "allowed_signers"
    signers.write_text(f'alice namespaces="{NAMESPACE}" {key.public}\n')
    expected = fingerprint_of(key.public)
    signer = verify(data, key.sign(data), principal="alice", expected=expected, signers=signers)
    assert (signer.principal, signer.fingerprint) == ("alice", expected)
    for signed, signature in ((b"other", key.sign(data)),
                              (data, Authenticator().sign(data))):  # fmt: skip
        with pytest.raises(PolicyRefusedError):
            verify(signed, signature, principal="alice", expected=expected, signers=signers)
