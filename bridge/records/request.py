"""What a requester sends: a manifest, never code and never policy."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from bridge.limits import LABELS_MAX_COUNT, PARAMS_MAX_COUNT, SWEEP_MAX_COUNT
from bridge.records.base import Moment, Name, Oid, ParamValue, Record, RunId, Seconds, Sha256, Text

PRINCIPAL_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}"
FINGERPRINT_PATTERN: Final = r"SHA256:[A-Za-z0-9+/]{43}"
Measuring = Literal["smoke", "claim"]
"""How strictly a run is measured."""
Profile = Literal["smoke", "claim", "standing"]
"""What is asked for: a run measured so, or ``standing``: one of several claims, sittings of one question apart."""
EffectWord = Literal["faster", "slower"]
"""What may be asked of a ratio, to be answered with yes or no."""
DrawnLoad = Literal["drawn"]
_Positive = Annotated[int, Field(gt=0)]
_PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_WRITTEN_WHERE_GIVEN = ("confirms", "unsandboxed", "sweep", "asks", "load")


class Workload(Record):
    """The code a request brings, for presets whose code comes from the request.

    Attributes:
        commit: the commit whose tree is to be tested.
        tree: its tree.
        origin: where it can be read, without user information; empty when unknown.
        dirty: whether the tree holds uncommitted changes of tracked files.
    """

    commit: Oid
    tree: Oid
    origin: Text
    dirty: bool


class RunnerSelector(Record):
    """Which runner may take it: one named runner, or any runner with all of these labels; at most one runs it."""

    name: Name | None = None
    labels: Annotated[tuple[Name, ...], Field(max_length=LABELS_MAX_COUNT)] = ()


class LimitRequest(Record):
    """Limits that only tighten what the preset and the host allow.

    A bound of the second group is written only where it is given, so that requests without it keep their bytes.
    """

    wall_s: Seconds | None = None
    log_bytes: _Positive | None = None
    output_bytes: _Positive | None = None

    inactivity_s: _PositiveSeconds | None = None
    cpu_s: _PositiveSeconds | None = None
    memory_bytes: _Positive | None = None
    processes: _Positive | None = None
    tasks: _Positive | None = None
    open_files: _Positive | None = None
    output_files: _Positive | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        always = ("wall_s", "log_bytes", "output_bytes")
        return {name: value for name, value in serialise(self).items() if value is not None or name in always}


class SweepPlace(Record):
    """The place of a request among those that one command sent.

    Attributes:
        id: the same for all of them; the seeds of a workload's repeats follow from it and `repeat`.
        repeat: from 0; the runs of one repeat get the same seeds, so that their parameters are compared in pairs. Of
            a standing claim it is the number of the sitting.
        count: how many requests there are.
        cells: how many combinations of parameters they have, as the best of so many could be shown; written only where
            there are several.
    """

    id: RunId
    repeat: Annotated[int, Field(ge=0, lt=SWEEP_MAX_COUNT)]
    count: Annotated[int, Field(ge=1, le=SWEEP_MAX_COUNT)]
    cells: Annotated[int, Field(ge=1, le=SWEEP_MAX_COUNT)] = 1

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialise(self).items() if name != "cells" or value > 1}


class Request(Record):
    """A request, schema 2. Stored bytes are canonical bytes.

    Attributes:
        id: the run id; the branch name ends in it.
        bus_id: the random id of the bus it is meant for; a copy on another bus is refused.
        ref: the full name of the request branch it is pushed on.
        principal: who asks; ``unsigned`` without a signature.
        signer: the key fingerprint that signs it, or None.
        preset: the name of a preset of the host.
        params: typed values; the host's preset decides which are allowed.
        profile: how strictly a speed claim is measured, and whether it is one sitting of several.
        workload: the code brought along, or None for host code.
        expires: after this it is never started; the host caps the validity.
        idempotency_key: digest over bus, principal, preset, params, profile, workload tree, runner, limits, the run
            that is confirmed, the place in a sweep, the word that is asked and the load.
        retry_of: the run this one repeats, or None.
        confirms: the run of the same question whose result this one is to confirm, said before it is measured; written
            only where it is given, so that other requests keep their bytes.
        unsandboxed: run without a sandbox on the requester's own machine; a host with a bus of its own refuses it.
            Written only where it is asked for, so that requests without it keep their bytes.
        sweep: its place in a sweep; written only where it is part of one.
        asks: the word that its ratio is asked for, to be answered after three looks instead of measured; written only
            where it is asked.
        load: ``drawn``, for a run in whose every second launch the host holds half of its processors; written only
            where it is asked for.
    """

    schema_version: Literal[2] = 2
    id: RunId
    bus_id: Text
    ref: Text
    principal: Text
    signer: Text | None = None
    preset: Name
    params: Annotated[dict[Name, ParamValue], Field(max_length=PARAMS_MAX_COUNT)]
    profile: Profile
    workload: Workload | None = None
    runner: RunnerSelector = RunnerSelector.model_construct()  # no validator is built to define a class
    limits: LimitRequest = LimitRequest.model_construct()
    created: Moment
    expires: Moment
    idempotency_key: Sha256
    retry_of: RunId | None = None
    confirms: RunId | None = None
    unsandboxed: bool = False
    sweep: SweepPlace | None = None
    asks: EffectWord | None = None
    load: DrawnLoad | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialise(self).items() if value or name not in _WRITTEN_WHERE_GIVEN}
