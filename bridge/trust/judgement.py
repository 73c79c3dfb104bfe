"""Answer the one question about everything signed: may this key say this, of this run, here, now?

Requests, cancels, signed commits, claims, beacons, logs, archives and results are all judged by `may_say`, on both
sides. What differs is only what a reader knows: a `KeyAuthority`, which comes from a trust root, from pinned keys or
from a host's own lists.

Knows no cryptography, no file and no clock: a caller says which key made a valid signature over exactly these bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

Kind = Literal["request", "cancel", "code", "claim", "beacon", "log", "archive", "result"]
Role = Literal["requester", "code", "runner"]
Word = Literal["verified", "first use", "unsigned", "untrusted", "altered"]

ROLES: Final[Mapping[Kind, Role]] = MappingProxyType(
    {
        "request": "requester",
        "cancel": "requester",
        "code": "code",
        "claim": "runner",
        "beacon": "runner",
        "log": "runner",
        "archive": "runner",
        "result": "runner",
    }
)
REVOKED_REMEDY: Final = (
    "stop that runner; to go on under its name, on its host: kakeya-runner keygen --rotate, and the bus's owner: "
    "kakeya-runner trust add NAME=KEY with what it prints"
)
_SHOWN_CHARS: Final = 16


@dataclass(frozen=True)
class NamedKey:
    """A key, whom it speaks for and as what, and from when until when; times are seconds since the epoch.

    Attributes:
        key: the public key: 32 bytes in base64, or an OpenSSH fingerprint.
        until: when the key was retired: what is dated later does not count. None while it is in use.
    """

    name: str
    key: str
    role: Role = "runner"
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True)
class KeyAuthority:
    """Everything that one reader knows about keys on one bus.

    Attributes:
        keys: the keys that may speak.
        revoked: when a key, or a name, was revoked; whatever it said does not count, whenever it said it.
        where: where this knowledge comes from, for people.
        closed: whether a name without a key speaks for nobody; else it is unsigned, as on a bus where nobody signs.
        bus_id: the only bus it is about, None for any.
        first_use: the fingerprint of a root that nobody vouched for, None where somebody did.
    """

    keys: tuple[NamedKey, ...] = ()
    revoked: Mapping[str, float] = field(default_factory=dict)
    where: str = "nowhere"
    closed: bool = True
    bus_id: str | None = None
    first_use: str | None = None

    def of(self, role: Role) -> tuple[NamedKey, ...]:
        """Return the keys of a role."""
        return tuple(key for key in self.keys if key.role == role)


NOBODY: Final = KeyAuthority(closed=False)


@dataclass(frozen=True)
class Signed:
    """What a reader found: in whose name something is said, and which key signed it.

    Attributes:
        name: the runner or the principal in whose name it is said.
        present: whether there is a signature.
        key: the key whose signature over exactly these bytes, for this place, is valid; None where none is.
        at: the latest time that is stated in it, seconds since the epoch; None where none is.
        bus_id: the bus that it names, None where the signed place says so already.
        removed: what shows that a signature was there and is gone; None where nothing does.
        follows_signed: whether it continues something that is signed.
        expected: the name that must have said it, None for the one that it names.
        archived_at: when another runner archived it, None where none did.
    """

    kind: Kind
    name: str
    present: bool
    key: str | None = None
    at: float | None = None
    bus_id: str | None = None
    removed: str | None = None
    follows_signed: bool = False
    expected: str | None = None
    archived_at: float | None = None


@dataclass(frozen=True)
class TrustAnswer:
    """The answer to the one question, with its reason in a few words.

    Attributes:
        word: ``verified``; ``first use``: by a root that nobody vouched for; ``unsigned``: this reader knows no key;
            ``untrusted``: nobody who may say this did; ``altered``: it is not what was signed.
        revoked: whether it is untrusted only because the owner revoked the runner or the key.
        key_unknown: whether it is ``unsigned`` only for this reader: it is signed, by a key that he has not pinned.
    """

    word: Word
    why: str = ""
    revoked: bool = False
    key_unknown: bool = False

    @property
    def signed(self) -> bool:
        """Whether a key that may say this signed it."""
        return self.word in {"verified", "first use"}

    @property
    def text(self) -> str:
        """The answer in one line, the same in every command."""
        if self.word == "unsigned" and not self.key_unknown:
            return f"unsigned bus: {self.why}"
        if self.word == "unsigned":
            return self.why
        return self.why if self.word == "verified" else f"{self.word}: {self.why}"

    @property
    def shown(self) -> str:
        """The answer in a word or three, for people."""
        return "key not pinned" if self.key_unknown else self.word

    @property
    def refused(self) -> bool:
        """Whether a reader treats it as absent."""
        return self.word in {"untrusted", "altered"}


UNCHECKED: Final = TrustAnswer("unsigned", "signatures are not checked here")


def may_say(authority: KeyAuthority, signed: Signed) -> TrustAnswer:
    """Return whether a key may say something, of this run, on this bus, at that time."""
    if signed.removed is not None:
        return TrustAnswer("altered", f"carries no signature, and {signed.removed}: it was taken off")
    role = ROLES[signed.kind]
    keys = [key for key in authority.of(role) if key.name == signed.name]
    if not keys and not authority.closed:
        return _unknown_name(signed)
    if not signed.present:
        return TrustAnswer("untrusted", f"not signed, and {signed.name or 'its runner'} signs ({authority.where})")
    if signed.key is None:
        expected = " or ".join(key.key[:_SHOWN_CHARS] for key in keys) or f"a key that is known of {signed.name}"
        return TrustAnswer(
            "untrusted", f"not signed for this place by {signed.name} with {expected} ({authority.where})"
        )
    return _of_key(authority, signed, role)


def _unknown_name(signed: Signed) -> TrustAnswer:
    """Answer about a name without a key, where names without keys are normal."""
    if signed.follows_signed:
        which = "a claim by no known key" if signed.present else "an unsigned claim"
        return TrustAnswer("untrusted", f"{which} follows a signed one")
    if not signed.present:
        return TrustAnswer("unsigned", "carries no signature")
    return TrustAnswer("unsigned", f"signed by {signed.name}, with a key that you have not pinned", key_unknown=True)


def _of_key(authority: KeyAuthority, signed: Signed, role: Role) -> TrustAnswer:
    """Answer about a valid signature: whose key it is, whether it counts at that time and in that place."""
    holders = [holder for holder in authority.keys if holder.key == signed.key]
    mine = [holder for holder in holders if (holder.name, holder.role) == (signed.name, role)]
    shown = str(signed.key)[:_SHOWN_CHARS]
    if not mine:
        whose = " or ".join(f"{holder.name}, {_ROLE_WORDS[holder.role]}" for holder in holders) or "nobody"
        return TrustAnswer("untrusted", f"signed in the name of {signed.name} with the key {shown} of {whose}")
    problem = _misplaced(authority, signed) or _outdated(signed, mine, shown)
    if problem is not None:
        return TrustAnswer("untrusted", problem)
    reason = f"signed by {signed.name}, key {shown} ({authority.where})"
    if (revoked_at := _revoked_at(authority, signed)) is not None:
        if signed.archived_at is None or signed.archived_at >= revoked_at:
            return TrustAnswer("untrusted", f"the owner has revoked {signed.name} or its key {shown}", revoked=True)
        reason = f"{reason}, revoked after another runner archived it"
    if authority.first_use is not None:
        return TrustAnswer("first use", f"{reason}, root {authority.first_use}")
    return TrustAnswer("verified", reason)


def _misplaced(authority: KeyAuthority, signed: Signed) -> str | None:
    """Return why a valid signature is for another place, None where it is for this one."""
    if signed.expected is not None and signed.expected != signed.name:
        return f"signed by {signed.name}, and the claim of this run is {signed.expected}'s"
    if authority.bus_id is not None and signed.bus_id not in {None, authority.bus_id}:
        return f"signed for bus {signed.bus_id}, this is bus {authority.bus_id}"
    return None


def _revoked_at(authority: KeyAuthority, signed: Signed) -> float | None:
    """Return when the key or its name was revoked first, None where neither was."""
    times = [authority.revoked[subject] for subject in (str(signed.key), signed.name) if subject in authority.revoked]
    return min(times, default=None)


def _outdated(signed: Signed, keys: list[NamedKey], shown: str) -> str | None:
    """Return that a key that is this name's was not in use at the time, None where it was."""
    if not any(_is_in_time(key, signed.at) for key in keys):
        return f"key {shown} of {signed.name} was not in use at the time that this names"
    return None


def _is_in_time(key: NamedKey, at: float | None) -> bool:
    if at is None:
        return key.until is None
    return (key.since is None or key.since <= at) and (key.until is None or at < key.until)


_ROLE_WORDS: Final[Mapping[Role, str]] = {"requester": "a requester", "code": "a code signer", "runner": "a runner"}
