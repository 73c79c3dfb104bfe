"""What will run: the meet of a request, a preset and the host's policy."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from bridge.limits import OUTPUT_FILES_DEFAULT_COUNT
from bridge.records.base import Count, Name, Oid, ParamValue, Record, RunId, Seconds, Sha256, Text
from bridge.records.network import Network
from bridge.records.request import Measuring, SweepPlace
from bridge.records.turns import AskedWord, LaunchSeries
from bridge.records.workload import WorkloadDefinition, started_by

CodeOrigin = Literal["host", "request"]


class Command(Record):
    """One process to run.

    Attributes:
        name: unique within the job spec; the log and the record use it.
        argv: absolute interpreter first, never a shell.
        peer: the command that answers this one over pipes while it runs, in a sandbox of its own as `peer_uid`.
        launches: it is launched again and again until a stop rule ends that, and takes turns; None runs it once.
        reference: the host's own program that decodes the same samples alone, right after each launch of a series.
        asker: the runner's program that asks the servers which the command holds, and gets the turns in its place;
            written only where there is one.
        confirms: it computes again what the commands before it put out, and leaves their files as they are.
        seed: KAKEYA_SEED, for a repeat of a workload; written only where there is one.
        folder: below KAKEYA_OUT, where it finds or leaves the files of its repeat; written only where there is one.
    """

    name: Name
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    peer: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    launches: LaunchSeries | None = None
    reference: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    asker: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    confirms: bool = False
    seed: Count | None = None
    folder: Name | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(serialise(self), "asker", "seed", "folder")

    @model_validator(mode="after")
    def _launches_have_no_peer(self) -> Self:
        if self.peer is not None and self.launches is not None:
            raise ValueError("a command is launched in a series, or asks a peer, not both")
        if self.reference is not None and self.launches is None:
            raise ValueError("a reference is decoded after each launch of a series")
        if self.asker is not None and (self.launches is None or self.folder is None):
            raise ValueError("servers are asked in the launches of a series, and reported of in a folder")
        return self


class EnvironmentVariable(Record):
    """A variable of the workload, and who set it.

    Attributes:
        origin: ``runner`` (the run's facts), ``policy`` (the host's owner) or ``preset``; never the request.
        secret: whether its value must not appear in any record or log.
    """

    name: Annotated[str, Field(pattern="^[A-Z_][A-Z0-9_]*$")]
    value: str
    origin: Literal["runner", "policy", "preset"]
    secret: bool = False


class Limits(Record):
    """Enforced bounds of one run; see `bridge.limits` for the defaults.

    Attributes:
        cpu_s: processor time of all its processes together, or None for no bound but the wall time.
        output_files: files and directories it may add to its directories.
        tasks: threads of all its processes together; None in specs from before they were bounded, and means what
            this machine's default is.
    """

    wall_s: Seconds
    inactivity_s: Seconds
    grace_s: Seconds
    memory_bytes: Count
    processes: Count
    open_files: Count
    output_bytes: Count
    log_bytes: Count
    cpu_s: Seconds | None = None
    output_files: Count = OUTPUT_FILES_DEFAULT_COUNT
    tasks: Count | None = None


class SandboxSpec(Record):
    """What the run may see.

    Attributes:
        mode: ``required`` fails closed where the host has none, ``preferred`` runs without and says so, ``off`` never.
        network: what the run may reach.
        read_only: absolute paths it may read beyond the interpreter and the packages.
        devices: absolute paths of device nodes it may open.
        uid: numeric user it runs as; None is the runner's own, or one without rights of its own when that is root.
        peer_uid: numeric user that peers run as; another one than `uid`.
    """

    mode: Literal["required", "preferred", "off"]
    network: Network = False
    read_only: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    uid: int | None = None
    peer_uid: int | None = None


ATTACHMENTS: Final = frozenset({"junit", "text", "attachment", "recompute"})
"""Declared outputs of these kinds are files beside a report and are not judged by themselves."""


class DeclaredOutput(Record):
    """A report the preset promises to write below KAKEYA_OUT.

    Attributes:
        path: relative POSIX path.
        kind: report kind; the gate judges by it.
        required: whether its absence fails the gate.
    """

    path: Text
    kind: Name
    required: bool = True


class JobSpec(Record):
    """Everything the executor needs and the gate compares with.

    Attributes:
        request_digest: sha256 of the stored request bytes.
        code: whose code runs.
        trust_class: ``host``, ``trusted`` or ``untrusted``.
        tree: the tree that runs, for request code.
        base: the commit of its history whose tree lies beside it, for presets that compare two; work/head, work/base.
        preset_digest, policy_digest: sha256 over effective values.
        decisions: what was decided and why, one line each, shown by ``explain``.
        labels: facts every result must carry, e.g. ``trust_pushers``.
        principal, signer: who signed the request and with which key, verified by the host; ``unsigned`` and None when
            nobody did.
        workload: what the owner's own program promises to report; written only where it is one.
        seed_basis: what the seeds of its repeats follow from; written only where there is one.
        sitting: which sitting of a standing claim it is; written only where it is one.
        placement: labels that say which node may run it, and how; written only where runs go to nodes.
    """

    schema_version: Literal[1] = 1
    id: RunId
    request_digest: Sha256
    preset: Name
    preset_digest: Sha256
    policy_digest: Sha256
    params: dict[Name, ParamValue]
    profile: Measuring
    code: CodeOrigin
    trust_class: Literal["host", "trusted", "untrusted"]
    tree: Oid | None = None
    base: Oid | None = None
    commands: Annotated[tuple[Command, ...], Field(min_length=1)]
    environment: tuple[EnvironmentVariable, ...]
    limits: Limits
    sandbox: SandboxSpec
    outputs: tuple[DeclaredOutput, ...]
    gate_profile: Name
    primary_claim: Name | None = None
    decisions: tuple[str, ...] = ()
    labels: tuple[Name, ...] = ()
    principal: Text = "unsigned"
    signer: Text | None = None
    workload: WorkloadDefinition | None = None
    seed_basis: Text | None = None
    placement: tuple[Text, ...] | None = None
    sitting: SweepPlace | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(serialise(self), "workload", "seed_basis", "placement", "sitting")

    @property
    def asked_word(self) -> AskedWord | None:
        """The word that its launches answer, None where they measure."""
        series = (command.launches for command in self.commands)
        return next((plan.asks for plan in series if plan is not None and plan.asks is not None), None)

    @property
    def draws_load(self) -> bool:
        """Whether its host itself holds processors in every second of its launches."""
        return any(command.launches is not None and command.launches.load is not None for command in self.commands)

    @property
    def programs(self) -> tuple[str, ...]:
        """Every absolute program that its commands start, those that the runner's own programs are given included."""
        given = (words[0] for command in self.commands for words in started_by(command.argv) if words)
        given = (word for word in given if word.startswith("/"))
        return tuple(dict.fromkeys((*(command.argv[0] for command in self.commands), *given)))

    @property
    def takes_programs_as_they_are(self) -> bool:
        """Whether it runs what its owner has as it is, which may start the system's programs."""
        return self.workload is not None and any(program.role == "reader" for program in self.workload.programs)


def _without(fields: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Return the fields but optional ones that say nothing, so that other records keep their bytes."""
    return {name: value for name, value in fields.items() if value is not None or name not in optional}
