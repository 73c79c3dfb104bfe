"""What a host's policy and trust decisions say, as values: resolving needs no file and no runner."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bridge.records.network import Network

SandboxMode = Literal["required", "preferred", "off"]
TrustClass = Literal["host", "trusted", "untrusted"]


@dataclass(frozen=True)
class LimitCaps:
    """The most a host gives a run; None leaves the preset's own bound as it is."""

    wall_s: float | None = None
    inactivity_s: float | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    tasks: int | None = None
    open_files: int | None = None
    output_bytes: int | None = None
    output_files: int | None = None
    log_bytes: int | None = None


@dataclass(frozen=True)
class PolicyFacts:
    """The effective host policy, as far as a job spec depends on it.

    Attributes:
        digest: sha256 over the effective policy values.
        allow: patterns of preset names.
        embedded: whether the requester is the owner of this very machine.
        trust_pushers: whether everyone who can push may have request code run, sandboxed and under another user.
        require_signature: whether all unsigned requests are refused.
        interpreter: absolute path.
        environment, secrets: variables the owner sets.
        target, drafter: model folders or names; they replace the preset's.
        sandbox_network: what any run may reach at most.
        sandbox_uid: the user of runs, None where the executor or a service manager chooses.
        sandbox_peer_uid: the user of request code that host code asks and measures.
        sandbox_service: whether a service manager, or a range of users, gives runs users of their own.
        devices: device nodes a run that asks for a GPU may open.
        card: the NVIDIA card of this run's slot, by its UUID; None where the host shares out none.
        endpoints: ``unix:`` and the path of a socket; presets that ask for one are shown the first.
        nodes: what a label means where runs go to nodes, in a word for people: a feature, or the label itself; None
            where they run here.
    """

    digest: str
    interpreter: str
    allow: tuple[str, ...] = ("*",)
    embedded: bool = False
    trust_pushers: bool = False
    require_signature: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    model_roots: tuple[str, ...] = ()
    target: str | None = None
    drafter: str | None = None
    sandbox_mode: SandboxMode = "preferred"
    sandbox_network: Network = False
    sandbox_uid: int | None = None
    sandbox_peer_uid: int | None = None
    sandbox_service: bool = False
    devices: tuple[str, ...] = ()
    card: str | None = None
    nodes: Mapping[str, str] | None = None
    read_only: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    limits: LimitCaps = LimitCaps()
    grace_s: float = 5.0

    @property
    def apart(self) -> bool:
        """Whether runs are another user than the runner."""
        return self.sandbox_service or self.sandbox_uid is not None

    def allows(self, preset: str) -> bool:
        """Return whether the owner allows presets of this name."""
        return any(fnmatch.fnmatchcase(preset, pattern) for pattern in self.allow)


@dataclass(frozen=True)
class Trust:
    """What the runner found out about the request's sender and code before resolving.

    Attributes:
        principal: who signed the request, a name of the host's list; ``unsigned`` without a signature, followed by what
            the sender calls itself where a key that no list names signed it.
        signer: fingerprint of the listed key that signed it, or None.
        sent_code: trust class of the code the request brings.
        why: what makes that code trusted, or what is missing; one line, shown by ``explain``.
    """

    principal: str = "unsigned"
    signer: str | None = None
    sent_code: Literal["trusted", "untrusted"] = "untrusted"
    why: str = "nobody has looked at it"

    @property
    def signed(self) -> bool:
        """Whether a principal of the host's list signed the request."""
        return self.signer is not None

    @property
    def asker(self) -> str:
        """Return the requester in words, for a line of ``explain``."""
        return (
            f"{self.principal}, signed by {self.signer}" if self.signed else f"nobody known: {self.principal} request"
        )
