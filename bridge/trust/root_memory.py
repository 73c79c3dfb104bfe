"""Remember, for each bus, the newest root that was seen and whether somebody vouched for it.

A reader goes on with what it remembers where a remote shows less, something else, or nothing. What lies on this disk
was checked before it was written, and is checked again when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from bridge.trust.root import TrustRoot


@dataclass(frozen=True)
class KnownRoot:
    """The root that counts for a reader.

    Attributes:
        vouched: whether somebody told the reader the owner's key; else it was taken at first use.
        note: what is wrong with the root that the remote shows, None where it is this one.
        places: the highest version of what the owner says that each remote showed.
    """

    root: TrustRoot
    vouched: bool
    note: str | None = None
    places: Mapping[str, int] = field(default_factory=dict)


class RootMemory:
    """The roots that one reader has seen.

    Args:
        folder: where they are kept, one file a bus.
        place: the remote that shows what is met.
    """

    def __init__(self, folder: Path, place: str = "") -> None:
        self._folder, self._place = folder, place

    def recall(self, bus_id: str) -> KnownRoot | None:
        """Return what is remembered of a bus, None where nothing is.

        Raises:
            InfrastructureError: the file is not what this program wrote.
        """
        path = self.path(bus_id)
        if not path.exists():
            return None
        from bridge.trust.root import RootError, read_root

        try:
            value = json.loads(path.read_bytes())
            files = {name: text.encode("utf-8") for name, text in value["files"].items()}
            places = {str(place): int(version) for place, version in value.get("places", {}).items()}
            return KnownRoot(read_root(files), bool(value["vouched"]), places=places)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RootError) as error:
            raise InfrastructureError(
                f"{path} is no root that this program wrote", remedy=f"remove it and pin the bus's owner again: {path}"
            ) from error

    def meet(
        self, files: Mapping[str, bytes] | None, bus_id: str, *, pin: str | None, now_s: float, first: bool = True
    ) -> KnownRoot | None:
        """Return the root that counts after seeing what a remote shows; remember it.

        Args:
            files: what lies at the root's ref; None where nothing does.
            bus_id: the bus.
            pin: the fingerprint of the owner's key that this reader was told, None for none.
            now_s: the present, seconds since the epoch.
            first: whether a root that nobody vouched for may be taken; where not, it is as if there were none.

        Raises:
            RootError: the reader was told a key, knows no root of this bus, and what is there is not that owner's.
            UsageError: the reader was told a key that no root it knows had.
        """
        recalled = self.recall(bus_id)
        if recalled is None and pin is None and (files is None or not first):
            return None
        from bridge.trust.root import RootError

        if recalled is not None and pin is not None and pin not in recalled.root.owners:
            recalled = self._moved_on(files, recalled, pin)
        try:
            shown = None if files is None else _checked(files, recalled, bus_id, pin, now_s)
        except RootError as error:
            if recalled is None and pin is not None:
                raise RootError(
                    f"what the bus shows as its root is not that of {pin}, who is pinned: {error.message}",
                    remedy="ask the bus's owner: whoever can push may have replaced it",
                ) from error
            return None if recalled is None else self._beside(files, recalled, error.message)
        if shown is None:
            if recalled is None and pin is not None:
                raise RootError(f"the bus has no root, and its owner {pin} is pinned", remedy="ask the bus's owner")
            return None if recalled is None else replace(recalled, note="the bus shows no root any more")
        current = KnownRoot(
            shown,
            pin is not None or (recalled is not None and recalled.vouched),
            places={**({} if recalled is None else recalled.places), self._place: shown.targets_version},
        )
        if current != recalled:
            self._keep(current)
        return current

    def _beside(self, files: Mapping[str, bytes] | None, recalled: KnownRoot, why: str) -> KnownRoot:
        """Return what counts at a remote whose root is not newer than the known one: that, or one of the bus's moves.

        A bus that moved has newer roots where it is now, and an older one where it is about to arrive. Whoever pushes
        one of these elsewhere finds that this reader saw a newer one at that remote.
        """
        from bridge.trust.root import RootError, read_root

        with suppress(RootError):
            shown = read_root(files or {})
            same = shown.bus_id == recalled.root.bus_id and all(
                recalled.root.files.get(name, data) == data
                for name, data in shown.files.items()
                if name.endswith(".root.json")
            )
            record = shown.content.record
            arrives = bool(record.moving_to) and record.moving_to == recalled.root.content.record.moved_to
            if same and (record.moved_to or arrives) and shown.targets_version >= recalled.places.get(self._place, 0):
                return replace(recalled, root=shown)
        return replace(recalled, note=why)

    def forget(self, bus_id: str) -> None:
        """Forget a bus's root, so that another one can be pinned."""
        self.path(bus_id).unlink(missing_ok=True)

    def _moved_on(self, files: Mapping[str, bytes] | None, recalled: KnownRoot, pin: str) -> KnownRoot:
        """Return the known root where what is there follows it and has the pinned owner.

        Raises:
            UsageError: it does not.
        """
        from bridge.trust.root import RootError, read_root

        try:
            if files is not None and pin in read_root(files, recalled.root).owners:
                return recalled
        except RootError:
            pass
        raise UsageError(
            f"the owner of this bus was {recalled.root.owner}, and {pin} is named now",
            remedy="if the owner lost the key and told you so: kakeya-mac init --bus ROUTE --root-key KEY --new-owner",
        )

    def _keep(self, current: KnownRoot) -> None:
        from bridge.system.durable import write_atomically

        files = {name: data.decode("utf-8") for name, data in current.root.files.items()}
        value = {"vouched": current.vouched, "places": dict(current.places), "files": files}
        write_atomically(self.path(current.root.bus_id), json.dumps(value, indent=1).encode())

    def path(self, bus_id: str) -> Path:
        """Return the file of a bus's root."""
        return self._folder / f"root-{bus_id}.json"


def _checked(
    files: Mapping[str, bytes], recalled: KnownRoot | None, bus_id: str, pin: str | None, now_s: float
) -> TrustRoot:
    """Return the root in these files where it may take the place of the known one.

    Raises:
        RootError: it may not.
    """
    from bridge.trust.root import RootError, read_root

    root = read_root(files, None if recalled is None else recalled.root, pin if recalled is None else None)
    if root.bus_id != bus_id:
        raise RootError(f"the root is of bus {root.bus_id}, this is bus {bus_id}")
    if recalled is not None and root.files != recalled.root.files and root.expires < now_s:
        raise RootError("a newer root has expired already; no key that it adds counts")
    return root
