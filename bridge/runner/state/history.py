"""What the journal says of the runs that have not reached their end: one history a run, folded line by line.

Pure. A stage is reached once and never left backwards: a run that is claimed again after a crash keeps its stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Literal, cast, get_args

from pydantic import Field

from bridge.bus.views import RequestRef
from bridge.records.base import Count, Moment, Oid, Record, RunId, Sha256
from bridge.records.claim import Reason
from bridge.run.outcomes import Ending
from bridge.run.state import RunState

Event = Literal[
    "fetched",
    "claimed",
    "prepared",
    "started",
    "exited",
    "judged",
    "result_built",
    "terminal",
    "copied",
    "announced",
    "fenced",
]
TOLD: Final = frozenset[Event]({"prepared", "judged"})  # for people alone: recovery does the same without them
PENDING_NOTIFICATION: Final = "owed"  # in the detail of a copy: somebody is still to be notified of it
ATTESTATION: Final = "attestation"  # in the detail of a built result: the digest of its attestation


class JournalLine(Record):
    """One event of one run.

    Attributes:
        seq: 0 for the first line, then one more each.
        prev_sha256: digest of the line before, zeros for the first.
        oid: the commit the event is about: request, claim, result or terminal commit; None where there is none.
        detail: what recovery needs, such as how a run ended.
    """

    seq: Count
    prev_sha256: Sha256
    event: Event
    id: RunId
    oid: Oid | None
    time: Moment
    detail: dict[str, str | int | float | None] = Field(default_factory=dict)


class JournalStage(IntEnum):
    """How far a run has come: the states of a run, with judging and done split where a crash matters.

    What is built is never built again, what is published is only copied, what is copied is only notified of.
    """

    QUEUED = 0
    CLAIMED = 1
    RUNNING = 2
    JUDGING = 3
    BUILT = 4
    PUBLISHED = 5
    COPIED = 6

    @property
    def state(self) -> RunState:
        """The state of the run as the shared model has it."""
        return _STATES[self]


_STATES: Final[Mapping[JournalStage, RunState]] = MappingProxyType(
    {
        JournalStage.QUEUED: RunState.QUEUED,
        JournalStage.CLAIMED: RunState.CLAIMED,
        JournalStage.RUNNING: RunState.RUNNING,
        JournalStage.JUDGING: RunState.JUDGING,
        JournalStage.BUILT: RunState.JUDGING,
        JournalStage.PUBLISHED: RunState.DONE,
        JournalStage.COPIED: RunState.DONE,
    }
)
_REACHED: Final[Mapping[Event, JournalStage]] = MappingProxyType(
    {
        "claimed": JournalStage.CLAIMED,
        "started": JournalStage.RUNNING,
        "exited": JournalStage.JUDGING,
        "result_built": JournalStage.BUILT,
        "terminal": JournalStage.PUBLISHED,
        "copied": JournalStage.COPIED,
    }
)


@dataclass(frozen=True)
class BuiltResult:
    """A result tree that is stored and may have landed: its commit, its request branch, how the run ended."""

    oid: str | None
    branch: str
    ending: Ending


@dataclass(frozen=True)
class RunHistory:
    """What the journal says of one run.

    Attributes:
        nonces: of the claims that this runner tried to make.
        claim_oid: the last claim of this runner that the bus acknowledged before the end, or None.
        end_oid: the claim of this runner that ended the run, or None.
        ran: whether its program came to its end here.
        revoked: why the host ended it while it ran, or None.
        sequences: numbers of its attestations.
        built: its result, or None.
        delivered: the request as it was when its result was copied, or None.
        delivered_oid: the result commit that was copied, or None.
    """

    id: str
    stage: JournalStage = JournalStage.QUEUED
    nonces: frozenset[str] = frozenset()
    claim_oid: str | None = None
    end_oid: str | None = None
    ran: bool = False
    revoked: str | None = None
    sequences: tuple[int, ...] = ()
    built: BuiltResult | None = None
    delivered: RequestRef | None = None
    delivered_oid: str | None = None

    @property
    def state(self) -> RunState:
        """The state of the run as the shared model has it."""
        return self.stage.state


def after(history: RunHistory | None, line: JournalLine) -> RunHistory | None:
    """Return the history of a run after one more line; None when nothing is left to do for it."""
    known = _with_facts(history or RunHistory(line.id), line)
    stage = max(known.stage, _REACHED.get(line.event, JournalStage.QUEUED))
    ended = line.event in {"announced", "fenced"} or (
        line.event == "copied" and PENDING_NOTIFICATION not in line.detail
    )
    return None if ended else replace(known, stage=stage)


def _with_facts(known: RunHistory, line: JournalLine) -> RunHistory:
    detail, found = line.detail, known
    match line.event:
        case "fetched":
            found = replace(known, nonces=known.nonces | {str(detail.get("nonce"))})
        case "claimed" | "started":
            found = replace(known, claim_oid=line.oid or known.claim_oid)
        case "exited":
            why = detail.get("revoked")
            found = replace(known, ran=True, revoked=None if why is None else str(why))
        case "result_built":
            built = BuiltResult(line.oid, str(detail.get("ref", "")), _ending(line))
            numbers = (int(detail["sequence"] or 0),) if ATTESTATION in detail else ()
            claim_oid = str(detail["claim"]) if "claim" in detail else known.claim_oid
            found = replace(known, built=built, claim_oid=claim_oid, sequences=(*known.sequences, *numbers))
        case "terminal":
            found = replace(known, end_oid=line.oid)
        case "copied":
            ref = RequestRef(line.id, str(detail.get("ref", "")), str(detail.get("request_oid", "")))
            found = replace(known, delivered=ref, delivered_oid=line.oid)
    return found


def _ending(built: JournalLine) -> Ending:
    """Return how a run ended; a reason that a newer version invented is an infrastructure failure here."""
    reason, message = built.detail.get("reason"), built.detail.get("message")
    said = None if message is None else str(message)
    return Ending(cast("Reason", reason) if reason in get_args(Reason) else "infrastructure", said)
