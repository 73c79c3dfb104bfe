"""The authority over a run: claimed -> started -> terminal, each a compare-and-swap on one ref."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from bridge.records.base import Count, Moment, Name, Oid, Record, RunId, Seconds, Text

ClaimState = Literal["claimed", "started", "terminal"]
Reason = Literal[
    "passed",
    "gate_rejected",
    "program_failed",
    "timed_out",
    "cancelled",
    "request_rejected",
    "policy_refused",
    "expired",
    "runner_lost",
    "interrupted",
    "publish_failed",
    "infrastructure",
]
Delivery = Literal["copied", "branch_moved", "branch_deleted", "spooled"]


class Claim(Record):
    """One commit of a claim ref; the chain is its first parents.

    Attributes:
        request_oid: the request commit this claim is about; another one under the same id is rejected.
        runner: the runner's name.
        nonce: 16 random bytes in hex: no two claims are the same commit.
        sequence: 0 for the first commit of the chain, then one more for each commit below it.
        beat: 0 for a change of state or hands; a renewal has one more than the claim it renews, and takes the place of
            an earlier renewal, with its sequence and its parent. Written only where it is not 0.
        lease_s: seconds without a new commit after which the runner is gone, on the observer's own clock.
        phase: what a started run is doing.
        reason, message: of a terminal claim; the message is one line for people.
        exit_code: the exit code the requester's command ends in, of a terminal claim.
        result_oid: the result commit, of a terminal claim; None when there is none to show.
        time: the runner's wall clock; for people only.
    """

    schema_version: Literal[1] = 1
    id: RunId
    request_oid: Oid
    state: ClaimState
    runner: Name
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    sequence: Count
    beat: Count = 0
    lease_s: Seconds
    phase: Literal["preparing", "running", "judging", "publishing"] | None = None
    reason: Reason | None = None
    message: Text | None = None
    exit_code: int | None = None
    result_oid: Oid | None = None
    time: Moment

    @property
    def position(self) -> tuple[int, int]:
        """Where it stands in its chain: of two claims of a chain the later one compares as higher."""
        return (self.sequence, self.beat)

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        if not self.beat:
            found.pop("beat", None)
        return found
