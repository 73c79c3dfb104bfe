"""Find out by trying what a remote allows: where a bus may keep its refs, what may be moved and deleted, who may ask.

Documentation says little and rules are set by people, so each thing is tried once, with an empty commit and on a ref
that nobody reads. One that may not be deleted again is used again by the next probe. Knows nothing about runs.
"""

from __future__ import annotations

from typing import Final

from bridge.bus.content.commits import parents_at
from bridge.bus.refs import names
from bridge.bus.store.interface import RefStore, RefUpdate
from bridge.bus.store.swap import swap, tips_of
from bridge.bus.views import Placement, PrefixTrial
from bridge.errors import BusError, RemoteError
from bridge.limits import MIB
from bridge.request import cancel_branch, request_branch
from bridge.system.gitobjects import commit, tree
from bridge.system.remote_words import Cause

MESSAGE: Final = "probe [skip ci]"
_NO_RUN: Final = "0" * 26
# Another prefix does not help against a rule about the commit itself, or a full disk.
_OF_THE_COMMIT: Final = frozenset({Cause.IDENTITY, Cause.SIGNATURE, Cause.MESSAGE, Cause.FULL})


def place_refs(store: RefStore, prefix: str, time_unix_s: int) -> Placement:
    """Return where a bus can keep its refs: at a prefix, else, where a host refuses that, below refs/heads/.

    Args:
        store: the remote.
        prefix: is tried first.
        time_unix_s: the present.

    Raises:
        RemoteError: it takes neither, or did not answer.
        BusError: it takes refs and does not show them.
    """
    try:
        return Placement(try_prefix(store, prefix, time_unix_s))
    except RemoteError as error:
        if prefix == names.BRANCH_PREFIX or error.is_passing or not error.cause or error.cause in _OF_THE_COMMIT:
            raise
        usual = error
    try:
        return Placement(try_prefix(store, names.BRANCH_PREFIX, time_unix_s), usual.message)
    except RemoteError as error:
        raise RemoteError(
            f"{usual.message}; nor below {names.BRANCH_PREFIX}: {error.message}", remedy=error.remedy, cause=error.cause
        ) from error


def try_prefix(store: RefStore, prefix: str, time_unix_s: int) -> PrefixTrial:
    """Create, move and delete a ref below a prefix.

    Raises:
        RemoteError: the remote refuses to create it, or did not answer.
        BusError: it takes the ref and does not show it.
    """
    ref = names.probe_ref(prefix)
    tip = _append(store, ref, time_unix_s)
    if ref not in tips_of(store, [ref]):
        _push(store, RefUpdate(ref, None, tip))
        raise BusError(
            f"{store.route} took {ref} and does not show it: its uploadpack.hideRefs hides the refs of a bus",
            remedy=f"in that repository: git config --add uploadpack.hideRefs '!{prefix.rstrip('/')}'",
        )
    empty = tree(())
    other = commit(empty.oid, (), time_unix_s + 1, MESSAGE, store.committer)
    store.write([empty, other])
    moves = _push(store, RefUpdate(ref, other.oid, tip))
    deletes = _push(store, RefUpdate(ref, None, other.oid if moves else tip))
    return PrefixTrial(prefix, moves, deletes)


def are_same(store: RefStore, other: RefStore, prefix: str, time_unix_s: int) -> bool:
    """Return whether a ref that is made at one remote shows at another: then both routes lead to one repository.

    Raises:
        RemoteError: the first refuses the ref, or one of them did not answer.
    """
    ref = names.probe_ref(prefix)
    tip = _append(store, ref, time_unix_s)
    try:
        return tips_of(other, [ref]).get(ref) == tip
    finally:
        _push(store, RefUpdate(ref, None, tip))


def try_requests(store: RefStore, template: str, time_unix_s: int) -> str | None:
    """Push to a branch in a request namespace and delete it again; return its name when it could not be deleted.

    It is the cancel branch of a request that nobody sent, so no runner acts on it.

    Args:
        store: the remote.
        template: of request branches.
        time_unix_s: the present.

    Raises:
        RemoteError: the remote refuses the push.
    """
    ref = cancel_branch(request_branch(template, "probe", _NO_RUN))
    return None if _push(store, RefUpdate(ref, None, _append(store, ref, time_unix_s))) else ref


def _append(store: RefStore, ref: str, time_unix_s: int) -> str:
    """Create a ref, or move it on where an earlier probe left it; return its tip.

    Raises:
        RemoteError: the remote refuses it, or did not answer.
    """
    before = tips_of(store, [ref]).get(ref)
    empty = tree(())
    made = commit(empty.oid, parents_at(store, ref, before, MIB), time_unix_s, MESSAGE, store.committer)
    store.write([empty, made])
    outcome = swap(store, [RefUpdate(ref, made.oid, before)], authority=ref)[ref]
    return outcome.tip or made.oid  # another probe of this moment was taken in its place


def _push(store: RefStore, update: RefUpdate) -> bool:
    """Return whether the remote took an update; a proxy that takes no deletions answers in the place of git."""
    try:
        return bool(store.push([update]).get(update.ref))
    except RemoteError as error:
        if error.is_passing:
            raise
        return False
