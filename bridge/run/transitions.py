"""Which claim may follow which: claimed -> started -> terminal, nothing runs twice, terminal is final.

Pure. Whether a lease has expired is the observer's business; this says what it may write when it thinks so.
"""

from __future__ import annotations

from bridge.errors import BusError
from bridge.records import Claim


def check_first(claim: Claim) -> None:
    """Refuse a claim that cannot begin a chain.

    Raises:
        BusError: not sequence 0, or not ``claimed``.
    """
    if claim.sequence != 0 or claim.state != "claimed":
        raise BusError(f"a chain begins with sequence 0, claimed; got {claim.sequence}, {claim.state}")
    _check_fields(claim)


def check_next(old: Claim, new: Claim) -> None:
    """Refuse a claim that cannot follow another.

    Raises:
        BusError: another run or request, a sequence that does not count on, a step backwards, a step after the end,
            or a started run in other hands that is not ended.
    """
    if (new.id, new.request_oid) != (old.id, old.request_oid):
        raise BusError("a claim's successor is of another run or request")
    if new.sequence != old.sequence + 1 or new.nonce == old.nonce:
        raise BusError(f"claim sequence {new.sequence} or its nonce does not follow {old.sequence}")
    if old.state == "terminal":
        raise BusError(f"run {old.id} has ended ({old.reason}); nothing follows")
    if old.state == "started" and new.state == "claimed":
        raise BusError("a started run is never claimed again")
    if old.state == "started" and new.runner != old.runner and (new.state, new.reason) != ("terminal", "runner_lost"):
        raise BusError("a started run of another runner may only be ended as runner_lost")
    _check_fields(new)


def _check_fields(claim: Claim) -> None:
    ended = claim.state == "terminal"
    if ended != (claim.reason is not None) or ended != (claim.exit_code is not None):
        raise BusError("reason and exit_code belong to terminal claims, and to each of them")
    if claim.result_oid is not None and not ended:
        raise BusError("only a terminal claim names a result")
