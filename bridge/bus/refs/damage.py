"""Find refs whose objects a remote has lost or holds damaged, and mend them from what is here.

git refuses every push to a repository with one such ref, and lets it be deleted where its object is lost. What is then
pushed again is whole. A damaged object stays as it is until somebody removes its file there, which makes it a lost one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Literal

from bridge.bus.content.commits import read_commit
from bridge.bus.store import swap
from bridge.bus.store.gather import BATCH_MAX_COUNT, Tip
from bridge.bus.store.interface import ObjectBoundError, RefStore, RefUpdate
from bridge.bus.views import DamagedRef
from bridge.errors import BusError, RemoteError
from bridge.limits import CLAIM_CHAIN_MAX_COUNT, TREE_MAX_BYTES

_LOST: Final = re.compile("not our ref", re.IGNORECASE)


def damaged_refs(store: RefStore, refs: Mapping[str, str]) -> Iterator[DamagedRef]:
    """Yield those of some refs that the remote does not give whole, by name.

    Raises:
        RemoteError: it gives none of them: then it is the remote that is away.
    """
    tips = [Tip(ref, oid) for ref, oid in sorted(refs.items())]
    damaged: list[DamagedRef] = []
    for alike in ([tip for tip in tips if not _is_chain(tip.ref)], [tip for tip in tips if _is_chain(tip.ref)]):
        for start in range(0, len(alike), BATCH_MAX_COUNT):
            damaged += _of(store, alike[start : start + BATCH_MAX_COUNT])
    if damaged and len(damaged) == len(tips):
        raise RemoteError(f"{store.route} gives none of its {len(tips)} refs: {damaged[0].why}")
    yield from sorted(damaged, key=lambda each: each.ref)


def delete(store: RefStore, damaged: DamagedRef) -> DamagedRef:
    """Delete a damaged ref where it still points there; return the outcome.

    git deletes a ref whose object is lost; over one whose object it cannot read, what answers there ends.
    """
    try:
        answer = swap.delete(store, damaged.ref, damaged.oid)
    except RemoteError as error:
        return replace(damaged, refusal=error.message)
    return replace(damaged, gone=bool(answer), refusal=answer.why)


def restore(store: RefStore, damaged: DamagedRef) -> DamagedRef:
    """Push a ref that was deleted again where it is whole here; return the outcome.

    While another damaged ref is there, the remote takes no push.
    """
    if not (damaged.gone and damaged.is_here):
        return damaged
    pushed = False
    with suppress(RemoteError):
        pushed = bool(store.push([RefUpdate(damaged.ref, damaged.oid, None)]).get(damaged.ref))
    return look_again(store, damaged) if pushed else damaged


def look_again(store: RefStore, damaged: DamagedRef) -> DamagedRef:
    """Return whether a ref that was pushed again is whole; a remote keeps its own bytes of an object that it has.

    Raises:
        RemoteError: the remote is away.
    """
    return replace(damaged, gone=False, restored=not _of(store, [Tip(damaged.ref, damaged.oid)]))


def _of(store: RefStore, tips: Sequence[Tip]) -> list[DamagedRef]:
    """Return which of some tips the remote does not give whole, by halves."""
    why = _problem(store, tips)
    if why is None:
        return []
    if len(tips) > 1:
        middle = len(tips) // 2
        return [*_of(store, tips[:middle]), *_of(store, tips[middle:])]
    return [DamagedRef(tips[0].ref, tips[0].oid, why, _state_of(store, tips[0]), is_here=_is_here(store, tips[0].oid))]


def _state_of(store: RefStore, tip: Tip) -> Literal["unreadable", "lost", "whole"]:
    """Return what the remote has of a damaged ref's own commit; it answers for one that is lost before it reads any."""
    why = _problem(store, [tip], commits=1)
    if why is None:
        return "whole"
    return "lost" if _LOST.search(why) else "unreadable"


def _is_chain(ref: str) -> bool:
    """Return whether the readers of a ref walk its history: a claim is read from its first commit on."""
    return ref.split("/")[-2:-1] in (["claim"], ["start"])


def _problem(store: RefStore, tips: Sequence[Tip], commits: int | None = None) -> str | None:
    """Return why the remote does not give some tips, all alike; what is here already is asked for all the same."""
    if commits is None:
        commits = CLAIM_CHAIN_MAX_COUNT if _is_chain(tips[0].ref) else 1
    name = f"damage-{secrets.token_hex(4)}"
    try:
        oids = [tip.oid for tip in tips]
        store.isolate(name, oids, max_bytes=TREE_MAX_BYTES, commits=commits, checked=False, borrows=False)
    except ObjectBoundError:
        return None  # it gives more than anybody wants
    except (BusError, RemoteError) as error:
        return error.message
    finally:
        store.drop(name)
    return None


def _is_here(store: RefStore, oid: str) -> bool:
    """Return whether a commit is here; whether all that it reaches is, a push of it finds out."""
    try:
        with store.reader() as reader:
            read_commit(reader, oid)
    except BusError:
        return False
    return True
