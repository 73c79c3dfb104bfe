"""Records that a host writes about its bus and its runners: bus record and beacon."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from bridge.limits import OFFERS_MAX_COUNT, QUOTAS_MAX_COUNT
from bridge.records.base import Count, Moment, Name, Record, Seconds, Sha256, Text

SIGNED_REQUESTS: Final = "signed-requests"  # a beacon's word that its owner lists keys that may sign requests
ANYBODY: Final = "*"  # in a beacon's quotas: every name that asked nothing
Wake = Literal["poll", "actions", "embedded"]


class KeyRecord(Record):
    """A runner's public key: its name, algorithm and base64 text."""

    name: Name
    algorithm: Literal["ed25519"]
    public: Text


class BusRecord(Record):
    """The host-issued record at the `bus` ref.

    Attributes:
        bus_id: 128 random bits in hex; requests are bound to it, not to a URL.
        wake: what makes a runner look: its own polling, GitHub Actions, or the client itself.
        request_form: ``manifest`` (a root commit holding only the request) or ``workload`` (over the workload tree).
        request_branches: glob patterns of branches on which requests are accepted.
        prefix: prefix of the runner-written refs.
        attestation: whether results carry a signature.
        renewals: whether a renewed claim takes the place of the one before (``amend``), or follows it (``chain``), on
            remotes that refuse a ref that does not descend from its tip.
        lease_s: the longest lease a runner may take.
        beacon_interval_s: how often runners that are busy show themselves.
        minimum_client: the oldest client version that understands this bus.
        moving_to: where its owner is moving it: until that is done its runners take nothing; written only then.
        moved_to: where its owner moved it: what is left here is this record, of schema 3; written only then.
    """

    schema_version: Literal[2, 3] = 2
    bus_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    wake: Wake
    request_form: Literal["manifest", "workload"]
    request_branches: tuple[Text, ...]
    prefix: Text
    attestation: Literal["none", "dsse"]
    keys: tuple[KeyRecord, ...] = ()
    renewals: Literal["amend", "chain"] = "amend"
    lease_s: Seconds
    beacon_interval_s: Seconds
    minimum_client: Text
    created: Moment
    moving_to: Text = ""
    moved_to: Text = ""

    @model_validator(mode="after")
    def _of_schema(self) -> Self:
        if (self.schema_version == 3) != bool(self.moved_to):
            raise ValueError("a record of a bus that moved is of schema 3, and no other is")
        return self

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        optional = {"moving_to", "moved_to"}
        return {name: value for name, value in serialise(self).items() if value or name not in optional}

    def counted_lease_s(self, lease_s: float) -> float:
        """Return how long a claim that says so much is waited for: no longer than this bus allows, whoever wrote it."""
        return min(lease_s, self.lease_s)


class AcceptedWorkflow(Record):
    """A workflow file that a host's job hook accepts: its path, the sha256 of its bytes, and patterns of refs."""

    path: Text
    sha256: Sha256
    refs: tuple[Text, ...]


class QuotaUse(Record):
    """What a name may still ask of a runner within the hour.

    Attributes:
        principal: ``unsigned`` for all unsigned requests together, ``*`` for every name that asked nothing.
        per_hour: how many requests the runner takes of it.
        left: how many of them were left at the beacon's time.
        next: when the oldest that counts will be an hour old; None where none counts.
    """

    principal: Text
    per_hour: Annotated[int, Field(ge=1)]
    left: Count
    next: Moment | None = None


class RunnerStart(Record):
    """One start of a runner: beacons of two that go on at once under one name differ in it.

    Attributes:
        nonce: 16 random bytes in hex.
        machine: sha256 over machine, boot and bus.
    """

    time: Moment
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    machine: Sha256


class Beacon(Record):
    """A runner's sign of life.

    Attributes:
        sequence: one more each time; liveness is seeing it advance, or its commit being young.
        state: what the runner would do with a request now.
        presets: names it would accept.
        capabilities: measured facts such as ``mlx``, ``cuda``, ``sandbox:bwrap``.
        queue: pending requests it has seen.
        spooled: run ids whose results are built and could not be delivered yet.
        interval_s: seconds after which the next one comes at the latest; None means the bus's own interval.
        workflows: workflow files that Actions may run on this host; requesters are warned about others.
        thermal: ``unknown`` is a value.
        offers: of the presets above, those that are the host's own, whole, as their `Preset`; written only where there
            are any.
        quotas: what is left of the hour's shares of those who asked within it, of unsigned requests, and of names that
            asked nothing where the owner gave no name a share of its own; written only where there are any.
        not_taking: why it takes nothing, where that is because of its policy file; written only then.
        start: which start of the runner says it; written by runners that remember their starts.
    """

    schema_version: Literal[1] = 1
    runner: Name
    version: Text
    sequence: Count
    state: Literal["idle", "busy", "paused", "draining", "stopped"]
    policy_digest: Sha256
    presets: tuple[Name, ...]
    labels: tuple[Name, ...]
    capabilities: tuple[Text, ...]
    host: Text
    queue: Count
    running: tuple[Text, ...]
    spooled: tuple[Text, ...] = ()
    interval_s: Seconds | None = None
    workflows: tuple[AcceptedWorkflow, ...] = ()
    disk_free_bytes: Count
    thermal: Text
    time: Moment
    offers: Annotated[tuple[dict[str, Any], ...], Field(max_length=OFFERS_MAX_COUNT)] = ()
    quotas: Annotated[tuple[QuotaUse, ...], Field(max_length=QUOTAS_MAX_COUNT)] = ()
    not_taking: Text = ""
    start: RunnerStart | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        optional = {"offers", "quotas", "not_taking", "start"}
        return {name: value for name, value in serialise(self).items() if value or name not in optional}
