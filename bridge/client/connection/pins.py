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
        return () if self.root is not None else tuple(f"{key.name}={key.key}" for key in self.authority.keys)


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
        named = tuple(NamedKey(key.name, key.public) for key in keys)
        return Pins(KeyAuthority(named, where="this machine's own runner", closed=closed, bus_id=_id_of(record)), signs)
    if root is not None:
        return Pins(root.root.authority(vouched=False), signs, root)
    return Pins(NOBODY, signs)


class RootReader:
    """Judges the root that a bus shows, for one clone, and keeps the one that counts.

    Args:
        settings: the clone and its configuration.
        place: the remote that shows it.
    """

    def __init__(self, settings: ClientSettings, place: str) -> None:
        self._settings = settings
        self._pin = root_pin(settings)
        self._memory = RootMemory(settings.state_dir / "roots", place)
        self.accepted: KnownRoot | None = None

    def judge(self, files: Mapping[str, bytes] | None, bus_id: str) -> BusRecord | None:
        """Return the bus record of the root that counts, None where none does.

        Raises:
            RootError: this reader was told the owner's key, and what is there is not that owner's.
        """
        if self._settings.new_owner and self.accepted is None:
            self._memory.forget(bus_id)
        first = not _own_or_committed(self._settings)[0]
        self.accepted = self._memory.meet(files, bus_id, pin=self._pin, now_s=time.time(), first=first)
        return None if self.accepted is None else self.accepted.root.content.record


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
    named_bus = bus_id or settings.bus.bus_id
    if named_bus is None:
        return None
    remembered, pin = RootMemory(settings.state_dir / "roots").recall(named_bus), root_pin(settings)
    if remembered is None or pin is None:
        return remembered
    if pin not in remembered.root.owners:
        raise UsageError(f"the owner of bus {named_bus[:8]} is {remembered.root.owner}, and {pin} is named", remedy=PIN)
    return KnownRoot(remembered.root, vouched=True, note=remembered.note)


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
        how = f"signed under the owner's key {root.root.owner}"
        lines = [how if root.vouched else f"{how} (first use: compare it with the host's owner, then {PIN})"]
        return [*lines, *([root.note] if root.note is not None else [])]
    if trusted.authority.keys:
        where = trusted.authority.where
        return [f"of {key.name} must be signed by {key.key[:16]} ({where})" for key in trusted.authority.keys]
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
    named = [(key.name, key.public) for key in record.keys]
    named += [] if root is None else [(key.name, key.key) for key in root.root.authority(vouched=False).keys]
    comparisons = []
    for text in texts:
        pin = keyring.pinned(text, "--runner-key")
        on_bus = [key for name, key in named if name == pin.name]
        if pin.public in on_bus:
            comparisons.append((True, f"{pin.name}: the key that the bus names too"))
        elif on_bus:
            difference = f"{pin.name}: got {pin.public}, but the bus names {on_bus[-1]}"
            hint = "compare with what kakeya-runner keygen --bus ROUTE prints there"
            comparisons.append((False, f"{difference}: {hint}"))
        else:
            comparisons.append((False, f"{pin.name}: the bus names no key of this name"))
    return comparisons


def _pinned(texts: Sequence[str], where: str, record: BusRecord | None) -> KeyAuthority:
    keys = tuple(keyring.pinned(text, where) for text in texts)
    return KeyAuthority(tuple(NamedKey(key.name, key.public) for key in keys), where=where, bus_id=_id_of(record))


def _id_of(record: BusRecord | None) -> str | None:
    return None if record is None else record.bus_id


def _own_or_committed(settings: ClientSettings) -> tuple[tuple[str, ...], str]:
    """Return the runners' keys that this clone or user pins, or that the default branch of a remote names."""
    own = pinned_keys(settings)
    if own[0]:
        return own
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
    records: list[KeyRecord] = []
    for folder in (own, *others):
        with contextlib.suppress(OSError, ValueError):
            records += keyring.decode((folder / "runner" / keyring.PUBLIC_FILE).read_bytes())
    return tuple(records)
