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
# receive-pack checks that it has what its refs reach, so one ref with a lost object keeps every push out.
_DAMAGED: Final = re.compile(r"missing necessary objects|bad object", re.IGNORECASE)
_REPAIR: Final = "an object of another ref is lost there; on a host of this bus: kakeya-runner bus repair"
# How git, and what imitates it, says that it did not get the lock of a ref: another one may be in its way.
_LOCKED: Final = re.compile(r"lock|exists|conflict|failed to update|stale", re.IGNORECASE)


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
    expected = next(update.expect for update in updates if update.ref == authority)
    failure: RemoteError | None = None
    answer = RefAnswer(taken=False)
    refused = pauses = 0
    while refused < REFUSED_TRIES:
        try:
            answers = store.push(updates)
        except RemoteError as error:
            failure, answers = error, {}
        else:
            failure = None
        answer = answers.get(authority, RefAnswer(taken=False))
        if all(answers.get(update.ref) for update in updates):
            return {update.ref: SwapResult(landed=True, tip=update.new) for update in updates}
        outcomes = _outcomes(store, updates, answers, sure=answer.taken)
        if outcomes[authority].landed or outcomes[authority].tip != expected:
            return outcomes
        if failure is None and (not answer.why or _LOCKED.search(answer.why)):
            refused += 1
            continue
        if failure is None or not _is_brief(failure) or not store.pause(pauses):
            break
        pauses += 1
    unmoved = f"{store.route} did not take {authority}, which is unchanged"
    if failure is not None:
        words, passing = f"{unmoved}: {failure.message}", failure.is_passing
        raise type(failure)(words, remedy=failure.remedy, cause=failure.cause, is_passing=passing) from failure
    if expected is None and _LOCKED.search(answer.why):
        from bridge.bus.store.obstacles import refuse_beside  # commands that are quick never need it

        refuse_beside(store, authority, unmoved)
    if _DAMAGED.search(answer.why):
        raise RemoteError(f"{unmoved}; the remote says: {answer.why}", remedy=_REPAIR)
    from bridge.system.remote_words import Cause, cause_of, remedy_of

    words = f"the remote says: {answer.why}" if answer.why else "the remote does not say why"
    cause = cause_of(answer.why) if answer.why else Cause.RULE
    raise RemoteError(f"{unmoved}; {words}", remedy=remedy_of(cause, store.route, is_push=True), cause=cause)


def tips_of(store: RefStore, refs: Sequence[str]) -> dict[str, str]:
    """Return the tips of those refs that exist, listed by their full names."""
    names = set(refs)
    return {ref: oid for ref, oid in store.list(sorted(names)).refs.items() if ref in names}


def _is_brief(failure: RemoteError) -> bool:
    from bridge.system.remote_words import Cause

    return Cause(failure.cause or Cause.UNKNOWN).is_brief


def _outcomes(
    store: RefStore, updates: Sequence[RefUpdate], answers: Mapping[str, RefAnswer], *, sure: bool
) -> dict[str, SwapResult]:
    """Return outcomes from the push report and a listing; a failed listing is ignored where `sure`."""
    try:
        tips = tips_of(store, [update.ref for update in updates])
    except RemoteError:
        if not sure:
            raise
        tips = {update.ref: update.expect for update in updates if update.expect is not None}
    return {
        update.ref: SwapResult(
            landed=bool(answers.get(update.ref)) or tips.get(update.ref) == update.new, tip=tips.get(update.ref)
        )
        for update in updates
    }
