"""What happened: written by the runner, never by the workload."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from bridge.limits import ANSWER_MAX_CHARS
from bridge.records.base import Count, Moment, Name, Oid, Record, RunId, Seconds, Sha256, Text
from bridge.records.network import Network, NetworkUse
from bridge.records.turns import LaunchRecord
from bridge.records.workload import ProgramDigest


class HostRecord(Record):
    """The machine. ``unknown`` is a value; a guess is not."""

    name: Text
    os: Text
    os_version: Text
    machine: Text
    cpu: Text
    cpu_count: Count
    memory_bytes: Count
    devices: tuple[Text, ...]
    drivers: dict[str, str]
    virtualised: Text


class CodeRecord(Record):
    """The code that ran.

    Attributes:
        origin: whose code.
        trust_class: what the host's owner says of it.
        identity: commit or wheel digest of host code; commit of request code; ``unknown`` when neither is known.
        dirty: whether it differs from that commit; None when unknown.
        interpreter, interpreter_version: what ran it.
        packages: installed distributions and versions.
        lock_digest: sha256 over the canonical package list.
        programs: of a workload, everything that was to run, digested just before, or after where it changed in between;
            written only where there is any.
        altered: of a claim of the engine's, what Python may load that is not what was installed, by path, at most 20;
            written only where there is any.
    """

    origin: Literal["host", "request"]
    trust_class: Literal["host", "trusted", "untrusted"]
    identity: Text
    tree: Oid | None = None
    dirty: bool | None
    interpreter: Text
    interpreter_version: Text
    packages: dict[str, str]
    lock_digest: Sha256
    programs: tuple[ProgramDigest, ...] = ()
    altered: tuple[Text, ...] = ()

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialise(self).items() if value or name not in {"programs", "altered"}}


class ImportedModule(Record):
    """Where the workload's own package came from, as the runner found out before any of it ran.

    Attributes:
        module: top-level name.
        path: its file or folder, links resolved.
        work: the folder it was started in, links resolved: the request's tree for request code.
        installation: the host's own installed package, links resolved; None when it has none.
    """

    module: Text
    path: Text
    work: Text
    installation: Text | None = None


class CacheShape(Record):
    """What one layer keeps of a position: that many values of keys and of values.

    Attributes:
        window: newest positions the layer attends to, None for all of them.
    """

    keys: Count
    values: Count
    window: Count | None


class ModelShape(Record):
    """Sizes of a model's text part, as the runner read them from the folder's own files.

    Attributes:
        parameters: values in all of its tensors.
        text_only: the folder holds that text part alone, each value stored as it is: the number is exact.
        dtype: what the first layer's projection of keys is computed in: float32 where config.json names it, else as
            stored; None for a folder of which anything is in codes.
        caches: of the layers with a cache of their own, in order; None where config.json does not say.
    """

    parameters: Count
    text_only: bool
    vocabulary: Count
    dtype: Text | None
    caches: tuple[CacheShape, ...] | None


class ModelDigest(Record):
    """A model folder the run could read.

    Attributes:
        sha256: of one line ``path size digest`` per file of the folder: tokenizer, templates and cards included.
        weights_sha256: of one line ``name digest`` for config.json and each ``model*.safetensors``, in order of names:
            the digest that a report's ``config.target.digest`` states. None in records from before it was taken, and
            for a folder without these files.
        shape: its sizes; None in records from before they were read, and for a folder of another layout.
    """

    name: Text
    path: Text
    files: Count
    bytes: Count
    sha256: Sha256
    weights_sha256: Sha256 | None = None
    shape: ModelShape | None = None


class OutputRecord(Record):
    """A file the run left in its report directory; `after_start` says it was created in this run."""

    path: Text
    bytes: Count
    sha256: Sha256
    after_start: bool


_OPTIONAL = frozenset({"answer", "weight"})


class CommandResult(Record):
    """One command's end. Exactly one of exit_code and signal is set when the process ended by itself.

    Attributes:
        started_s, ended_s: seconds since the run's start on the runner's steady clock.
        survivors: processes that were still there after the kill; 0 is the only good number.
        before: what lay in the report directory when a command that confirms began; None for any other.
        answer: the last line that a command which confirms a workload's repeat wrote; written only where there is one.
        weight: of the command against other processes that want a processor, such as ``cpu.weight 50`` or ``nice 10``;
            None where it has none of its own, and in records from before there were any.
    """

    name: Name
    argv: tuple[str, ...]
    started_s: Seconds
    ended_s: Seconds
    exit_code: int | None
    signal: int | None
    peak_rss_bytes: Count
    cpu_s: Seconds
    survivors: Count
    before: tuple[OutputRecord, ...] | None = None
    answer: Annotated[str, Field(max_length=ANSWER_MAX_CHARS)] | None = None
    weight: Text | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialise(self).items() if value is not None or name not in _OPTIONAL}


class LimitHit(Record):
    """A bound that ended or cut something: which, at what value, and what was done."""

    limit: Name
    bound: float
    observed: float
    action: Literal["killed", "truncated", "refused"]


class TrialOutcome(Record):
    """What came of trying the sandbox that a run got, before it was promised.

    Attributes:
        kind: the kind of run that was tried: ``host`` programs, code of a ``request``, or a ``peer``.
        tried: ways out that were tried and refused.
        key: digest over boot, policy, interpreter, sandbox program and user, for which the outcome holds.
        time: when it was tried.
    """

    kind: Literal["host", "request", "peer"]
    tried: Count
    key: Sha256
    time: Moment


INSTEAD_OF: Final = "instead of bubblewrap: "


class SandboxApplied(Record):
    """What confined the run in fact.

    Attributes:
        kind: ``none``, ``bwrap``, ``seatbelt``, or ``landlock``, which says in `filters` what it never holds.
        reason: why none, or None.
        network: what the run could reach.
        namespaces, filters: as applied, for people and the gate.
        uid: numeric user it ran as.
        trial: what came of trying it; None in records from before that was kept, and without a sandbox. Left out then,
            so that those records keep their bytes.
        use: what the run did with its network, where that goes through a proxy; left out where it does not.
    """

    kind: Literal["none", "bwrap", "landlock", "seatbelt"]
    reason: Text | None
    network: Network
    namespaces: tuple[Text, ...]
    filters: tuple[Text, ...]
    uid: int
    trial: TrialOutcome | None = None
    use: NetworkUse | None = None

    @property
    def fallback_reason(self) -> str | None:
        """Why the platform's first choice does not hold, where this is the second; None for the first."""
        return next((text.removeprefix(INSTEAD_OF) for text in self.filters if text.startswith(INSTEAD_OF)), None)

    @property
    def not_held(self) -> str | None:
        """What this kind of sandbox never holds, in words; None where it holds all that is promised of one."""
        return next((text for text in self.filters if text.startswith("not held: ")), None)

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        left_out = {name for name in ("trial", "use") if getattr(self, name) is None}
        return {name: value for name, value in serialise(self).items() if name not in left_out}


class PeerRecord(Record):
    """The other side of a command: request code that only answers, apart from the host code that asks and measures.

    Attributes:
        command: name of the command it answered.
        nonce: drawn by the executor when the command began; what is asked is derived from it.
        started_s, ended_s: seconds since the run's start on the runner's steady clock.
        sandbox: what confined it; its user is never the command's.
        held: when all of its processes were stopped, in the same seconds: nothing of it ran meanwhile.
        survivors: processes that were still there after the kill; 0 is the only good number.
    """

    command: Name
    argv: tuple[str, ...]
    nonce: Sha256
    started_s: Seconds
    ended_s: Seconds
    exit_code: int | None
    signal: int | None
    sandbox: SandboxApplied
    held: tuple[tuple[Seconds, Seconds], ...]
    survivors: Count


class SampleMark(Record):
    """A line of the sample pipe, timestamped on arrival: seconds since the run's start, steady clock."""

    event: Literal["start", "first_token", "end"]
    sample: Text
    token_digest: Sha256 | None
    t_s: Seconds


class TelemetrySample(Record):
    """What the runner saw of the machine at one moment; None where the platform offers no source.

    Attributes:
        gpu_own_s: for how long the run's processes have kept the accelerators busy so far.
        gpu_strangers: how many other processes have work on them.
    """

    t_s: Seconds
    cpu_share: float | None
    other_cpu_share: float | None
    rss_bytes: Count | None
    gpu_share: float | None
    gpu_memory_bytes: Count | None
    gpu_own_s: Seconds | None = None
    gpu_strangers: Count | None = None


class MachineCondition(Record):
    """A setting or counter of the machine that changes how fast it is, before and after a run, and its source."""

    name: Name
    before: Text
    after: Text
    source: Text


class Telemetry(Record):
    """Sampled by the runner, outside the workload.

    Attributes:
        interval_s: time between samples.
        sources: where each number came from, ``unknown`` where there is no source.
        thermal, power, memory_pressure: before and after; ``unknown`` is a value.
        conditions: what else the machine says of itself, by name.
        slept_s: how long it slept meanwhile; None where the platform does not say.
    """

    interval_s: Seconds
    sources: dict[str, str]
    samples: tuple[TelemetrySample, ...]
    thermal: tuple[Text, Text]
    power: tuple[Text, Text]
    memory_pressure: tuple[Text, Text]
    conditions: tuple[MachineCondition, ...] = ()
    slept_s: Seconds | None = None


class Attempt(Record):
    """How often this host has run this (preset, params, profile, code) within 30 days: `number` counts this one.

    Attributes:
        earlier: the ones before it, oldest first, at most the latest `bridge.limits.ATTEMPTS_LISTED_COUNT`.
        unseen: which of the earlier ones had left neither a report nor a finished pair when this one was judged.
        looks: of how many cells of its preset, parameters alike, that this host measured within 30 days this is one; 1
            where it confirms an earlier run.
        versions: of how many versions of its program, its own included, numbers could be chosen likewise; nothing is
            corrected for them. Written only where there were several.
        others: how many questions of other families were measured within the thirty days; nothing is corrected for
            them. Written only where there was any.
        confirms: the run whose result it was begun to confirm, or None; such runs are attempts of their own.
        history_since: since when the host counted in full: its state was lost then, and of what ran before only what
            the bus still had is counted. Written only where that was within the thirty days.
    """

    key: Sha256
    number: Annotated[int, Field(ge=1)]
    earlier: tuple[RunId, ...]
    unseen: tuple[RunId, ...] = ()
    looks: Annotated[int, Field(ge=1)] = 1
    versions: Annotated[int, Field(ge=1)] = 1
    others: Count = 0
    confirms: RunId | None = None
    history_since: Moment | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        unsaid = {"versions": 1, "others": 0, "history_since": None}
        return {name: value for name, value in serialise(self).items() if value != unsaid.get(name, ...)}


class RunRecord(Record):
    """Three facts are three fields: the executor worked, the program exited 0; the gate's verdict is elsewhere.

    Attributes:
        request_digest, request_oid: what was asked.
        claims: commit ids of the claim chain so far, oldest first.
        executor_ok: whether the executor did its own work.
        program_exit: exit code of the last command that ran, 128 + n for signal n, None when none ran.
        reason: the executor's view of the ending; the gate may still turn ``passed`` into ``gate_rejected``.
        started, ended: wall clock; `wall_s` is from the steady clock.
        imported: where the workload's own package came from; None when it was not found out.
        log_bytes, log_sha256: of the whole log kept, after the cap and redaction.
        redactions: how often a secret was masked in the log; None where who counted them was killed.
        principal, signer: who signed the request and with which key, as the host verified it before anything ran;
            ``unsigned`` and None when nobody did.
        peers: what answered the commands that ask one, in order.
        launches: of the commands that are launched in a series, in order, with the supervisor's stamps of their turns.
        nonce: drawn by the executor when the run began: the order of what is asked follows from it. None in records
            from before it was drawn.
    """

    schema_version: Literal[1] = 1
    id: RunId
    bus_id: Text
    request_digest: Sha256
    request_oid: Oid
    claims: tuple[Oid, ...]
    runner: Name
    runner_version: Text
    preset: Name
    preset_digest: Sha256
    policy_digest: Sha256
    gate_digest: Sha256
    labels: tuple[Name, ...]
    host: HostRecord
    code: CodeRecord | None
    models: tuple[ModelDigest, ...]
    environment: tuple[tuple[str, str], ...]
    commands: tuple[CommandResult, ...]
    executor_ok: bool
    program_exit: int | None
    reason: Text
    message: Text | None
    limits_hit: tuple[LimitHit, ...]
    sandbox: SandboxApplied
    telemetry: Telemetry | None
    sample_marks: tuple[SampleMark, ...]
    sample_marks_dropped: Count
    outputs: tuple[OutputRecord, ...]
    attempt: Attempt | None
    imported: ImportedModule | None
    created: Moment
    claimed: Moment
    started: Moment | None
    ended: Moment
    queue_s: Seconds
    wall_s: Seconds
    log_bytes: Count
    log_sha256: Sha256
    log_truncated_bytes: Count
    redactions: Count | None
    principal: Text = "unsigned"
    signer: Text | None = None
    peers: tuple[PeerRecord, ...] = ()
    launches: tuple[LaunchRecord, ...] = ()
    nonce: Sha256 | None = None
