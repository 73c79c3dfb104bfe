"""Push with compare-and-swap and determine the outcome.

A lost reply leaves a moved ref behind a failed push; a lock at the wrong moment refuses a push that was right. What
counts is the remote's own word on a ref, or failing that a listing afterwards. Knows nothing about what refs mean.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.bus.store.interface import RefAnswer, RefStore, RefUpdate
from bridge.errors import RemoteError

REFUSED_TRIES: Final = 4
# receive-pack checks that it has what its refs reach, so one ref with a lost object keeps every push out.
_DAMAGED: Final = re.compile(r"missing necessary objects|bad object", re.IGNORECASE)
_REPAIR: Final = "an object of another ref is lost there; on a host of this bus: kakeya-runner bus repair"
_TOGETHER: Final = re.compile(r"^atomic ", re.IGNORECASE)  # said of a ref that another one kept from moving
# How git, and what imitates it, says that it did not get the lock of a ref: another one may be in its way.
_LOCKED: Final = re.compile(r"lock|exists|conflict|failed to update|stale", re.IGNORECASE)


@dataclass(frozen=True)
class SwapResult:
    """The outcome of one update: whether the ref moved to the new commit, and its tip (None: absent)."""

    landed: bool
    tip: str | None

    def differs(self, update: RefUpdate) -> bool:
        """Return whether nothing changes what became of this update: it landed, or its ref is elsewhere."""
        return self.landed or self.tip != update.expect


def swap(
    store: RefStore, updates: Sequence[RefUpdate], *, authority: str, atomic: Collection[str] = ()
) -> Mapping[str, SwapResult]:
    """Push updates and return every ref's outcome.

    Only an unknown outcome of `authority` is an error. Another ref whose outcome is unknown is reported as unmoved, and
    the same update may be sent again.

    Args:
        store: the remote.
        updates: what is to move.
        authority: the ref whose outcome counts.
        atomic: the refs that move together or not at all, where the remote can do that; others go along at the first
            try only, as one that is refused would keep those back.

    Raises:
        RemoteError: `authority` has not moved, with the remote's words where it refused, or it cannot be told; the same
            call may be repeated.
    """
    expected = next(update.expect for update in updates if update.ref == authority)
    failure: RemoteError | None = None
    answer = RefAnswer(taken=False)
    refused = pauses = 0
    left_out: Mapping[str, SwapResult] = {}
    while refused < REFUSED_TRIES:
        try:
            answers = store.push(updates, atomic=bool(atomic))
        except RemoteError as error:
            failure, answers = error, {}
        else:
            failure = None
        answer = answers.get(authority, RefAnswer(taken=False))
        if all(answers.get(update.ref) for update in updates):
            return {**left_out, **{update.ref: SwapResult(landed=True, tip=update.new) for update in updates}}
        outcomes = {**left_out, **_outcomes(store, updates, answers, sure=answer.taken)}
        if any(outcomes[update.ref].differs(update) for update in updates if update.ref in {authority, *atomic}):
            return outcomes
        if failure is None and len(updates) > len(atomic) > 0:
            left_out = {ref: outcome for ref, outcome in outcomes.items() if ref not in atomic}
            updates = [update for update in updates if update.ref in atomic]
            continue
        if atomic:  # what kept the others back says why
            answer = next((word for word in answers.values() if word.why and not _TOGETHER.search(word.why)), answer)
        if failure is None and (not answer.why or _LOCKED.search(answer.why)):
            refused += 1
            continue
        if failure is None or not _is_brief(failure) or not store.pause(pauses):
            break
        pauses += 1
    raise _unmoved(store, authority, expected, answer, failure)


def _unmoved(
    store: RefStore, authority: str, expected: str | None, answer: RefAnswer, failure: RemoteError | None
) -> RemoteError:
    """Return the error of a ref that stayed where it was expected, with the remote's words.

    Raises:
        RemoteError: it is another ref that keeps it out.
    """
    unmoved = f"{store.route} did not take {authority}, which is unchanged"
    if failure is not None:
        words, passing = f"{unmoved}: {failure.message}", failure.is_passing
        error = type(failure)(words, remedy=failure.remedy, cause=failure.cause, is_passing=passing)
        error.__cause__ = failure
        return error
    if expected is None and _LOCKED.search(answer.why):
        from bridge.bus.store.obstacles import refuse_beside  # commands that are quick never need it

        refuse_beside(store, authority, unmoved)
    if _DAMAGED.search(answer.why):
        return RemoteError(f"{unmoved}; the remote says: {answer.why}", remedy=_REPAIR)
    from bridge.system.remote_words import Cause, cause_of, remedy_of

    words = f"the remote says: {answer.why}" if answer.why else "the remote does not say why"
    cause = cause_of(answer.why) if answer.why else Cause.RULE
    return RemoteError(f"{unmoved}; {words}", remedy=remedy_of(cause, store.route, is_push=True), cause=cause)


def delete(store: RefStore, ref: str, oid: str) -> RefAnswer:
    """Delete a ref where it still points there; return what the remote says, also where it refuses the whole push.

    Raises:
        RemoteError: the remote did not answer.
    """
    try:
        return store.push([RefUpdate(ref, None, oid)]).get(ref, RefAnswer(taken=False))
    except RemoteError as error:
        if error.is_passing:
            raise
        return RefAnswer(taken=False, why=error.message)


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
