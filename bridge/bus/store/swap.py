"""Push with compare-and-swap and determine the outcome.

A lost reply leaves a moved ref behind a failed push; a lock at the wrong moment refuses a push that was right. What
counts is the remote's own word on a ref, or failing that a listing afterwards. Knows nothing about what refs mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.bus.store.interface import RefAnswer, RefStore, RefUpdate
from bridge.errors import RemoteError

REFUSED_TRIES: Final = 4
_REFUSED: Final = "ask who keeps the remote to lift what refuses it (a hook, a rule, a quota, a full disk), then repeat"
# receive-pack checks that it has what its refs reach, so one ref with a lost object keeps every push out.
_DAMAGED: Final = re.compile(r"missing necessary objects|bad object", re.IGNORECASE)
_REPAIR: Final = "an object of another ref is lost there; on a host of this bus: kakeya-runner bus repair"
# How git, and what imitates it, says that it did not get the lock of a ref: another one may be in its way.
_LOCKED: Final = re.compile(r"lock|exists|conflict|failed to update", re.IGNORECASE)


@dataclass(frozen=True)
class SwapResult:
    """The outcome of one update: whether the ref moved to the new commit, and its tip (None: absent)."""

    landed: bool
    tip: str | None


def swap(store: RefStore, updates: Sequence[RefUpdate], *, authority: str) -> Mapping[str, SwapResult]:
    """Push updates and return every ref's outcome.

    Only an unknown outcome of `authority` is an error. Another ref whose outcome is unknown is reported as unmoved, and
    the same update may be sent again.

    Raises:
        RemoteError: `authority` has not moved, with the remote's words where it refused, or it cannot be told; the same
            call may be repeated.
    """
    wanted = next(one for one in updates if one.ref == authority)
    failure: RemoteError | None = None
    answer = RefAnswer(taken=False)
    for _ in range(REFUSED_TRIES):
        try:
            said = store.push(updates)
        except RemoteError as error:
            failure, said = error, {}
        answer = said.get(authority, RefAnswer(taken=False))
        if all(said.get(one.ref) for one in updates):
            return {one.ref: SwapResult(landed=True, tip=one.new) for one in updates}
        seen = _outcomes(store, updates, said, sure=answer.taken)
        if seen[authority].landed or seen[authority].tip != wanted.expect:
            return seen
        if failure is not None:
            break
    said_no = f"{store.route} did not take {authority}, which is unchanged"
    if failure is not None:
        raise RemoteError(f"{said_no}: {failure.message}", remedy=failure.remedy) from failure
    if wanted.expect is None and _LOCKED.search(answer.why):
        from bridge.bus.store.obstacles import refuse_beside  # commands that are quick never need it

        refuse_beside(store, authority, said_no)
    if _DAMAGED.search(answer.why):
        raise RemoteError(f"{said_no}; the remote says: {answer.why}", remedy=_REPAIR)
    words = f"the remote says: {answer.why}" if answer.why else "the remote does not say why"
    raise RemoteError(f"{said_no}; {words}", remedy=_REFUSED)


def tips_of(store: RefStore, refs: Sequence[str]) -> dict[str, str]:
    """Return the tips of those refs that exist, listed by their full names."""
    wanted = set(refs)
    return {ref: oid for ref, oid in store.list(sorted(wanted)).refs.items() if ref in wanted}


def _outcomes(
    store: RefStore, updates: Sequence[RefUpdate], said: Mapping[str, RefAnswer], *, sure: bool
) -> dict[str, SwapResult]:
    """Return outcomes from the push report and a listing; a failed listing is ignored where `sure`."""
    try:
        tips = tips_of(store, [one.ref for one in updates])
    except RemoteError:
        if not sure:
            raise
        tips = {one.ref: one.expect for one in updates if one.expect is not None}
    return {
        one.ref: SwapResult(landed=bool(said.get(one.ref)) or tips.get(one.ref) == one.new, tip=tips.get(one.ref))
        for one in updates
    }
