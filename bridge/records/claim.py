"""The authority over a run: claimed -> started -> terminal, each a compare-and-swap on one ref."""

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


class RunProgress(Record):
    """How far a started run is, as its runner saw it: for people only, nothing that is judged rests on it.

    Attributes:
        step: the command that runs.
        number, steps: which of the run's commands that is, from 1.
        unit: what is counted within it; None where nothing is.
        done, most: how many of them are over, and out of how many at most; None where nobody said.
        left_s: how long the rest of the step takes at the pace so far; None where there is no pace yet.
        waits: where it waits and why, while it is placed and nothing of it runs; None from then on.
    """

    step: Name
    number: Count
    steps: Count
    unit: Literal["sample", "launch"] | None = None
    done: Count = 0
    most: Count | None = None
    left_s: Seconds | None = None
    waits: Text | None = None


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
        progress: how far a started run is; written only where the runner knows.
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
    progress: RunProgress | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Where it stands in its chain: of two claims of a chain the later one compares as higher."""
        return (self.sequence, self.beat)

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        if not self.beat:
            fields.pop("beat", None)
        if self.progress is None:
            fields.pop("progress", None)
        return fields
