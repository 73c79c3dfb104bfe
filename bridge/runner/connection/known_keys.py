"""What this runner knows about keys: the bus's root, or the runners that its owner pins, and always its own.

The root is read again whenever it moves, so what the bus's owner adds, retires or revokes counts at the next listing.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bridge.records.bus import BusRecord
from bridge.runner.policy.model import Policy
from bridge.trust import runner_key
from bridge.trust.judgement import KeyAuthority, NamedKey
from bridge.trust.key_seals import KeySeals
from bridge.trust.keyring import pinned
from bridge.trust.root import TrustRoot, fingerprint_in
from bridge.trust.root_memory import KnownRoot, RootMemory

ROOTS_FOLDER: Final = "roots"


class KnownKeys:
    """The keys that one runner goes by.

    Args:
        folder: its state folder, with its key and the roots it has seen.
        name: its name.
        pins: keys of other runners that the owner pins, ``NAME=KEY``; with any, no root is taken at first use.
        owner: the bus owner's key that the policy names, or its fingerprint, None for none.
        place: the remote that shows the bus's root.
        say: told when the root that counts changes; None for nobody.

    Raises:
        InfrastructureError: signatures are demanded and cannot be checked here, or the key cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        pins: Sequence[str] = (),
        owner: str | None = None,
        place: str = "",
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._folder, self._name, self._say = folder, name, say
        self._owner = None if owner is None else fingerprint_in(owner)
        self._memory = RootMemory(folder / ROOTS_FOLDER, place)
        self._pins = tuple(pinned(text, "runner_keys") for text in pins)
        self._own = self._own_keys()
        self._authority = self._of_pins()
        self.known: KnownRoot | None = None

    def judge_root(self, files: Mapping[str, bytes] | None, bus_id: str) -> BusRecord | None:
        """Go by the newest root that counts, and return its bus record; None where this bus has none.

        Raises:
            RootError: the policy names the owner, and what is there is not that owner's.
        """
        before = self.known
        first = not self._pins
        self.known = self._memory.meet(files, bus_id, pin=self._owner, now_s=time.time(), first=first)
        if self.known is None:
            return None
        vouched = self.known.vouched
        found = self.known.root.authority(vouched=vouched)
        self._authority = replace(found, keys=(*found.keys, *(one for one in self._own if one not in found.keys)))
        if self._say is not None and (before is None or before.root != self.known.root):
            how = "pinned" if vouched else "taken at first use"
            self._say(f"the bus's owner is {self.known.root.owner} ({how}); keys: {found.where}")
            if (why := self.ended()) is not None:
                self._say(f"{why}; nothing is taken any more")
        return self.known.root.content.record

    def remember_root(self, files: Mapping[str, bytes] | None, bus_id: str) -> BusRecord | None:
        """Return the bus record of the root that this runner knows already, None where it knows none."""
        if self._memory.recall(bus_id) is None:
            return None
        return self.judge_root(files, bus_id)

    def root(self) -> TrustRoot | None:
        """Return the bus's root as it is known now, None where there is none."""
        return None if self.known is None else self.known.root

    def ended(self) -> str | None:
        """Return that the owner has revoked or retired this runner's key or name, and when; None while it counts."""
        root = self.root()
        if root is None or not self._own:
            return None
        newest = self._own[-1].key
        revoked = root.content.revoked or {}
        if (at := min((revoked[key] for key in (newest, self._name) if key in revoked), default=None)) is not None:
            return f"runner {self._name} was revoked by the bus's owner on {_day(at)}: nothing that it signs counts"
        of_key = [runner for runner in root.content.runners if runner.key == newest]
        if of_key and all(runner.until is not None and runner.until <= time.time() for runner in of_key):
            retired = max(runner.until or 0.0 for runner in of_key)
            return f"the key of runner {self._name} was retired by the bus's owner on {_day(retired)}"
        return None

    def authority(self) -> KeyAuthority:
        """Return what counts now."""
        return self._authority

    def names(self) -> frozenset[str]:
        """Return the names of the runners whose keys are known now."""
        return frozenset(key.name for key in self._authority.of("runner"))

    def seals(self) -> KeySeals:
        """Return the seals of this runner.

        Raises:
            InfrastructureError: the key cannot be used.
        """
        key = runner_key.signing_key(self._folder) if runner_key.has_key(self._folder) else None
        return KeySeals(self.authority, name=self._name, key=key)

    def _own_keys(self) -> tuple[NamedKey, ...]:
        """Return this runner's own keys, also where no root lists them: it knows what it wrote."""
        if not runner_key.has_key(self._folder):
            return ()
        return tuple(NamedKey(self._name, one.public) for one in runner_key.published(self._folder))

    def _of_pins(self) -> KeyAuthority:
        keys = tuple(NamedKey(one.name, one.public) for one in self._pins)
        return KeyAuthority((*keys, *self._own), where="runner_keys" if keys else "own key", closed=bool(keys))


def _day(unix_s: float) -> str:
    return dt.datetime.fromtimestamp(unix_s, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def known_keys(folder: Path, policy: Policy, place: str, say: Callable[[str], None] | None = None) -> KnownKeys:
    """Return what a runner with this state folder and policy knows about keys at a remote.

    Raises:
        InfrastructureError: its key, or what it remembers, cannot be used.
    """
    return KnownKeys(folder, policy.name, pins=policy.runner_keys, owner=policy.root_key, place=place, say=say)
