"""Choose what confines a run and wrap its commands in it.

Knows nothing about processes: it turns a command line into another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.records import JobSpec, SandboxApplied


@dataclass(frozen=True)
class Wrapped:
    """A command line with its confinement around it.

    Attributes:
        wrappers: how many processes at its top belong to the confinement.
        pass_fds: descriptors it needs.
    """

    argv: tuple[str, ...]
    wrappers: int = 0
    pass_fds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Confinement:
    """What confines a run."""

    applied: SandboxApplied

    @contextmanager
    def command(self, argv: tuple[str, ...]) -> Iterator[Wrapped]:
        """Yield a command line wrapped for this confinement."""
        yield Wrapped(argv)


def none(reason: str) -> SandboxApplied:
    """Return the record of a run that nothing confines."""
    return SandboxApplied(kind="none", reason=reason, network=True, namespaces=(), filters=(), uid=os.getuid())


def try_sandbox() -> SandboxApplied:
    """Say what a run would get on this host."""
    return none("the sandbox is not in this version yet")


def confine(spec: JobSpec, directory: RunDirectory, sandbox: SandboxApplied | None) -> Confinement:
    """Return what will confine a run.

    Raises:
        SandboxUnavailableError: the spec requires a sandbox and there is none.
    """
    if spec.sandbox.mode == "required":
        raise SandboxUnavailableError("no sandbox")
    return Confinement(sandbox or none("the job spec asks for none"))
