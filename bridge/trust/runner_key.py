"""The runner's own key: made once, usable by the runner alone, replaced by a new one that its owner makes known.

It lies in `runner.key` of the state folder, or in an ssh-agent, when `runner.pub` holds its public half.

Knows files; what is signed is decided elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from bridge.errors import InfrastructureError, UsageError
from bridge.records.bus import KeyRecord
from bridge.system.durable import write_atomically
from bridge.trust.keyring import PUBLIC_FILE, decode, encode
from bridge.trust.signing_key import (
    AgentKey,
    MetadataSigner,
    SigningKey,
    given_key,
    make_key,
    open_key,
    public_text,
    write_key,
)

KEY_FILE = "runner.key"
AGENT_FILE = "runner.pub"


def generate(folder: Path, name: str) -> KeyRecord:
    """Make the runner's key and return its public record.

    Raises:
        UsageError: there is a key already; rotate it instead of losing it.
    """
    if has_key(folder):
        raise UsageError(f"{key_path(folder)} exists", remedy="kakeya-runner keygen --rotate makes a new one")
    record = _record(make_key(folder / KEY_FILE), name)
    _publish(folder, record)
    return record


def adopt(folder: Path, name: str, raw: bytes) -> KeyRecord:
    """Sign with a key that was given, as its 32 private bytes; the folder has none yet.

    Raises:
        ValueError: these are not 32 bytes.
    """
    record = _record(write_key(folder / KEY_FILE, given_key(raw).private), name)
    _publish(folder, record)
    return record


def use_agent(folder: Path, name: str, public: Path) -> KeyRecord:
    """Sign with a key of an ssh-agent from now on; an older key file is put aside.

    Args:
        folder: the state folder.
        name: the runner's name.
        public: the file of the public half.

    Raises:
        InfrastructureError: it is no ed25519 key, or the agent does not sign with it.
    """
    key = open_key(public) if public.suffix == ".pub" else None
    if not isinstance(key, AgentKey):
        raise UsageError(f"{public} is no public key file", remedy="name the .pub file of a key that the agent holds")
    key.sign(b"a trial")
    if (folder / KEY_FILE).exists():
        _put_aside(folder / KEY_FILE, open_key(folder / KEY_FILE).public)
        (folder / KEY_FILE).unlink()
    write_atomically(folder / AGENT_FILE, f"{public_text(key)}\n".encode())
    record = _record(key, name)
    _publish(folder, record)
    return record


def rotate(folder: Path, name: str) -> KeyRecord:
    """Replace the key by a new one; the old file is kept beside it.

    The new public record is written down before the key changes, so a crash in between leaves the old key in use.

    Raises:
        InfrastructureError: there is no key to rotate.
    """
    old_public = open_key(folder / KEY_FILE).public
    fresh = folder / f"{KEY_FILE}.new"
    fresh.unlink(missing_ok=True)
    record = _record(make_key(fresh), name)
    _publish(folder, record)
    _put_aside(folder / KEY_FILE, old_public)
    fresh.replace(folder / KEY_FILE)
    return record


def has_key(folder: Path) -> bool:
    """Return whether there is a key to sign with."""
    return (folder / KEY_FILE).exists() or (folder / AGENT_FILE).exists()


def key_path(folder: Path) -> Path:
    """Return the file that says which key signs."""
    agent = folder / AGENT_FILE
    return agent if agent.exists() and not (folder / KEY_FILE).exists() else folder / KEY_FILE


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


def load(folder: Path, name: str) -> tuple[MetadataSigner, KeyRecord]:
    """Return the signer and the public record of the runner's key.

    Raises:
        InfrastructureError: missing, unreadable, not ed25519, or readable by others.
    """
    key = signing_key(folder)
    record = _record(key, name)
    return MetadataSigner(key), next((entry for entry in published(folder) if entry.public == record.public), record)


def signing_key(folder: Path) -> SigningKey:
    """Return the key that the runner signs with.

    Raises:
        InfrastructureError: missing, unreadable, not ed25519, or readable by others.
    """
    return open_key(key_path(folder))


def _publish(folder: Path, record: KeyRecord) -> None:
    write_atomically(folder / PUBLIC_FILE, encode((*published(folder), record)))


def _put_aside(path: Path, public: str) -> None:
    backup = path.with_name(f"{path.name}.{hashlib.sha256(public.encode()).hexdigest()[:16]}")
    backup.unlink(missing_ok=True)
    os.link(path, backup)


def _record(key: SigningKey, name: str) -> KeyRecord:
    return KeyRecord(name=name, algorithm="ed25519", public=key.public)
