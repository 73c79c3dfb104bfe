"""What a node adds to a job that was placed on it: its own sandbox, tried once a boot, and what machine it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pydantic

from bridge.executor.holder.folder import JobFile
from bridge.executor.interface import RunKind
from bridge.executor.local import LocalExecutor
from bridge.executor.observe.accelerators.find import VISIBLE_DEVICES
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.trial import kind_of
from bridge.records.jobspec import EnvironmentVariable, JobSpec
from bridge.records.run import HostRecord
from bridge.strictjson import StrictJsonError
from bridge.system.clock import SystemClock
from bridge.system.durable import write_atomically

NODE_FILE: Final = "node.json"


def at_node(job: JobFile, handle: Path, *, tied: bool = False) -> JobFile:
    """Return a job with what this node is and gives; one that was begun on its runner's machine has it already.

    Args:
        job: as its runner wrote it.
        handle: the run's folder, in which the node is noted.
        tied: whether it ends with the process that its engine started.
    """
    if job.paths is None:
        return job
    local, spec = LocalExecutor(SystemClock(), job.paths, None if job.trials is None else Path(job.trials)), job.spec
    host = local.host()
    write_atomically(handle / NODE_FILE, host.canonical(), mode=0o600)
    bare = spec.sandbox.mode == "off"
    peers = any(command.peer is not None for command in spec.commands)
    return job.evolve(
        offered=nothing("not asked for") if bare else local.sandbox(spec.sandbox.uid, kind_of(spec)),
        peer_offered=local.sandbox(spec.sandbox.peer_uid, RunKind("peer")) if peers else None,
        host=host,
        spec=spec.evolve(environment=(*_cards(spec), *spec.environment)),
        tied=tied,
    )


def _cards(spec: JobSpec) -> tuple[EnvironmentVariable, ...]:
    """Return which cards the engine gave this job, where it says so by the variable that CUDA reads."""
    given = os.environ.get(VISIBLE_DEVICES)
    if given is None or any(variable.name == VISIBLE_DEVICES for variable in spec.environment):
        return ()
    return (EnvironmentVariable(name=VISIBLE_DEVICES, value=given, origin="runner"),)


def node_of(handle: Path) -> HostRecord | None:
    """Return the node that a run was begun on; None where none had it."""
    try:
        return HostRecord.parse((handle / NODE_FILE).read_bytes())
    except (OSError, StrictJsonError, pydantic.ValidationError):
        return None
