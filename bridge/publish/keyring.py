"""Public keys of runners: how they are written down, and how one vouches for the next.

Knows no disk. Which keys a reader trusts is the reader's decision; a vouched key is trusted as its predecessor is.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence

from bridge.errors import UsageError
from bridge.records import KeyRecord

PUBLIC_FILE = "runner.keys.json"  # beside the private key; every public record, oldest first
ROTATION_CONTEXT = b"kakeya runner key rotation v1\n"
_RAW_BYTES = 32


def pinned(text: str, where: str) -> KeyRecord:
    """Return the record of a key as people pin it.

    Raises:
        UsageError: it is not 32 bytes in base64.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _RAW_BYTES or base64.b64encode(raw).decode() != text:
        raise UsageError(
            f"{where}: got key {text[:80]!r}; expected the 44 characters that `kakeya-runner keygen` prints"
        )
    return KeyRecord(name="pinned", algorithm="ed25519", public=text)


def encode(records: Sequence[KeyRecord]) -> bytes:
    """Return the content of `PUBLIC_FILE`."""
    return json.dumps([one.model_dump(mode="json") for one in records], indent=1).encode()


def decode(data: bytes) -> tuple[KeyRecord, ...]:
    """Return the records in `PUBLIC_FILE`.

    Raises:
        ValueError: it is not what `encode` wrote.
    """
    value = json.loads(data)
    if not isinstance(value, list):
        raise ValueError("expected a list")  # noqa: TRY004 - one error for whatever is wrong with the bytes
    return tuple(KeyRecord.model_validate_json(json.dumps(one)) for one in value)


def followed(trusted: Sequence[KeyRecord], offered: Sequence[KeyRecord]) -> tuple[KeyRecord, ...]:
    """Return the trusted keys and every offered one that they vouch for, directly or through another."""
    found = list(trusted)
    left = [one for one in offered if one.vouched_by is not None]
    grew = bool(found)
    while grew and left:
        reached = [new for new in left if any(vouched(new, old) for old in found)]
        left = [new for new in left if new not in reached]
        found += reached
        grew = bool(reached)
    return tuple({one.public: one for one in found}.values())


def vouched(new: KeyRecord, old: KeyRecord) -> bool:
    """Return whether the old key vouches for the new one."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    words = (new.vouched_by or "").split(" ")
    if len(words) != 2 or words[0] != old.public:
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(old.public, validate=True))
        key.verify(base64.b64decode(words[1], validate=True), ROTATION_CONTEXT + new.public.encode("ascii"))
    except (InvalidSignature, ValueError):
        return False
    return True
