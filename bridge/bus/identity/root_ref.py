"""The root's ref: all files of a trust root in one commit, read under a bound and replaced by compare-and-swap.

Knows nothing about what the files mean; who may change them is decided by whoever reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.store.interface import MissingObjectError, RefStore, RefUpdate
from bridge.bus.store.swap import swap
from bridge.errors import BusError
from bridge.limits import MIB
from bridge.system.gitobjects import REGULAR, commit

FILES_MAX_COUNT: Final = 80
FILE_MAX_BYTES: Final = 256 * 1024
_MAX_BYTES: Final = 4 * MIB


class RootRef:
    """The root of one bus.

    Args:
        store: the remote.
    """

    def __init__(self, store: RefStore) -> None:
        self._store = store
        self._read: dict[str, Mapping[str, bytes]] = {}
        self._withheld: str | None = None

    def files(self, oid: str) -> Mapping[str, bytes]:
        """Return the files in a commit; nothing where it holds more, or something else, than a root may.

        Nothing either where the remote does not give it, which may pass: see `is_withheld`.
        """
        if oid not in self._read:
            try:
                self._read = {oid: self._files(oid)}
            except MissingObjectError:
                self._withheld = oid
                return {}
            except BusError:  # what anybody can push; the reader goes on with what it knows
                self._read = {oid: {}}
        return self._read[oid]

    def is_withheld(self, oid: str) -> bool:
        """Return whether the remote did not give a commit when it was last asked: nobody knows what it holds."""
        return oid == self._withheld and oid not in self._read

    def write(self, prefix: str, files: Mapping[str, bytes], moment: str, over: str | None) -> str | None:
        """Replace the commit at the ref; return the new one, None where another writer was there first.

        Args:
            prefix: of the runner-written refs.
            files: the whole root.
            moment: when, RFC 3339.
            over: the tip that is replaced, None where there is none.

        Raises:
            RemoteError: the outcome is not known.
        """
        ref = names.root_ref(prefix)
        top, objects = commits.file_tree({name.encode(): data for name, data in files.items()})
        parents = commits.parents_at(self._store, ref, over, _MAX_BYTES)
        head = commit(top.oid, parents, commits.unix_s(moment), "root", self._store.committer)
        self._store.write([*objects, head])
        landed = swap(self._store, [RefUpdate(ref, head.oid, over)], authority=ref)[ref].landed
        return head.oid if landed else None

    def _files(self, oid: str) -> Mapping[str, bytes]:
        name = f"root-{secrets.token_hex(4)}"  # several commands of a clone may read it at once
        try:
            store = self._store.isolate(name, [oid], max_bytes=_MAX_BYTES)
            with store.reader() as reader:
                head = commits.read_commit(reader, oid)
                entries = commits.read_entries(reader, head.tree)
                if len(entries) > FILES_MAX_COUNT:
                    raise BusError(f"a root of {len(entries)} files")
                return {
                    name.decode("utf-8", "replace"): reader.read(entry.oid, "blob", FILE_MAX_BYTES)
                    for name, entry in entries.items()
                    if entry.mode == REGULAR
                }
        finally:
            self._store.drop(name)


def withheld(route: str) -> BusError:
    """Return the error of who needs to know what a root says that the remote lists and does not give."""
    return BusError(
        f"{route} lists its root and does not give it: nobody knows what it says",
        remedy="the same command again; where its object is lost there: kakeya-runner bus repair",
    )
