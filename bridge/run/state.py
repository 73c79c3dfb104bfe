"""The states of a run, read off its claims: queued → claimed → running → judging → done.

Pure. Nothing runs twice and an end is final. Whether a lease has run out is decided by `bridge.run.lease`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bridge.errors import BusError

if TYPE_CHECKING:
    from bridge.records.claim import Claim


class RunState(StrEnum):
    """The state of a run; its value is the name in documents and options."""

    UNKNOWN = "unknown"
    QUEUED = "queued"
    CLAIMED = "claimed"
    RUNNING = "started"
    JUDGING = "judging"
    DONE = "published"

    @property
    def terminal(self) -> bool:
        """Whether no state follows."""
        return self is RunState.DONE

    @property
    def word(self) -> str:
        """The word that people read."""
        return _WORDS.get(self, self.value)


_WORDS: Final = {RunState.UNKNOWN: "not on the bus", RunState.RUNNING: "running", RunState.DONE: "done"}

# The phase of a started run is what its runner reports, so running and judging may follow each other either way.
FOLLOWING: Final[Mapping[RunState, frozenset[RunState]]] = MappingProxyType(
    {
        RunState.QUEUED: frozenset({RunState.CLAIMED}),
        RunState.CLAIMED: frozenset({RunState.CLAIMED, RunState.RUNNING, RunState.JUDGING, RunState.DONE}),
        RunState.RUNNING: frozenset({RunState.RUNNING, RunState.JUDGING, RunState.DONE}),
        RunState.JUDGING: frozenset({RunState.RUNNING, RunState.JUDGING, RunState.DONE}),
        RunState.DONE: frozenset(),
    }
)


def state_of(claim: Claim | None, *, requested: bool = True) -> RunState:
    """Return the state that the newest claim of a run shows.

    Args:
        claim: None while no runner has claimed the run.
        requested: whether its request is on the bus.
    """
    if claim is None:
        return RunState.QUEUED if requested else RunState.UNKNOWN
    if claim.state == "terminal":
        return RunState.DONE
    if claim.state == "claimed":
        return RunState.CLAIMED
    return RunState.JUDGING if claim.phase in {"judging", "publishing"} else RunState.RUNNING


def check_first(claim: Claim) -> None:
    """Refuse a claim that cannot begin a chain.

    Raises:
        BusError: not sequence 0, or not ``claimed``.
    """
    if claim.sequence != 0 or state_of(claim) not in FOLLOWING[RunState.QUEUED]:
        raise BusError(f"a chain begins with sequence 0, claimed; got {claim.sequence}, {claim.state}")
    _check_fields(claim)


def check_next(old: Claim, new: Claim) -> None:
    """Refuse a claim that cannot follow another.

    Raises:
        BusError: another run or request, a sequence that does not count on, a state that cannot follow, or a started
            run in other hands that is not ended as ``runner_lost``.
    """
    if (new.id, new.request_oid) != (old.id, old.request_oid):
        raise BusError("a claim's successor is of another run or request")
    if new.sequence != old.sequence + 1 or new.nonce == old.nonce:
        raise BusError(f"claim sequence {new.sequence} or its nonce does not follow {old.sequence}")
    before, after = state_of(old), state_of(new)
    if old.state == "started" and new.runner != old.runner and (after, new.reason) != (RunState.DONE, "runner_lost"):
        raise BusError("a started run of another runner may only be ended as runner_lost")
    if after not in FOLLOWING[before]:
        was = "has ended" if before.terminal else f"is {before.word}"
        raise BusError(f"run {old.id} {was}; it cannot become {after.word}")
    _check_fields(new)


def _check_fields(claim: Claim) -> None:
    ended = claim.state == "terminal"
    if ended != (claim.reason is not None) or ended != (claim.exit_code is not None):
        raise BusError("reason and exit_code belong to terminal claims, and to each of them")
    if claim.result_oid is not None and not ended:
        raise BusError("only a terminal claim names a result")
