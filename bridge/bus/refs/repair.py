"""Find refs below the bus's prefix that are no good to anybody, and delete them by compare-and-swap.

A claim, start, log or beacon ref counts when its name or what it points to can never be read, any ref when git makes
none of ours beside it. Refs of other kinds are left alone: a later version may know them. Branches are people's own:
one that keeps requests out is named, with the command that deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.store import swap
from bridge.bus.store.gather import Gatherer, Tip, WorkBudget
from bridge.bus.store.interface import Reader, RefStore
from bridge.bus.store.obstacles import deletion_of
from bridge.bus.store.quarantine import Quarantine
from bridge.bus.views import BadRef
from bridge.limits import MIB
from bridge.records.bus import Beacon
from bridge.records.claim import Claim

CALLS_MAX: Final = 5000
_BATCH_MAX_BYTES: Final = 64 * MIB


def _claim(reader: Reader, tip: Tip) -> None:
    commits.read_record(reader, tip.oid, commits.CLAIM_FILE, Claim)


def _beacon(reader: Reader, tip: Tip) -> None:
    commits.read_record(reader, tip.oid, commits.BEACON_FILE, Beacon)


def _log(reader: Reader, tip: Tip) -> None:
    commits.read_chunk(reader, tip.oid)


# kind of ref -> what it is read as, as the quarantine has it, and how
_KINDS: Final[Mapping[str, tuple[str, Callable[[Reader, Tip], None]]]] = {
    "claim": ("claim", _claim),
    "start": ("claim", _claim),
    "log": ("log", _log),
    "runner": ("beacons", _beacon),
}


def bad_refs(store: RefStore, prefix: str, quarantine: Quarantine) -> Iterator[BadRef]:
    """Yield the refs that are no good, by name.

    Raises:
        RemoteError: the remote did not answer.
    """
    listed = [Tip(ref, oid) for ref, oid in sorted(store.list([prefix]).refs.items())]
    for tip in listed:
        kept_out = names.kept_out(prefix, tip.ref)
        if kept_out is not None:
            yield BadRef(tip.ref, tip.oid, _in_the_way(kept_out))
    for kind, (use, read) in _KINDS.items():
        tips = [tip for tip in listed if tip.ref.startswith(f"{prefix}{kind}/")]
        named = [tip for tip in tips if _is_named(prefix, kind, tip.ref)]
        Gatherer(store, quarantine, use, batch_max_bytes=_BATCH_MAX_BYTES, one_max_bytes=MIB).gather(
            named, WorkBudget(CALLS_MAX), read
        )
        for tip in tips:
            why = quarantine.reason(use, tip.oid) if tip in named else f"no name of a {kind}'s ref"
            if why is not None:
                yield BadRef(tip.ref, tip.oid, why)


def branches_in_the_way(store: RefStore, patterns: Iterable[str]) -> Iterator[BadRef]:
    """Yield the branches beside which git makes no request or cancel branch, by name; they are not ours to delete.

    Raises:
        RemoteError: the remote did not answer.
    """
    folders = names.request_folders(patterns)
    listed = store.list(folders).refs if folders else {}
    for folder in folders:
        if folder in listed:
            yield BadRef(folder, listed[folder], _in_the_way(f"{folder}/"), by_hand=deletion_of(store, folder))


def delete(store: RefStore, bad: BadRef) -> BadRef:
    """Delete a ref if it still points where it did; return it with the outcome.

    Raises:
        RemoteError: the remote did not answer.
    """
    answer = swap.delete(store, bad.ref, bad.oid)
    return BadRef(bad.ref, bad.oid, bad.why, gone=bool(answer), refusal=answer.why)


def _in_the_way(kept_out: str) -> str:
    return f"in the way of {kept_out}, as git allows no ref beside a folder of its name"


def _is_named(prefix: str, kind: str, ref: str) -> bool:
    if kind == "runner":
        return names.runner_name_of(prefix, ref) is not None
    return names.runner_id_of(prefix, kind, ref) is not None
