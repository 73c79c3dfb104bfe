"""Sign and check short statements with runner keys: ed25519 over DSSE's encoding, in this process.

The same key and encoding as attestations, with payload types of their own, so that no signature of one kind is
accepted as the other. Knows bytes and keys; the statement is built in `bridge.trust.seals`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.records import KeyRecord

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def encoding(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding (PAE) of https://github.com/secure-systems-lab/dsse, protocol.md."""
    kind = payload_type.encode("ascii")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(payload_type: str, payload: bytes, key: Ed25519PrivateKey) -> str:
    """Return the signature of a payload, base64."""
    return base64.b64encode(key.sign(encoding(payload_type, payload))).decode("ascii")


def signer_of(payload_type: str, payload: bytes, signature: str, keys: Sequence[KeyRecord]) -> KeyRecord | None:
    """Return the first of these keys that made a signature, None when none did."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    data = encoding(payload_type, payload)
    for key in keys:
        try:
            public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.public, validate=True))
            public.verify(base64.b64decode(signature, validate=True), data)
        except (InvalidSignature, ValueError):
            continue
        return key
    return None
