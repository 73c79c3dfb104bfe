"""Sign with an ed25519 key, of a runner or of an owner, that lies in a file or in an ssh-agent.

A file holds the private key, as PKCS#8 or in OpenSSH's format, and is its user's alone. A file that ends in ``.pub``
holds the public half only: then the agent of ``SSH_AUTH_SOCK`` signs.

Knows no name and no statement.
"""

from __future__ import annotations

import base64
import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from bridge.errors import InfrastructureError
from bridge.system.ssh_agent import agent_sign, ed25519_of, ssh_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import Signature, SSlibKey

_SECRET_MAX_BYTES = 16 * 1024


class SigningKey(Protocol):
    """A key that can sign; where its private half is, is its own business."""

    @property
    def public(self) -> str:
        """The 32 bytes of the public key, base64."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return the ed25519 signature of some bytes.

        Raises:
            InfrastructureError: the key does not sign.
        """
        ...


@dataclass(frozen=True)
class FileKey:
    """A private key that was read from a file."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> str:
        """The 32 bytes of the public key, base64."""
        return base64.b64encode(self.private.public_key().public_bytes_raw()).decode("ascii")

    def sign(self, data: bytes) -> bytes:
        """Return the signature."""
        return self.private.sign(data)


@dataclass(frozen=True)
class AgentKey:
    """A key whose private half an ssh-agent holds."""

    public: str

    def sign(self, data: bytes) -> bytes:
        """Return the agent's signature.

        Raises:
            InfrastructureError: the agent does not answer, or not with this key.
        """
        return agent_sign(base64.b64decode(self.public), data)


@dataclass(frozen=True)
class MetadataSigner:
    """A key as securesystemslib signs envelopes and metadata with it."""

    key: SigningKey

    @property
    def public_key(self) -> SSlibKey:
        """The public key as it verifies."""
        return verifying_key(self.key.public)

    def sign(self, payload: bytes) -> Signature:
        """Return the signature, with the id of the key."""
        from securesystemslib.signer import Signature

        return Signature(self.public_key.keyid, self.key.sign(payload).hex())


def verifying_key(public: str) -> SSlibKey:
    """Return the verifying key of 32 bytes in base64."""
    from securesystemslib.signer import SSlibKey

    raw = base64.b64decode(public, validate=True)
    return SSlibKey(key_id(public), "ed25519", "ed25519", {"public": raw.hex()})


def key_id(public: str) -> str:
    """Return the id of a public key: sha256 over its base64 text."""
    import hashlib

    return hashlib.sha256(public.encode("ascii")).hexdigest()


def open_key(path: Path) -> SigningKey:
    """Return the key of a file: the private key in it, or the agent's whose public half it holds.

    Raises:
        InfrastructureError: missing, unreadable, not ed25519, or a private key that others may read.
    """
    if path.suffix == ".pub":
        try:
            return AgentKey(base64.b64encode(ed25519_of(path.read_text("utf-8", "replace"))).decode("ascii"))
        except OSError as error:
            raise InfrastructureError(f"cannot read {path}: {error.strerror}", remedy="kakeya-runner keygen") from error
        except ValueError as error:
            raise InfrastructureError(f"{path} is no ed25519 key: {error}", remedy="kakeya-runner keygen") from error
    return FileKey(_read_private(path))


def make_key(path: Path, form: Literal["pkcs8", "openssh"] = "pkcs8") -> SigningKey:
    """Make a new key in a file that is its user's alone, and that was not there.

    Args:
        path: the file.
        form: ``openssh`` for keys that people handle: ssh-add loads it, ssh-keygen -l shows its fingerprint.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return write_key(path, Ed25519PrivateKey.generate(), form)


def given_key(raw: bytes) -> FileKey:
    """Return the key of 32 private bytes.

    Raises:
        ValueError: these are not 32 bytes.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return FileKey(Ed25519PrivateKey.from_private_bytes(raw))


def write_key(path: Path, key: Ed25519PrivateKey, form: Literal["pkcs8", "openssh"] = "pkcs8") -> SigningKey:
    """Write a key into a file that is its user's alone, and that was not there; see `make_key`."""
    from cryptography.hazmat.primitives import serialization

    private_format = serialization.PrivateFormat.PKCS8 if form == "pkcs8" else serialization.PrivateFormat.OpenSSH
    text = key.private_bytes(serialization.Encoding.PEM, private_format, serialization.NoEncryption())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        os.fsync(file.fileno())
    return FileKey(key)


def public_text(key: SigningKey) -> str:
    """Return a public key as OpenSSH writes it."""
    return ssh_text(base64.b64decode(key.public))


def _read_private(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise InfrastructureError(f"{path} is no regular file of this user", remedy="kakeya-runner keygen")
        if (mode := stat.S_IMODE(status.st_mode)) & (stat.S_IRWXG | stat.S_IRWXO):
            remedy = f"chmod 600 {shlex.quote(str(path))}"
            raise InfrastructureError(f"{path} is open to others (mode {mode:o})", remedy=remedy)
        data = path.read_bytes()[:_SECRET_MAX_BYTES]
        load = serialization.load_ssh_private_key if b"OPENSSH" in data[:64] else serialization.load_pem_private_key
        key = load(data, password=None)
    except OSError as error:
        raise InfrastructureError(f"cannot read {path}: {error.strerror}", remedy="kakeya-runner keygen") from error
    except (ValueError, TypeError) as error:
        raise InfrastructureError(
            f"{path} is no private key without a passphrase", remedy="load it into ssh-agent and name its .pub file"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InfrastructureError(f"{path} is not an ed25519 key", remedy="kakeya-runner keygen")
    return key
