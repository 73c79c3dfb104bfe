"""Own a bus: make its root, and say which key is whose, with the owner's key of this account.

The key lies in a file that only this account may read, or in its ssh-agent. A runner needs it for nothing: it may run
under another user, who then cannot sign a root.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import secrets
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from bridge.bus.identity.root_ref import withheld
from bridge.bus.sides.runner import RunnerBus
from bridge.errors import BusError, UsageError
from bridge.limits import CLOCK_SKEW_MAX_S
from bridge.records.bus import BusRecord, KeyRecord
from bridge.runner.authorisation.ticket import Ticket
from bridge.runner.maintenance.root_merge import merge
from bridge.system.clock import Clock, parse_rfc3339, rfc3339
from bridge.system.durable import write_atomically
from bridge.trust.judgement import NamedKey
from bridge.trust.root import (
    VERSIONS_MAX_COUNT,
    RootContent,
    RootError,
    TrustRoot,
    fingerprint,
    read_root,
    retired,
    write_root,
)
from bridge.trust.root_memory import KnownRoot, RootMemory
from bridge.trust.signing_key import SigningKey, given_key, make_key, open_key, public_text
from bridge.trust.ssh_signatures import fingerprint_of

TRIES: Final = 4
KEYS_MAX_COUNT: Final = 2048  # about 120 bytes each, of the 256 KiB that a file of the root may have
_SHOWN_COUNT: Final = 5
_OPENSSH_TIME: Final = "%Y%m%d%H%M%SZ"
_LINE: Final = re.compile(r"(?P<names>\S+) (?P<options>\S+) (?P<key>\S+ \S+)")


class BusOwner:
    """The owner of one bus.

    Args:
        bus: the bus, which must not be asked for its record before.
        folder: where this account keeps the keys of buses that it owns.
        clock: the machine's clocks.
    """

    def __init__(self, bus: RunnerBus, folder: Path, clock: Clock) -> None:
        self._bus, self._folder, self._clock = bus, folder, clock
        self._memory = RootMemory(folder, bus.route)
        self._known: KnownRoot | None = None
        self._shown: Mapping[str, bytes] | None = None
        bus.use_root(self._judge)

    def key_path(self, bus_id: str) -> Path:
        """Return the file of the owner's key, or of its public half where an agent holds it."""
        agent = self._folder / f"{bus_id}.pub"
        return agent if agent.exists() else self._folder / f"{bus_id}.key"

    @property
    def owns(self) -> bool:
        """Whether this account holds the key of a bus's owner."""
        return self.key_path(self._bus.identity().bus_id).exists()

    @property
    def root(self) -> TrustRoot:
        """The root as it is now.

        Raises:
            UsageError: the bus has none.
        """
        self._bus.identity()
        if self._known is None:
            raise UsageError("this bus has no root", remedy="kakeya-runner trust init --bus ROUTE")
        return self._known.root

    def make(self, runners: tuple[KeyRecord, ...], key: Path | None = None, *, anew: bool = False) -> TrustRoot:
        """Make the bus's first root: this account owns it from now on.

        Args:
            runners: keys of its runners that are known already.
            key: a key file to own it with, or the public half of one in an agent; None to make one.
            anew: write a first root over another one, whose owner's key is lost.

        Raises:
            UsageError: the bus has a root.
        """
        record = self._bus.identity()
        if self._bus.root_tip is not None and not anew:
            raise UsageError(
                "this bus has a root already",
                remedy="trust show says whose; where its owner's key is lost: --new-owner",
            )
        owner = self._own_key(record.bus_id, key, anew=anew)
        since = parse_rfc3339(record.created).timestamp()
        content = RootContent(record, tuple(NamedKey(one.name, one.public, since=since) for one in runners))
        if anew and self._known is not None:  # whose key is whose, and what is revoked, stays as it was
            content = self._known.root.content
        if anew:
            self._memory.forget(record.bus_id)
            self._known = None
        files = write_root(content, owner, self._clock.now())
        if not self._bus.write_root(files, self._bus.root_tip):
            raise BusError("another writer made a root of this bus at the same time", remedy="kakeya-runner trust show")
        return self.root

    def require_key(self) -> None:
        """Refuse to go on where this account cannot write the next root.

        Raises:
            UsageError: the bus has no root, this account does not own it, or it shows one that this account has not
                seen.
        """
        self._key(self._last_root())

    def next_files(self, edit: Callable[[RootContent], RootContent]) -> dict[str, bytes]:
        """Return the next root, signed and not written anywhere: what the owner says after an edit.

        It is numbered above all that this account saw, also of a move whose end another remote shows.

        Raises:
            UsageError: as `require_key`.
        """
        before, newest = self._last_root(), self._memory.recall(self.root.bus_id)
        if newest is not None and newest.root.targets_version > before.targets_version:
            before = replace(before, targets_version=newest.root.targets_version)
        return write_root(edit(before.content), self._key(before), self._clock.now(), before)

    def change(self, edit: Callable[[RootContent], RootContent], successor: SigningKey | None = None) -> TrustRoot:
        """Write the next root: what the owner says now, after an edit.

        Raises:
            UsageError: the bus has no root, this account does not own it, or it would write over what the bus's root
                says and this account has not seen.
            BusError: other writers were there first, again and again.
        """
        for _ in range(TRIES):
            before = self._last_root()
            files = write_root(edit(before.content), self._key(before), self._clock.now(), before, successor)
            if self._bus.write_root(files, self._bus.root_tip):
                return self.root
        raise BusError("the root keeps changing", remedy="kakeya-runner trust show")

    def ticket(self, name: str, for_s: float) -> Ticket:
        """Return a ticket: a new key that speaks as this runner for a while, which the root lists from now on.

        Raises:
            UsageError: a runner of this name has a key without an end, or the bus has no root.
            BusError: other writers were there first, again and again.
        """
        now = self._clock.now().replace(microsecond=0)
        until = now + dt.timedelta(seconds=for_s)
        raw = secrets.token_bytes(32)  # any 32 bytes are a private key: RFC 8032, section 5.1.5
        try:
            key = KeyRecord(name=name, algorithm="ed25519", public=given_key(raw).public)
        except ValueError as error:
            said = f"got {name[:80]!r}; expected a runner's name: small letters, digits, dots, dashes, such as ci-1"
            raise UsageError(said, remedy="kakeya-runner trust ticket ci-1 --for 12h --bus ROUTE") from error
        root = self.change(lambda content: with_ticket(content, key, now, until))
        return Ticket(
            bus_id=root.bus_id,
            name=name,
            root_key=root.owner,
            until=rfc3339(until),
            key=base64.b64encode(raw).decode("ascii"),
        )

    def rotate(self) -> TrustRoot:
        """Give the owner a new key; the old one signs it, and lies beside it from then on.

        The new key is written down before the root names it, so a crash in between loses nothing.
        """
        before = self.root
        old = self._key(before)
        path = self._folder / f"{before.bus_id}.key"
        fresh = path.with_suffix(".new")
        successor = open_key(fresh) if fresh.exists() else make_key(fresh, "openssh")
        found = self.change(lambda content: content, successor)
        if path.exists():
            path.replace(path.with_suffix(f".{fingerprint(old.public)[7:15].replace('/', '_')}"))
        self.key_path(before.bus_id).with_suffix(".pub").unlink(missing_ok=True)
        fresh.replace(path)
        return found

    def backup_line(self, bus_id: str) -> str:
        """Return the command that keeps a copy of the owner's key."""
        path = self.key_path(bus_id)
        if path.suffix == ".pub":
            return "the key is in your ssh-agent; keep a copy of the file that it was loaded from"
        return f"keep a copy of the key that owns this bus, offline: cp {shlex.quote(str(path))} /somewhere/safe"

    def _last_root(self) -> TrustRoot:
        """Return the root that the next one follows, numbered as the highest one that the bus shows of this owner.

        Two accounts of one owner, a mirror, or a remote that was set back make roots that do not know of each other;
        the later one written would take back what the other says, a revocation too.

        Raises:
            UsageError: the bus shows another root, which says what this account has not seen.
        """
        root, other = self.root, self._other_root()
        if other is None:
            return root
        lacking = lacking_in(root.content, other.content)
        if lacking or other.version > root.version:
            raise UsageError(
                f"the bus shows a root that this account has not seen: {self._note()}; writing over it would lose "
                f"{', '.join(lacking[:_SHOWN_COUNT]) or 'the new key of its owner'}",
                remedy="kakeya-runner trust merge --bus ROUTE unites both",
            )
        return replace(root, targets_version=max(root.targets_version, other.targets_version))

    def _note(self) -> str | None:
        """Return why the root that the bus shows is not the one that this account goes by; None where it is."""
        return None if self._known is None else self._known.note

    def _other_root(self) -> TrustRoot | None:
        """Return the root that the bus shows beside the one that this account goes by; None where it shows none.

        Raises:
            UsageError: that one has another key of the owner's, at the same place of its chain.
            BusError: the remote does not give it.
        """
        root, note = self.root, self._note()
        if note is None or self._shown is None:
            return None
        if self._bus.is_root_withheld:
            raise withheld(self._bus.route)
        try:
            other = read_root(self._shown)
        except RootError:
            other = None
        names = [f"{number}.root.json" for number in range(1, VERSIONS_MAX_COUNT + 1)]
        if other is None or any(
            root.files[name] != other.files[name] for name in names if name in root.files and name in other.files
        ):
            raise UsageError(
                f"the bus shows a root with another key of its owner: {note}",
                remedy=f"where it is nobody's of yours: git push BUS :{self._bus.identity().prefix}root, then this "
                "again; where your key was stolen: kakeya-runner trust init --new-owner",
            )
        return other

    def merge(self, take: Collection[str] = ()) -> tuple[TrustRoot, tuple[str, ...]]:
        """Unite the root that the bus shows with the one that this account goes by.

        Args:
            take: names or keys that only the bus's root has and that are to count.

        Returns:
            The root as it is then, and the keys that only the bus's root had and that do not count.

        Raises:
            UsageError: the roots have different owners, or this account does not hold the key of the later one.
            BusError: other writers were there first, again and again.
        """
        for _ in range(TRIES):
            root, other = self.root, self._other_root()
            if other is None:
                return root, ()
            merged = merge(root.content, other.content, take)
            newest = max(root, other, key=lambda one: one.version)
            before = replace(newest, targets_version=max(root.targets_version, other.targets_version))
            files = write_root(merged.content, self._key(before), self._clock.now(), before)
            if self._bus.write_root(files, self._bus.root_tip):
                return self.root, merged.left
        raise BusError("the root keeps changing", remedy="kakeya-runner trust show")

    def _own_key(self, bus_id: str, key: Path | None, *, anew: bool) -> SigningKey:
        """Return the key to own a bus with, made or noted down."""
        path = self._folder / f"{bus_id}.key"
        if key is not None:
            owner = open_key(key)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if key.suffix == ".pub":
                write_atomically(path.with_suffix(".pub"), f"{public_text(owner)}\n".encode())
            elif key.resolve() != path.resolve():
                write_atomically(path, key.read_bytes())
            return owner
        if path.exists() and not anew:
            return open_key(path)  # an earlier try made it
        if path.exists():
            path.replace(path.with_suffix(".lost"))
        return make_key(path, "openssh")

    def _key(self, root: TrustRoot) -> SigningKey:
        path = self.key_path(root.bus_id)
        fresh = path.with_suffix(".new")
        if fresh.exists() and fingerprint(open_key(fresh).public) == root.owner:
            fresh.replace(path)  # a rotation that was cut off after its push
        key = open_key(path) if path.exists() else None
        if key is None or fingerprint(key.public) != root.owner:
            raise UsageError(
                f"the owner of this bus is {root.owner}, whose key this account does not hold",
                remedy=f"run this where the key is, or restore its copy to {path}",
            )
        return key

    def _judge(self, files: Mapping[str, bytes] | None, bus_id: str) -> BusRecord | None:
        self._shown = files
        path = self.key_path(bus_id)
        pin = None
        if self._memory.recall(bus_id) is None and path.exists():
            pin = fingerprint(open_key(path).public)
        if files is None and self._memory.recall(bus_id) is None:
            return None
        self._known = self._memory.meet(files, bus_id, pin=pin, now_s=self._clock.now().timestamp())
        return None if self._known is None else self._known.root.content.record


def lacking_in(own: RootContent, other: RootContent) -> tuple[str, ...]:
    """Return, in words, what another content says and this one does not: revocations first, then keys and their ends.

    Args:
        own: what this account says.
        other: what another writer with the owner's key says.
    """
    revoked, ends = own.revoked or {}, {(one.name, one.key): one.until for one in own.runners}
    signers = {(entry["key"], _namespace(entry["options"])): entry["options"]
               for entry in filter(None, map(_LINE.fullmatch, own.signers))}  # fmt: skip
    names = {one.key: one.name for one in other.runners}
    lacking = [
        f"the revocation of {names.get(key, key)}"
        for key, at in sorted((other.revoked or {}).items())
        if key not in revoked or revoked[key] > at
    ]
    for one in other.runners:
        until = ends.get((one.name, one.key))
        if (one.name, one.key) not in ends:
            lacking.append(f"a key of {one.name}")
        elif one.until is not None and (until is None or until > one.until):
            lacking.append(f"the end of a key of {one.name}")
    for entry in filter(None, map(_LINE.fullmatch, other.signers)):
        options = signers.get((entry["key"], _namespace(entry["options"])))
        if options is None:
            lacking.append(f"a key of {entry['names']}")
        elif "valid-before" in entry["options"] and "valid-before" not in options:
            lacking.append(f"the end of a key of {entry['names']}")
    return tuple(lacking)


def with_runner(content: RootContent, key: KeyRecord, now: dt.datetime) -> RootContent:
    """Return what the owner says with one more key of a runner.

    Raises:
        UsageError: the key is listed for another runner.
    """
    known = next((one for one in content.runners if one.key == key.public), None)
    if known is not None and known.name != key.name:
        raise UsageError(f"this key is {known.name}'s", remedy=f"the host's owner: kakeya-runner keygen on {key.name}")
    if known is not None and known.until is None:
        return content
    others = tuple(one for one in content.runners if one.key != key.public)
    since = now.timestamp() - CLOCK_SKEW_MAX_S
    return replace(content, runners=(*others, NamedKey(key.name, key.public, since=since)))


def with_ticket(content: RootContent, key: KeyRecord, now: dt.datetime, until: dt.datetime) -> RootContent:
    """Return what the owner says with a key that speaks as this runner until a time.

    Raises:
        UsageError: a runner of this name has a key without an end, or no more keys fit into a root.
    """
    if any(one.name == key.name and one.until is None for one in content.runners):
        raise UsageError(
            f"runner {key.name} has a key of its own, without an end",
            remedy="a ticket is for a name of its own, such as "
            f"{key.name[:40]}-1; or retire that runner: kakeya-runner trust retire {key.name}",
        )
    if len(content.runners) >= KEYS_MAX_COUNT:
        raise UsageError(f"the root lists {len(content.runners)} keys of runners already", remedy="make longer tickets")
    listed = NamedKey(key.name, key.public, since=now.timestamp() - CLOCK_SKEW_MAX_S, until=until.timestamp())
    return replace(content, runners=(*content.runners, listed))


def with_signer(content: RootContent, line: str) -> RootContent:
    """Return what the owner says with one more line of a requester or code signer, in place of that key's older one.

    Raises:
        UsageError: one of its names has another key in use for the same purpose.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise UsageError(f"got {line[:80]!r}; expected NAME OPTIONS TYPE KEY")
    namespace, names = _namespace(match["options"]), set(match["names"].split(","))
    for one in filter(None, map(_LINE.fullmatch, content.signers)):
        taken = names & set(one["names"].split(","))
        same = _namespace(one["options"]) == namespace and "valid-before" not in one["options"]
        if taken and same and one["key"] != match["key"]:
            raise UsageError(
                f"{sorted(taken)[0]} is listed with another key, {fingerprint_of(one['key'])}",
                remedy=f"if it is no longer used: kakeya-runner trust retire {sorted(taken)[0]}",
            )
    kept = tuple(
        other for other in content.signers
        if (found := _LINE.fullmatch(other)) is None or found["key"] != match["key"]
        or _namespace(found["options"]) != namespace
    )  # fmt: skip
    return replace(content, signers=(*kept, line))


def without(content: RootContent, who: str, now: dt.datetime) -> RootContent:
    """Return what the owner says with a name or key retired: what it signs from now on does not count.

    Both lists name whole seconds: a time cut short would end the key before what it signed earlier in this second.

    Raises:
        UsageError: nothing in use is called so.
    """
    if now.microsecond:
        now = now.replace(microsecond=0) + dt.timedelta(seconds=1)
    runners = retired(content.runners, who, now.timestamp())
    signers = tuple(_ended(line, now) if _is_of(line, who) else line for line in content.signers)
    if (runners, signers) == (content.runners, content.signers):
        raise UsageError(f"no key in use is called {who}", remedy="kakeya-runner trust show")
    return replace(content, runners=runners, signers=signers)


def with_revoked(content: RootContent, who: str, now: dt.datetime) -> RootContent:
    """Return what the owner says with every key of a name, or one key, revoked: nothing that it signed counts.

    Raises:
        UsageError: nothing is called so.
    """
    keys = [one.key for one in content.runners if who in {one.name, one.key}]
    lines = [found for line in content.signers if _is_of(line, who) and (found := _LINE.fullmatch(line))]
    keys += [fingerprint_of(found["key"]) for found in lines]
    if not keys:
        raise UsageError(f"no key is called {who}", remedy="kakeya-runner trust show")
    at = now.timestamp()
    return replace(content, revoked={**dict.fromkeys(keys, at), **(content.revoked or {})})


def _is_of(line: str, who: str) -> bool:
    found = _LINE.fullmatch(line)
    return found is not None and (who in found["names"].split(",") or who == fingerprint_of(found["key"]))


def _ended(line: str, now: dt.datetime) -> str:
    """Return a line whose key signs nothing from now on."""
    found = _LINE.fullmatch(line)
    if found is None or "valid-before" in found["options"]:
        return line
    until = now.astimezone(dt.UTC).strftime(_OPENSSH_TIME)
    return f'{found["names"]} {found["options"]},valid-before="{until}" {found["key"]}'


def _namespace(options: str) -> str:
    found = re.search(r'namespaces="([^"]*)"', options)
    return "" if found is None else found[1]
