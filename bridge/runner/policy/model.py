"""What a policy says: strict, frozen, every field with a safe default."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from bridge import limits as bounds
from bridge import strictjson
from bridge.launches.standing import APART_LEAST_S
from bridge.presets.facts import LimitCaps, PolicyFacts
from bridge.presets.model import PresetLimits, VariableName
from bridge.records.base import Name, Record, Text
from bridge.records.network import Network
from bridge.runner.policy.executor import ExecutorPolicy
from bridge.runner.policy.hosting import ActionsPolicy, HostingPolicy
from bridge.runner.policy.trust import AbsolutePath, TrustPolicy
from bridge.system.gitlfs import check_url
from bridge.system.gitobjects import Committer, committer_from

LOCAL_SLOTS_MAX_COUNT: Final = 16
AuditTarget = Annotated[str, Field(pattern=r"^(journald|syslog|/[^\x00-\x1f]+)$")]
Endpoint = Annotated[str, Field(pattern=r"^unix:/[^\x00-\x1f]+$")]
Condition = Annotated[str, Field(pattern=r"^(idle|ac_power|hours-([01]\d|2[0-3])-([01]\d|2[0-3]))$")]


class PresetPolicy(Record):
    """Which presets may run: patterns of names, and a folder of the owner's own preset files."""

    allow: tuple[Text, ...] = ("*",)
    folder: AbsolutePath | None = None


class SandboxPolicy(Record):
    """How runs are confined; a preset or untrusted code can only make it stricter.

    Attributes:
        uid: the user of runs, whom only root can become.
        peer_uid: the user of request code that host code asks and measures.
        socket: a service manager's, behind which runs get processes and users of their own.
        own_users: the same from the range that /etc/subuid gives the runner's user, where there is no such manager.
        network: what any run may reach at most; names, or ``internet``, go through a proxy of the run's supervisor.
        endpoints: ``unix:`` and the path of a socket, shown to runs of presets that ask a server behind it.
    """

    mode: Literal["required", "preferred", "off"] = "preferred"
    uid: Annotated[int, Field(gt=0)] | None = None
    peer_uid: Annotated[int, Field(gt=0)] | None = None
    socket: AbsolutePath | None = None
    own_users: bool = False
    network: Network = False
    devices: tuple[AbsolutePath, ...] = ()
    read_only: tuple[AbsolutePath, ...] = ()
    endpoints: Annotated[tuple[Endpoint, ...], Field(max_length=1)] = ()


class LimitPolicy(PresetLimits):
    """The most a run gets, and what the host keeps for itself.

    Attributes:
        sittings_apart_s: seconds from the beginning of one sitting of a standing claim to that of the next. Fewer are
            for trying it out: no claim is made of sittings that began nearer than ten minutes to each other.
    """

    grace_s: Annotated[float, Field(gt=0, le=60)] = bounds.GRACE_S
    disk_floor_bytes: Annotated[int, Field(ge=0)] = bounds.DISK_FLOOR_BYTES
    sittings_apart_s: Annotated[float, Field(ge=0, le=3600)] = APART_LEAST_S


class IdentityPolicy(Record):
    """Who makes this runner's commits on the bus, where its remote has rules about that.

    Attributes:
        committer: author and committer, as ``NAME <ADDRESS>``; None for the usual one.
        message_prefix: goes before each commit message, e.g. a ticket that a rule looks for.
    """

    committer: Text | None = None
    message_prefix: str = ""

    @model_validator(mode="after")
    def _on_one_line(self) -> Self:
        committer_from(self.committer, self.message_prefix)
        return self

    @property
    def value(self) -> Committer:
        """The same as the bus takes it."""
        return committer_from(self.committer, self.message_prefix)


class LfsPolicy(Record):
    """Where git-lfs objects of a request's tree come from; without `url` a tree that holds pointers is refused.

    Attributes:
        url: of the LFS API; the tree's own `.lfsconfig` is never read.
        also_from: further origins that may serve the objects themselves.
        user, password_file: credentials, sent to the origin of `url` alone; the file is the owner's, mode 0600.
        max_bytes: what the large files of one tree may come to.
        leave_pointers: run with pointers as they are; nothing is fetched.
    """

    url: Text | None = None
    also_from: tuple[Text, ...] = ()
    user: Text = ""
    password_file: AbsolutePath | None = None
    max_bytes: Annotated[int, Field(gt=0)] = bounds.LFS_DEFAULT_BYTES
    leave_pointers: bool = False

    @model_validator(mode="after")
    def _addresses_are_servers(self) -> Self:
        for one in (*((self.url,) if self.url else ()), *self.also_from):
            if (problem := check_url(one)) is not None:
                raise ValueError(f"{one[:80]!r}: {problem}")
        if self.leave_pointers and self.url is not None:
            raise ValueError("leave_pointers and url contradict each other")
        return self


class Policy(TrustPolicy):
    """`policy.toml`, every value effective; who may ask and whose code may run is in `TrustPolicy`.

    Attributes:
        name: the runner's name on its bus.
        bus: route of the bus to serve, with its id after ``#``, when the command line names none.
        labels: what a request's runner selector may ask for.
        trust_pushers: whoever can push may have request code run, sandboxed, under `sandbox.uid`; labelled in results.
        interpreter: absolute path of the Python whose packages are the host's engine.
        environment, secrets: variables of every run; secrets only where a preset names them.
        model_roots, target, drafter: which models the presets use.
        workloads: file that lists the folders of the owner's own programs; `kakeya-runner workload allow` writes it.
        slots: runs at the same time; with NVIDIA cards each has one of its own, so there are no more than cards. With
            an engine, those that are in its queue or on its nodes.
        expiry_max_s: validity a request gets at most.
        rate_per_hour: unsigned requests taken per hour and bus.
        drop_after_days: age from which the refs of archived runs are deleted on the bus; None: they stay.
        only_when: conditions for taking anything: idle, ac_power, hours-HH-HH.
        audit: where records of requests and runs go: ``journald``, ``syslog`` or the absolute path of a file.
        notify: a program started at each run's end: what it came to as JSON on stdin, and as variables.
        metrics: file that figures for Prometheus's textfile collector are written to.
        approval: a program asked about each request: canonical request on stdin, exit code 0 allows.
    """

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    bus: Text | None = None
    labels: tuple[Name, ...] = ()
    trust_pushers: bool = False
    interpreter: AbsolutePath = sys.executable
    model_roots: tuple[AbsolutePath, ...] = ()
    target: Text | None = None
    drafter: Text | None = None
    workloads: AbsolutePath | None = None
    slots: Annotated[int, Field(ge=1, le=256)] = 1
    expiry_max_s: Annotated[float, Field(gt=0, le=bounds.EXPIRY_MAX_S)] = bounds.EXPIRY_MAX_S
    rate_per_hour: Annotated[int, Field(ge=0)] = 60
    drop_after_days: Annotated[float, Field(ge=2)] | None = None
    only_when: tuple[Condition, ...] = ()
    approval: tuple[Text, ...] = ()
    audit: AuditTarget | None = None
    notify: tuple[Text, ...] = ()
    metrics: AbsolutePath | None = None
    presets: PresetPolicy = PresetPolicy()
    sandbox: SandboxPolicy = SandboxPolicy()
    executor: ExecutorPolicy = ExecutorPolicy()
    limits: LimitPolicy = LimitPolicy()
    lfs: LfsPolicy = LfsPolicy()
    identity: IdentityPolicy = IdentityPolicy()
    actions: ActionsPolicy = ActionsPolicy()
    hosting: HostingPolicy = HostingPolicy()
    environment: dict[VariableName, str] = Field(default_factory=dict, alias="env")
    secrets: dict[VariableName, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        reserved = [name for name in (*self.environment, *self.secrets) if name.startswith("KAKEYA_")]
        if reserved:
            raise ValueError(f"the runner sets {', '.join(reserved)}; use model_roots, target and drafter")
        for key, argv in (("approval", self.approval), ("notify", self.notify)):
            if argv and not Path(argv[0]).is_absolute():
                raise ValueError(f"{key} is an argv list whose first item is an absolute path")
        placed = self.executor.engine != "local"
        if self.slots > LOCAL_SLOTS_MAX_COUNT and not placed:
            raise ValueError(f"slots: one machine has at most {LOCAL_SLOTS_MAX_COUNT}")
        for table in ("constraints", "jobs"):
            if unknown := sorted(set(getattr(self.executor, table)) - set(self.labels)):
                raise ValueError(f"executor.{table}: {', '.join(unknown)} is none of labels")
        if placed and (self.sandbox.uid, self.sandbox.socket, self.sandbox.own_users) != (None, None, False):
            raise ValueError(
                "on the nodes of an engine every run is the runner's own user: leave out sandbox.uid, "
                "socket and own_users"
            )
        if self.trust_pushers and self.sandbox.mode == "off":
            raise ValueError("trust_pushers needs a sandbox: set sandbox.mode to preferred or required")
        if self.sandbox.peer_uid is not None and self.sandbox.uid in {None, self.sandbox.peer_uid}:
            raise ValueError("sandbox.peer_uid needs sandbox.uid, and both are different users")
        ways = {"uid": self.sandbox.uid, "socket": self.sandbox.socket, "own_users": self.sandbox.own_users or None}
        if len(given := [f"sandbox.{name}" for name, value in ways.items() if value is not None]) > 1:
            raise ValueError(f"{' and '.join(given)} each say which user a run is: leave all but one out")
        return self

    def digest(self, *, embedded: bool) -> str:
        """Return sha256 over the effective values; of secrets only the names count."""
        value = self.model_dump(mode="json")
        value |= {"secrets": sorted(self.secrets), "embedded": embedded}
        return hashlib.sha256(strictjson.encode(value)).hexdigest()

    def facts(self, *, embedded: bool) -> PolicyFacts:
        """Return what a job spec depends on; embedded is decided by how the runner is started, never by the file."""
        caps = LimitCaps(**{name: getattr(self.limits, name) for name in PresetLimits.model_fields})
        return PolicyFacts(
            digest=self.digest(embedded=embedded),
            interpreter=self.interpreter,
            allow=self.presets.allow,
            embedded=embedded,
            trust_pushers=self.trust_pushers,
            require_signature=self.require_signature,
            environment=self.environment,
            secrets=self.secrets,
            model_roots=self.model_roots,
            target=self.target,
            drafter=self.drafter,
            sandbox_mode=self.sandbox.mode,
            sandbox_network=self.sandbox.network,
            sandbox_uid=self.sandbox.uid,
            sandbox_peer_uid=self.sandbox.peer_uid,
            sandbox_service=self.sandbox.socket is not None or self.sandbox.own_users,
            devices=self.sandbox.devices,
            read_only=self.sandbox.read_only,
            endpoints=self.sandbox.endpoints,
            nodes=None if self.executor.engine == "local" else self.executor.meanings(),
            limits=caps,
            grace_s=self.limits.grace_s,
        )
