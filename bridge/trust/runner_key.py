"""The runner's own key: made once, readable by the runner alone, rotated by a signature of the old key.

Knows files; what is signed is decided elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import InfrastructureError, UsageError
from bridge.records import KeyRecord
from bridge.system.durable import write_atomically
from bridge.trust.keyring import PUBLIC_FILE, ROTATION_CONTEXT, decode, encode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import CryptoSigner

KEY_FILE = "runner.key"


def generate(folder: Path, name: str) -> KeyRecord:
    """Make the runner's key and return its public record.

    Raises:
        UsageError: there is a key already; rotate it instead of losing it.
    """
    path = folder / KEY_FILE
    if path.exists():
        raise UsageError(
            f"{path} exists", remedy="kakeya-runner keygen --rotate keeps readers able to follow the change"
        )
    record = _record(_write_new(path), name, None)
    _publish(folder, record)
    return record


def rotate(folder: Path, name: str) -> KeyRecord:
    """Replace the key by a new one that the old one signs; the old file is kept beside it.

    The new public record is written down before the key changes, so a crash in between leaves the old key in use.

    Raises:
        InfrastructureError: there is no key to rotate.
    """
    old = _read(folder / KEY_FILE)
    old_public = _public(old)
    fresh = folder / f"{KEY_FILE}.new"
    fresh.unlink(missing_ok=True)
    key = _write_new(fresh)
    signature = old.sign(ROTATION_CONTEXT + _public(key).encode("ascii"))
    record = _record(key, name, f"{old_public} {base64.b64encode(signature).decode('ascii')}")
    _publish(folder, record)
    kept = folder / f"{KEY_FILE}.{hashlib.sha256(old_public.encode()).hexdigest()[:16]}"
    kept.unlink(missing_ok=True)
    os.link(folder / KEY_FILE, kept)
    fresh.replace(folder / KEY_FILE)
    return record


def published(folder: Path) -> tuple[KeyRecord, ...]:
    """Return every public record of this runner's keys, oldest first; none when there was never a key.

    Raises:
        InfrastructureError: the file is not what this program wrote.
    """
    path = folder / PUBLIC_FILE
    if not path.exists():
        return ()
    try:
        return decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InfrastructureError(f"{path} is no list of keys", remedy="kakeya-runner keygen --rotate") from error


def publish_as(folder: Path, name: str) -> None:
    """Publish the key in use under the runner's present name, as readers trust a key for one name."""
    for record in published(folder)[-1:]:
        if record.name != name:
            _publish(folder, record.evolve(name=name))


def _publish(folder: Path, record: KeyRecord) -> None:
    write_atomically(folder / PUBLIC_FILE, encode((*published(folder), record)))


def load(folder: Path, name: str) -> tuple[CryptoSigner, KeyRecord]:
    """Return the signer and the public record of the runner's key.

    Raises:
        InfrastructureError: missing, unreadable, not ed25519, or readable by others.
    """
    from securesystemslib.signer import CryptoSigner

    from bridge.trust.attestation import public_key

    key = _read(folder / KEY_FILE)
    record = _record(key, name, None)
    known = next((one for one in published(folder) if one.public == record.public), record)
    return CryptoSigner(key, public_key(record.public)), known


def private(folder: Path) -> Ed25519PrivateKey:
    """Return the runner's private key.

    Raises:
        InfrastructureError: missing, unreadable, not ed25519, or readable by others.
    """
    return _read(folder / KEY_FILE)


def _write_new(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        os.fsync(file.fileno())
    return key


def _read(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        found = path.lstat()
        mode = found.st_mode
        if not stat.S_ISREG(mode) or found.st_uid != os.geteuid():
            raise InfrastructureError(f"{path} is no regular file of this user", remedy="kakeya-runner keygen")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InfrastructureError(
                f"{path} is open to others (mode {stat.S_IMODE(mode):o})", remedy=f"chmod 600 {path}"
            )
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise InfrastructureError(f"cannot read {path}: {error.strerror}", remedy="kakeya-runner keygen") from error
    except ValueError as error:
        raise InfrastructureError(f"{path} is no private key", remedy="kakeya-runner keygen --rotate") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InfrastructureError(f"{path} is not an ed25519 key", remedy="kakeya-runner keygen")
    return key


def _public(key: Ed25519PrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return base64.b64encode(raw).decode("ascii")


def _record(key: Ed25519PrivateKey, name: str, vouched_by: str | None) -> KeyRecord:
    return KeyRecord(name=name, algorithm="ed25519", public=_public(key), vouched_by=vouched_by)
