"""What a preset file may say: strict, frozen, data only.

Knows the shape of a preset and nothing about requests, hosts or what its commands do.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from bridge.presets.parameters import CommitParameter, Parameter
from bridge.records.base import Name, Record, Seconds, Text
from bridge.records.jobspec import CodeOrigin, DeclaredOutput
from bridge.records.network import Network
from bridge.records.request import Measuring, Profile
from bridge.records.turns import LaunchSeries
from bridge.records.workload import WorkloadDefinition

PARAMETER_TOKEN = re.compile(r"\{([a-z0-9][a-z0-9._-]*)\}")
HOST_TOKEN = re.compile(r"\$\{([a-z_]+)\}")
HOST_NAMES = frozenset(
    {
        *("engine", "host_engine", "interpreter", "workload", "launch", "launches", "profile", "target", "drafter"),
        "endpoint",
    }
)
"""`host_engine` is the host's engine also where the code is the request's, `workload` the request's commit,
`interpreter` the host's Python alone, `endpoint` a socket that the run is shown for naming it here."""

BASELINE_RATE: Final = "baseline_tokens_per_s"
"""The primary claim of a preset that measures a baseline beside itself: no ratio of it says anything."""

_HOST_CODE = {"host": ("${engine}", "${host_engine}"), "request": ("${host_engine}",)}
_OF_WORKLOADS = ("seeded", "asker", "packages", "workload", "read_only")
"""Written only where a preset has them, so that other presets keep their digests."""

PositiveCount = Annotated[int, Field(gt=0)]
PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
VariableName = Annotated[str, Field(pattern="^[A-Z_][A-Z0-9_]*$")]


Tokens = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=512)], ...], Field(min_length=1)]


class PresetLimits(Record):
    """Bounds this preset needs; what it leaves out is the default of `bridge.limits`."""

    wall_s: PositiveSeconds | None = None
    inactivity_s: PositiveSeconds | None = None
    cpu_s: PositiveSeconds | None = None
    memory_bytes: PositiveCount | None = None
    processes: PositiveCount | None = None
    tasks: PositiveCount | None = None
    open_files: PositiveCount | None = None
    output_bytes: PositiveCount | None = None
    output_files: PositiveCount | None = None
    log_bytes: PositiveCount | None = None


class ProfileLimits(PresetLimits):
    """Bounds for every profile, and what the claim profile changes (it repeats its commands)."""

    claim: PresetLimits = PresetLimits()


class Repeat(Record):
    """How many launches of a command a profile makes, each in its own process."""

    smoke: Annotated[int, Field(ge=1, le=64)] = 1
    claim: Annotated[int, Field(ge=1, le=64)] = 1


class SeriesTemplate(Record):
    """The series of launches that each profile makes of a command, whose turns the supervisor hands out."""

    smoke: LaunchSeries
    claim: LaunchSeries


class CommandTemplate(Record):
    """One command; a token is literal, exactly ``{parameter}``, or exactly ``${host value}``.

    Attributes:
        peer: request code that answers this command over pipes while it runs, as another user and in another sandbox.
        launches: the command is launched in a series and takes turns; `repeat` is for those that are not.
        reference: the host's own program that decodes alone, after each launch, what that launch decoded.
        asker: the runner's program that asks the servers which the command holds.
        confirms: host code that computes again what the commands before it put out.
        seeded: each repeat gets a seed and a folder of its own; a workload's.
    """

    name: Name
    argv: Tokens
    peer: Tokens | None = None
    launches: SeriesTemplate | None = None
    reference: Tokens | None = None
    asker: Tokens | None = None
    confirms: bool = False
    repeat: Repeat = Repeat()
    seeded: bool = False

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialise(self).items() if value or name not in _OF_WORKLOADS}

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every token of every side."""
        return (*self.argv, *(self.peer or ()), *(self.reference or ()), *(self.asker or ()))

    @model_validator(mode="after")
    def _whole_tokens(self) -> Self:
        for token in self.tokens:
            host = HOST_TOKEN.fullmatch(token)
            if host is not None and host.group(1) not in HOST_NAMES:
                raise ValueError(f"command {self.name}: ${{{host.group(1)}}} is unknown; known: {sorted(HOST_NAMES)}")
            if host is None and PARAMETER_TOKEN.fullmatch(token) is None and any(char in token for char in "{}$\0"):
                raise ValueError(f"command {self.name}: {token!r} mixes text and a placeholder; use a token of its own")
        return self


class PresetSandbox(Record):
    """What the run needs to see. A host may give less, never more."""

    mode: Literal["required", "preferred", "off"] = "preferred"
    network: Network = False
    gpu: bool = False


class Models(Record):
    """Names of the models this preset uses when the host's policy names none."""

    target: Text | None = None
    drafter: Text | None = None


class Preset(Record):
    """A named, allowed configuration.

    Attributes:
        status: ``planned`` names are known and refused.
        code: whose code runs: the host's installed engine, or the tree of the request.
        needs: labels a runner must carry to take it.
        secrets: names of policy secrets its environment gets; never for request code.
        only_when: host conditions it waits for.
        gate_profile: thresholds the gate judges by.
        primary_claim: the one claim fixed beforehand.
        labels: facts every result carries.
        packages: distributions that the host's interpreter must have; without one it is not offered there.
        workload: what the owner's own program promises to report; None for the engine's presets.
        read_only: absolute paths of a workload that its runs see.
    """

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    status: Literal["ready", "planned"]
    description: Text
    code: CodeOrigin = "host"
    profiles: Annotated[tuple[Measuring, ...], Field(min_length=1)] = ("smoke", "claim")
    params: dict[Name, Parameter] = Field(default_factory=dict)
    commands: tuple[CommandTemplate, ...] = ()
    outputs: tuple[DeclaredOutput, ...] = ()
    limits: ProfileLimits = ProfileLimits()
    sandbox: PresetSandbox = PresetSandbox()
    models: Models = Models()
    environment: dict[VariableName, Text] = Field(default_factory=dict)
    secrets: tuple[VariableName, ...] = ()
    needs: tuple[Name, ...] = ()
    only_when: tuple[Name, ...] = ()
    labels: tuple[Name, ...] = ()
    gate_profile: Name = "default"
    primary_claim: Name | None = None
    typical_s: Seconds | None = None
    packages: tuple[Name, ...] = ()
    workload: WorkloadDefinition | None = None
    read_only: tuple[str, ...] = ()

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialise(self).items() if value or name not in _OF_WORKLOADS}

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.name == "cancel":
            raise ValueError("the name 'cancel' is reserved for cancel branches")
        if self.status == "ready" and not (self.commands and (self.outputs or self.workload)):
            raise ValueError("a ready preset has at least one command and one declared output")
        if self.code == "request" and self.secrets:
            raise ValueError("request code gets no secret: whatever a run can read is public")
        reserved = sorted(name for name in self.environment if name.startswith("KAKEYA_"))
        if reserved:
            raise ValueError(f"the runner sets {', '.join(reserved)}")
        if len(self.commits) > 1 or (self.commits and self.code != "request"):
            raise ValueError("a commit parameter names the one tree that is put beside the request's own")
        asking = [command for command in self.commands if command.peer is not None]
        if asking and (self.code != "request" or any(command.argv[0] != "${host_engine}" for command in asking)):
            raise ValueError("a peer is request code, and the command that asks it is ${host_engine}")
        confirming = [place for place, command in enumerate(self.commands) if command.confirms]
        own = self.workload is not None
        if confirming and (
            confirming != [len(self.commands) - 1] or not (own or self.commands[-1].argv[0] in _HOST_CODE[self.code])
        ):
            raise ValueError("what confirms is the last command, and the host's own engine")
        self._tokens_are_declared()
        return self

    @property
    def offered_profiles(self) -> tuple[Profile, ...]:
        """What may be asked for: also a standing claim, where a claim is a ratio measured in launches of two programs.

        Not of a baseline beside itself, nor of servers: whether they had prepared their answers takes six launches to
        tell (G5-UNKNOWN), and a sitting has five.
        """
        stands = self.has_ratio and all(command.asker is None for command in self.commands)
        return (*self.profiles, "standing") if stands and "claim" in self.profiles else self.profiles

    @property
    def has_ratio(self) -> bool:
        """Whether it claims a ratio over launches: a baseline beside itself, and a server alone, have none."""
        if self.workload is None:
            claimed = self.primary_claim != BASELINE_RATE
        else:
            claimed = any(metric.aggregate == "ratio" for metric in self.workload.metrics)
        return claimed and any(command.launches is not None for command in self.commands)

    @property
    def has_peer(self) -> bool:
        """Whether host code asks request code, and measures what it answers."""
        return any(command.peer is not None for command in self.commands)

    @property
    def asks_endpoint(self) -> bool:
        """Whether it asks a server behind the host's endpoint, and is shown that socket."""
        return any("${endpoint}" in command.tokens for command in self.commands)

    @property
    def commits(self) -> tuple[str, ...]:
        """Names of the parameters that are commits, at most one."""
        return tuple(name for name, parameter in self.params.items() if isinstance(parameter, CommitParameter))

    def _tokens_are_declared(self) -> None:
        names = [command.name for command in self.commands]
        paths = [output.path for output in self.outputs]
        if len(set(names)) != len(names) or len(set(paths)) != len(paths):
            raise ValueError("command names and output paths are unique")
        tokens = [token for command in self.commands for token in command.tokens]
        used = {match.group(1) for token in tokens if (match := PARAMETER_TOKEN.fullmatch(token))}
        if self.status == "ready" and used != set(self.params):
            raise ValueError(f"argv uses {sorted(used)}, params declares {sorted(self.params)}")

    def digest(self) -> str:
        """Return sha256 over this preset's effective values, defaults included."""
        return hashlib.sha256(self.canonical()).hexdigest()
