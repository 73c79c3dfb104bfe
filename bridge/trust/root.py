"""Read and write a bus's trust root: who owns the bus, and which key is whose.

A root is a set of files: `N.root.json` for every version of the owner's key, `targets.json`, and what that lists by
digest. The JSON is TUF metadata and is checked by python-tuf (https://theupdateframework.github.io/specification/latest/,
sections 5.3 and 5.6); what is read and refused beyond that is in docs/protocol.md, section 11.

Knows no disk, no bus and no clock.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar, cast

from bridge.errors import IntegrityError
from bridge.records.bus import BusRecord
from bridge.system.clock import parse_rfc3339
from bridge.system.ssh_agent import ed25519_of, ssh_text
from bridge.trust.judgement import KeyAuthority, NamedKey
from bridge.trust.keyring import pinned
from bridge.trust.signing_key import MetadataSigner, SigningKey, verifying_key
from bridge.trust.ssh_signatures import fingerprint_of

if TYPE_CHECKING:
    from securesystemslib.signer import Signer
    from tuf.api.metadata import Metadata, Root, Targets

TARGETS_FILE: Final = "targets.json"
BUS_FILE: Final = "bus.json"
RUNNERS_FILE: Final = "runners"
SIGNERS_FILE: Final = "allowed_signers"
REVOKED_FILE: Final = "revoked"
LISTED: Final = (BUS_FILE, RUNNERS_FILE, SIGNERS_FILE, REVOKED_FILE)
VERSIONS_MAX_COUNT: Final = 64
FILE_MAX_BYTES: Final = 256 * 1024
LIFETIME: Final = dt.timedelta(days=3653)
_ROLES: Final = ("root", "targets", "snapshot", "timestamp")  # all the owner's: TUF demands that a root lists them
_T = TypeVar("_T", "Root", "Targets")


class RootError(IntegrityError):
    """A root is not whole, not signed by its owner, another bus's, or older than the one that is known."""


@dataclass(frozen=True)
class RootContent:
    """What an owner says of a bus.

    Attributes:
        record: the bus record.
        runners: the keys of its runners, retired ones included.
        signers: lines of requesters and code signers, in OpenSSH's allowed_signers format.
        revoked: when a key, by its text or fingerprint, was revoked; seconds since the epoch.
    """

    record: BusRecord
    runners: tuple[NamedKey, ...] = ()
    signers: tuple[str, ...] = ()
    revoked: Mapping[str, float] | None = None

    def files(self) -> dict[str, bytes]:
        """Return the files that `targets.json` lists."""
        runners = (
            " ".join(filter(None, (runner.name, runner.key, _moment(runner.since or 0.0), _until(runner))))
            for runner in self.runners
        )
        revoked = (f"{key} {_moment(at)}" for key, at in sorted((self.revoked or {}).items()))
        return {
            BUS_FILE: self.record.canonical(),
            RUNNERS_FILE: _lines(runners),
            SIGNERS_FILE: _lines(self.signers),
            REVOKED_FILE: _lines(revoked),
        }


@dataclass(frozen=True)
class TrustRoot:
    """A root whose every signature holds.

    Attributes:
        version: of the owner's key, from 1.
        targets_version: of what the owner says, from 1.
        owners: fingerprints of the owner's keys, oldest first; the last is the present one.
        expires: when it should have been signed anew, seconds since the epoch.
        files: all of its files, as they lie on the bus.
    """

    version: int
    targets_version: int
    owners: tuple[str, ...]
    expires: float
    content: RootContent
    files: Mapping[str, bytes]

    @property
    def owner(self) -> str:
        """The fingerprint of the owner's present key."""
        return self.owners[-1]

    @property
    def bus_id(self) -> str:
        """The bus that it is about."""
        return self.content.record.bus_id

    def authority(self, *, vouched: bool) -> KeyAuthority:
        """Return what it says about the keys of runners.

        Args:
            vouched: whether somebody told this reader the owner's key.
        """
        return KeyAuthority(
            self.content.runners,
            self.content.revoked or {},
            f"root {self.version}.{self.targets_version} of {self.owner[:15]}",
            bus_id=self.bus_id,
            first_use=None if vouched else self.owner,
        )


def read_root(files: Mapping[str, bytes], newest: TrustRoot | None = None, pin: str | None = None) -> TrustRoot:
    """Return the root in these files, after every signature and digest was checked.

    Args:
        files: untrusted.
        newest: of the roots that this reader has seen of the bus; None for none.
        pin: the fingerprint of an owner's key that this reader was told.

    Raises:
        RootError: not whole, not the owner's, older than or beside the known one, or without a revocation of it.
    """
    if any(len(data) > FILE_MAX_BYTES for data in files.values()):
        raise RootError(f"a file of the root has more than {FILE_MAX_BYTES} bytes")
    roots = _walk(files, newest)
    owners = tuple(_owner_of(root) for root in roots)
    if pin is not None and pin not in owners:
        raise RootError(
            f"the root's owner is {owners[-1]}, and {pin} was expected",
            remedy="ask the bus's owner for the fingerprint that `kakeya-runner trust show` prints",
        )
    targets = _metadata(files, TARGETS_FILE, _targets_type())
    _require_signed(roots[-1], "targets", targets, f"{TARGETS_FILE} is not signed by the owner {owners[-1]}")
    content = _content(files, targets)
    expires = min(roots[-1].signed.expires, targets.signed.expires).timestamp()
    root = TrustRoot(
        len(roots), targets.signed.version, owners, expires, content,
        {name: files[name] for name in (*(f"{n}.root.json" for n in range(1, len(roots) + 1)), TARGETS_FILE, *LISTED)},
    )  # fmt: skip
    if newest is not None:
        _require_newer(root, newest)
    return root


def write_root(
    content: RootContent,
    owner: SigningKey,
    now: dt.datetime,
    before: TrustRoot | None = None,
    successor: SigningKey | None = None,
) -> dict[str, bytes]:
    """Return the files of the next root: what the owner says now, signed.

    Args:
        content: what the owner says.
        owner: the owner's present key.
        now: when.
        before: the root that it follows, None for a first one.
        successor: the owner's new key, None where it stays.

    Raises:
        RootError: the key is not the present owner's.
    """
    from tuf.api.metadata import Metadata, TargetFile, Targets

    expires = now.astimezone(dt.UTC).replace(microsecond=0) + LIFETIME
    files = {} if before is None else {n: data for n, data in before.files.items() if n.endswith(".root.json")}
    if before is not None and before.owner != fingerprint(owner.public):
        raise RootError(f"the owner of this bus is {before.owner}, and this key is {fingerprint(owner.public)}")
    if before is None or successor is not None:
        signers = [owner] if before is None else [owner, cast("SigningKey", successor)]
        files[f"{len(files) + 1}.root.json"] = _new_root(len(files) + 1, signers, expires)
    listed = content.files()
    targets = Targets(
        version=1 if before is None else before.targets_version + 1,
        expires=expires,
        targets={
            name: TargetFile(len(data), {"sha256": hashlib.sha256(data).hexdigest()}, name)
            for name, data in listed.items()
        },
    )
    metadata = Metadata(targets)
    metadata.sign(cast("Signer", MetadataSigner(successor or owner)))
    return {**files, TARGETS_FILE: metadata.to_bytes(), **listed}


def fingerprint(public: str) -> str:
    """Return the OpenSSH fingerprint of an ed25519 key, 32 bytes in base64."""
    return fingerprint_of(ssh_text(base64.b64decode(public)))


def fingerprint_in(text: str) -> str:
    """Return the fingerprint that a text is, or that of the key in it: ``SHA256:…`` or ``ssh-ed25519 AAAA…``.

    Raises:
        ValueError: it is neither.
    """
    if text.startswith("SHA256:"):
        return text
    return fingerprint_of(ssh_text(ed25519_of(text)))


def _new_root(version: int, signers: Sequence[SigningKey], expires: dt.datetime) -> bytes:
    """Return a version of the owner's key, the last of these, signed by each of them."""
    from tuf.api.metadata import Metadata, Root

    root = Root(version=version, expires=expires, consistent_snapshot=False)
    for role in _ROLES:
        root.add_key(verifying_key(signers[-1].public), role)
    metadata = Metadata(root)
    for signer in signers:
        metadata.sign(cast("Signer", MetadataSigner(signer)), append=True)
    return metadata.to_bytes()


def _walk(files: Mapping[str, bytes], newest: TrustRoot | None) -> list[Metadata[Root]]:
    """Return every version of the owner's key, each signed by itself and by the one before."""
    from tuf.api.metadata import Root

    count = sum(name.endswith(".root.json") for name in files)
    if not 1 <= count <= VERSIONS_MAX_COUNT:
        raise RootError(f"the root has {count} versions; expected 1 to {VERSIONS_MAX_COUNT}")
    roots: list[Metadata[Root]] = []
    for number in range(1, count + 1):
        name = f"{number}.root.json"
        root = _metadata(files, name, Root)
        if root.signed.version != number:
            raise RootError(f"{name} says that it is version {root.signed.version}")
        _require_signed(root, "root", root, f"{name} is not signed by its own key")
        if roots:
            _require_signed(roots[-1], "root", root, f"{name} is not signed by the key of version {number - 1}")
        if newest is not None and newest.files.get(name, files[name]) != files[name]:
            raise RootError(f"{name} is another than the one that is known: the root was written anew")
        roots.append(root)
    if newest is not None and count < newest.version:
        raise RootError(f"the root is version {count}, and version {newest.version} is known: it was set back")
    return roots


def _metadata(files: Mapping[str, bytes], name: str, kind: type[_T]) -> Metadata[_T]:
    from tuf.api.exceptions import RepositoryError
    from tuf.api.metadata import Metadata

    try:
        metadata = Metadata.from_bytes(files[name])
    except KeyError as error:
        raise RootError(f"the root has no {name}") from error
    except (RepositoryError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RootError(f"{name} is no TUF metadata: {str(error).splitlines()[0][:120]}") from error
    if not isinstance(metadata.signed, kind):
        raise RootError(f"{name} holds {metadata.signed.type}")
    return metadata


def _require_signed(root: Metadata[Root], role: str, metadata: Metadata[Root] | Metadata[Targets], text: str) -> None:
    from tuf.api.exceptions import RepositoryError

    try:
        root.signed.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
    except (RepositoryError, ValueError) as error:
        raise RootError(text) from error


def _owner_of(root: Metadata[Root]) -> str:
    """Return the fingerprint of the one key that a version gives all roles."""
    roles = [root.signed.roles[name] for name in _ROLES]
    keyids = {keyid for role in roles for keyid in role.keyids}
    if len(keyids) != 1 or any(role.threshold != 1 or not role.keyids for role in roles):
        raise RootError(f"version {root.signed.version} of the root has {len(keyids)} keys; expected the owner's alone")
    key = root.signed.keys[keyids.pop()]
    try:
        raw = bytes.fromhex(key.keyval["public"])
    except (KeyError, ValueError, TypeError) as error:
        raise RootError("the owner's key is no ed25519 key") from error
    if key.keytype != "ed25519" or len(raw) != 32:
        raise RootError(f"the owner's key is {key.keytype}; expected ed25519")
    return fingerprint(base64.b64encode(raw).decode("ascii"))


def _content(files: Mapping[str, bytes], targets: Metadata[Targets]) -> RootContent:
    listed = targets.signed.targets
    for name in LISTED:
        if name not in listed or name not in files:
            raise RootError(f"the root has no {name}")
        if listed[name].hashes.get("sha256") != hashlib.sha256(files[name]).hexdigest():
            raise RootError(f"{name} is not what {TARGETS_FILE} lists")
    try:
        record = BusRecord.parse(files[BUS_FILE], max_bytes=FILE_MAX_BYTES)
        text = {name: files[name].decode("utf-8").splitlines() for name in LISTED[1:]}
        runners = tuple(_runner(line.split()) for line in text[RUNNERS_FILE])
        revoked = {key: _seconds(at) for key, at in (line.split() for line in text[REVOKED_FILE])}
    except RootError:
        raise
    except ValueError as error:  # also what strict JSON and pydantic raise
        raise RootError(f"a file of the root is unreadable: {str(error).splitlines()[0][:120]}") from error
    return RootContent(record, runners, tuple(text[SIGNERS_FILE]), revoked)


def _runner(words: list[str]) -> NamedKey:
    if len(words) not in {3, 4}:
        raise RootError(f"{RUNNERS_FILE}: got {' '.join(words)[:80]!r}; expected NAME KEY FROM [TO]")
    key = pinned(f"{words[0]}={words[1]}", RUNNERS_FILE)
    return NamedKey(key.name, key.public, since=_seconds(words[2]), until=_seconds(words[3]) if words[3:] else None)


def _require_newer(root: TrustRoot, newest: TrustRoot) -> None:
    """Refuse what would take a reader back, or to the side."""
    if root.bus_id != newest.bus_id:
        raise RootError(f"the root is of bus {root.bus_id}, this is bus {newest.bus_id}")
    if root.targets_version < newest.targets_version:
        raise RootError(
            f"the root is {root.version}.{root.targets_version}, and {newest.version}.{newest.targets_version} "
            "is known: it was set back"
        )
    if root.targets_version == newest.targets_version and root.files != newest.files:
        raise RootError(f"another root calls itself {root.version}.{root.targets_version}")
    revoked = root.content.revoked or {}
    known_revoked = (newest.content.revoked or {}).items()
    lacking = sorted(key for key, at in known_revoked if key not in revoked or revoked[key] > at)
    if lacking:
        raise RootError(
            f"the root {root.version}.{root.targets_version} lacks the revocation of {lacking[0]}, which "
            f"{newest.version}.{newest.targets_version} has, or dates it later: whoever wrote it had not seen that one"
        )


def retired(keys: Sequence[NamedKey], which: str, at: float) -> tuple[NamedKey, ...]:
    """Return keys of which those that are named, by name or by key, are retired from a time on."""

    def ends_later(key: NamedKey) -> bool:
        return which in {key.name, key.key} and (key.until is None or key.until > at)

    return tuple(replace(key, until=at) if ends_later(key) else key for key in keys)


def _targets_type() -> type[Targets]:
    from tuf.api.metadata import Targets

    return Targets


def _lines(lines: object) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()  # type: ignore[attr-defined]


def _until(key: NamedKey) -> str:
    return "" if key.until is None else _moment(key.until)


def _moment(seconds: float) -> str:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: str) -> float:
    return parse_rfc3339(text).timestamp()
