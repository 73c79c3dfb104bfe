"""Keys of runners: their text, their file, and the signatures (DSSE) that they make.

Knows no disk. A reader decides which keys it trusts; each key is trusted for one runner, the one that the reader's pin
or the root names.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.records.bus import KeyRecord
    from bridge.trust.signing_key import SigningKey

PUBLIC_FILE = "runner.keys.json"  # beside the private key; every public record, oldest first
_RAW_BYTES = 32
_KEY_CHARS = 44  # of its base64 text


def pin(record: KeyRecord) -> str:
    """Return a key as people pin it: ``NAME=KEY``."""
    return f"{record.name}={record.public}"


def pinned(text: str, where: str) -> KeyRecord:
    """Return the record of a key as people pin it, ``NAME=KEY``: trusted for the runner of that name and no other.

    Raises:
        UsageError: it names no runner, or the key is not 32 bytes in base64.
    """
    name, _, public = text.partition("=")
    record = _record(name, public)
    if record is None:
        raise UsageError(
            f"{where}: got runner key {text[:120]!r}; expected NAME=KEY, a runner's name and its key "
            f"of {_KEY_CHARS} base64 characters",
            remedy="ask the host's owner for the line that `kakeya-runner doctor` prints at `key`",
        )
    return record


def _record(name: str, public: str) -> KeyRecord | None:
    from bridge.records.bus import KeyRecord

    try:
        raw = base64.b64decode(public, validate=True)
        record = KeyRecord(name=name, algorithm="ed25519", public=public)
    except ValueError:  # binascii.Error and pydantic.ValidationError are ValueErrors
        return None
    return record if len(raw) == _RAW_BYTES and base64.b64encode(raw).decode() == public else None


def encode(records: Sequence[KeyRecord]) -> bytes:
    """Return the content of `PUBLIC_FILE`."""
    return json.dumps([record.model_dump(mode="json") for record in records], indent=1).encode()


def decode(data: bytes) -> tuple[KeyRecord, ...]:
    """Return the records in `PUBLIC_FILE`.

    Raises:
        ValueError: it is not what `encode` wrote.
    """
    from bridge.records.bus import KeyRecord

    value = json.loads(data)
    if not isinstance(value, list):
        raise ValueError("expected a list")  # noqa: TRY004 - one error for whatever is wrong with the bytes
    return tuple(KeyRecord.model_validate_json(json.dumps(entry)) for entry in value)


def encoding(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding (PAE) of https://github.com/secure-systems-lab/dsse, protocol.md.

    It signs the type with the payload, so that a signature of a seal is never accepted as one of an attestation.
    """
    kind = payload_type.encode("ascii")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(payload_type: str, payload: bytes, key: SigningKey) -> str:
    """Return the DSSE signature of a payload, base64."""
    return base64.b64encode(key.sign(encoding(payload_type, payload))).decode("ascii")


def signer_of(payload_type: str, payload: bytes, signature: str, keys: Iterable[str]) -> str | None:
    """Return the first of these public keys, base64, that made a DSSE signature; None when none did."""
    data = encoding(payload_type, payload)
    return next((key for key in keys if _verify(key, signature, data)), None)


def _verify(key: str, signature: str, data: bytes) -> bool:
    """Return whether a base64 ed25519 signature of these bytes is by this key; malformed base64 is not."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
        public.verify(base64.b64decode(signature, validate=True), data)
    except (InvalidSignature, ValueError):
        return False
    return True
