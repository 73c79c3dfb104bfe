"""What a reader knows about keys, and the answer of these keys about a result.

Knowledge comes from one place, the first that has any: an option; the root whose owner's key this reader was told; keys
that the clone's or the user's own file pins (`init --runner-key`), or `kakeya.toml` as a remote's default branch has
it; on this machine's own bus its runner's folder; a root that was taken at first use. Never from the result, the work
tree (a request branch could be checked out) or the bus record, which anybody may push.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.bus.open.embedded import embedded_folder
from bridge.client.clone.config import (
    ClientSettings,
    committed_keys,
    committed_root_key,
    pinned_keys,
    pinned_root_key,
)
from bridge.errors import IntegrityError, UsageError
from bridge.trust import keyring
from bridge.trust.judgement import NOBODY, KeyAuthority, NamedKey, TrustAnswer
from bridge.trust.root_memory import KnownRoot, RootMemory

if TYPE_CHECKING:
    from bridge.records.bus import BusRecord, KeyRecord

PIN = "kakeya-mac init --root-key KEY, with the key that the host's owner tells you"
_COMPARE = "; and compare the key you pinned with what `kakeya-runner keygen --bus ROUTE` prints on the host"
UNSIGNED_BUS = "unsigned bus: it proves what was written, not who wrote it"


@dataclass(frozen=True)
class Pins:
    """What one reader goes by.

    Attributes:
        authority: what it knows about keys.
        signs: whether the bus says that its results are signed.
        root: the root that it knows of the bus, whether or not that is what it goes by.
    """

    authority: KeyAuthority = NOBODY
    signs: bool = False
    root: KnownRoot | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The runners' keys as a configuration file pins them; nothing where a root names them."""
        return () if self.root is not None else tuple(f"{one.name}={one.key}" for one in self.authority.keys)


def pins(
    settings: ClientSettings,
    *,
    option: Sequence[str] = (),
    record: BusRecord | None = None,
    own: bool = False,
    root: KnownRoot | None = None,
) -> Pins:
    """Return what this reader goes by.

    Args:
        settings: the clone and its configuration.
        option: keys named on the command line; they stand alone.
        record: the bus the result was read from, or None when only the result is here.
        own: whether it is of a run that this clone sent to this machine's own bus: that bus's runner must have signed.
        root: the root that was met on the bus; None where none was asked: then the remembered one counts.

    Raises:
        UsageError: a pinned key is malformed.
    """
    signs = record is not None and record.attestation == "dsse"
    here = settings.bus.embedded and (own or record is not None)  # what a clone pins is another bus's
    if option:
        return Pins(_pinned(option, "--runner-key", record), signs)
    if root is None and not here:
        root = remembered_root(settings, None if record is None else record.bus_id)
    if root is not None and root.vouched:
        return Pins(root.root.authority(vouched=True), signs, root)
    texts, where = ((), "") if here else _own_or_committed(settings)
    if texts:
        return Pins(_pinned(texts, where, record), signs)
    if settings.bus.embedded and (keys := _embedded(settings)):
        closed = own or record is not None  # they say nothing of a result from elsewhere
        found = tuple(NamedKey(one.name, one.public) for one in keys)
        return Pins(KeyAuthority(found, where="this machine's own runner", closed=closed, bus_id=_id_of(record)), signs)
    if root is not None:
        return Pins(root.root.authority(vouched=False), signs, root)
    return Pins(NOBODY, signs)


class RootReader:
    """Judges the root that a bus shows, for one clone, and keeps the one that counts.

    Args:
        settings: the clone and its configuration.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._pin = root_pin(settings)
        self._memory = RootMemory(settings.state_dir / "roots")
        self.known: KnownRoot | None = None

    def judge(self, files: Mapping[str, bytes] | None, bus_id: str) -> BusRecord | None:
        """Return the bus record of the root that counts, None where none does.

        Raises:
            RootError: this reader was told the owner's key, and what is there is not that owner's.
        """
        if self._settings.new_owner and self.known is None:
            self._memory.forget(bus_id)
        first = not _own_or_committed(self._settings)[0]
        self.known = self._memory.meet(files, bus_id, pin=self._pin, now_s=time.time(), first=first)
        return None if self.known is None else self.known.root.content.record


def root_pin(settings: ClientSettings) -> str | None:
    """Return the fingerprint of the bus owner's key that this reader was told, None for none.

    Raises:
        UsageError: what is named is no key.
    """
    text, where = pinned_root_key(settings)
    if text is None:
        text, where = _committed_root_key(settings)
    if text is None:
        return None
    from bridge.trust.root import fingerprint_in

    try:
        return fingerprint_in(text)
    except ValueError as error:
        raise UsageError(f"{where}: {error}", remedy="SHA256:… or ssh-ed25519 AAAA…, as the owner tells you") from error


def remembered_root(settings: ClientSettings, bus_id: str | None) -> KnownRoot | None:
    """Return the root that this clone remembers of a bus, by default of the one it pins; None where it has none."""
    wanted = bus_id or settings.bus.bus_id
    if wanted is None:
        return None
    known, pin = RootMemory(settings.state_dir / "roots").recall(wanted), root_pin(settings)
    if known is None or pin is None:
        return known
    if pin not in known.root.owners:
        raise UsageError(f"the owner of bus {wanted[:8]} is {known.root.owner}, and {pin} is named", remedy=PIN)
    return KnownRoot(known.root, vouched=True, note=known.note)


def answer_about(
    files: Mapping[str, bytes], trusted: Pins, *, runner: str | None = None, archived_at: float | None = None
) -> TrustAnswer:
    """Return whether a runner may say what a result says; see `bridge.trust.verifier.judge_result`."""
    from bridge.trust.verifier import judge_result

    return judge_result(files, trusted.authority, runner=runner, signs=trusted.signs, archived_at=archived_at).answer


class RefusedResultError(IntegrityError):
    """A result that is untrusted or altered; it ends in the exit code of that answer."""

    def __init__(self, run_id: str, answer: TrustAnswer) -> None:
        from bridge.run.outcomes import ANSWER_CODES

        super().__init__(
            f"the published result of {run_id} is {answer.word}: {answer.why}",
            remedy=f"kakeya-mac verify {run_id}{_COMPARE if answer.word == 'untrusted' else ''}",
        )
        self.exit_code = ANSWER_CODES[answer.word]  # type: ignore[misc]
        self.reason = answer.word  # type: ignore[misc]


def key_lines(record: BusRecord, trusted: Pins) -> list[str]:
    """Return lines about the signatures of a bus: the keys that count, or the question to the host's owner."""
    root = trusted.root
    if root is not None:
        said = f"signed under the owner's key {root.root.owner}"
        lines = [said if root.vouched else f"{said} (first use: compare it with the host's owner, then {PIN})"]
        return [*lines, *([root.note] if root.note is not None else [])]
    if trusted.authority.keys:
        where = trusted.authority.where
        return [f"of {one.name} must be signed by {one.key[:16]} ({where})" for one in trusted.authority.keys]
    if record.attestation == "none":
        return [UNSIGNED_BUS]
    offered = [f"the bus names {keyring.pin(key)}" for key in record.keys]
    return [
        *offered,
        "signed, not pinned: compare name and key with the host's owner, then kakeya-mac init --runner-key NAME=KEY",
    ]


def compared_with_bus(texts: Sequence[str], record: BusRecord, root: KnownRoot | None) -> list[tuple[bool, str]]:
    """Return for each key that somebody was told whether the bus names it too, and that in words.

    What a bus names makes no key trusted; a difference is most likely a slip, or another host's key.
    """
    named = [(one.name, one.public) for one in record.keys]
    named += [] if root is None else [(one.name, one.key) for one in root.root.authority(vouched=False).keys]
    found = []
    for text in texts:
        told = keyring.pinned(text, "--runner-key")
        on_bus = [key for name, key in named if name == told.name]
        if told.public in on_bus:
            found.append((True, f"{told.name}: the key that the bus names too"))
        elif on_bus:
            said = f"{told.name}: got {told.public}, but the bus names {on_bus[-1]}"
            found.append((False, f"{said}: compare with what kakeya-runner keygen --bus ROUTE prints there"))
        else:
            found.append((False, f"{told.name}: the bus names no key of this name"))
    return found


def _pinned(texts: Sequence[str], where: str, record: BusRecord | None) -> KeyAuthority:
    keys = tuple(keyring.pinned(text, where) for text in texts)
    return KeyAuthority(tuple(NamedKey(one.name, one.public) for one in keys), where=where, bus_id=_id_of(record))


def _id_of(record: BusRecord | None) -> str | None:
    return None if record is None else record.bus_id


def _own_or_committed(settings: ClientSettings) -> tuple[tuple[str, ...], str]:
    """Return the runners' keys that this clone or user pins, or that the default branch of a remote names."""
    found = pinned_keys(settings)
    if found[0]:
        return found
    text, where = settings.merged_file
    keys = committed_keys(text, where)
    return (keys, where) if keys else ((), "")


def _committed_root_key(settings: ClientSettings) -> tuple[str | None, str]:
    text, where = settings.merged_file
    return committed_root_key(text, where), where


def _embedded(settings: ClientSettings) -> tuple[KeyRecord, ...]:
    """Return the keys of this user's own runners here: this environment's first, then those of the user's others."""
    own = embedded_folder(settings.data_dir)
    others = (path for path in sorted(own.parent.glob("*")) if path != own)
    found: list[KeyRecord] = []
    for folder in (own, *others):
        with contextlib.suppress(OSError, ValueError):
            found += keyring.decode((folder / "runner" / keyring.PUBLIC_FILE).read_bytes())
    return tuple(found)
