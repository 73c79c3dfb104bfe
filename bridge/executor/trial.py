"""Try the sandbox: run a program in it that tries every escape, and report which were refused.

An installed bubblewrap proves nothing: a kernel that forbids user namespaces may have it, too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from bridge.errors import InfrastructureError
from bridge.executor.interface import HOST_KIND, Escape, Execution, Hooks, HostPaths, RunDirectory, RunKind
from bridge.executor.running import RunExecution
from bridge.executor.sandbox.choice import enclosed
from bridge.executor.sandbox.confinement import Confinement, nothing
from bridge.executor.sandbox.escapes import TrialTargets, Witness, make_targets
from bridge.executor.sandbox.held_folders import held_folder, sweep
from bridge.limits import MIB, TEXT_MAX_CHARS
from bridge.records.jobspec import Command, JobSpec, Limits, SandboxSpec
from bridge.records.network import Network
from bridge.records.run import INSTEAD_OF, SandboxApplied, TrialOutcome
from bridge.system.clock import Clock, rfc3339

PREFIX: Final = "kakeya-sandbox-"
_NOBODYS_DIGEST: Final = "0" * 64
_LIMITS: Final = Limits(
    wall_s=30.0,
    inactivity_s=30.0,
    grace_s=0.5,
    memory_bytes=512 * MIB,
    processes=512,  # of the same user others may start many while the trial runs
    open_files=256,
    output_bytes=MIB,
    log_bytes=64 * 1024,
)


# Of a run by names the trial may reach one that nobody has (RFC 6761); it tries what no name may lead to.
_NETWORKS: Final[Mapping[str, Network]] = {"none": False, "proxy": ("trial.invalid",), "host": "host"}


# The runs for which Landlock is enough where there are no namespaces: the host's own code, without a network.
_WITHOUT_NAMESPACES: Final = (HOST_KIND, RunKind("host", devices=True))


@dataclass(frozen=True)
class SandboxTrial:
    """The outcome of a sandbox trial.

    Attributes:
        applied: what a run would get; `none` as soon as one way out was open.
        escapes: every way out that was tried; empty when the trial did not come to it.
    """

    applied: SandboxApplied
    escapes: tuple[Escape, ...] = ()

    def under(self, key: str, kind: RunKind, clock: Clock) -> SandboxTrial:
        """Return the same outcome with the note of it that results carry, where there is a sandbox."""
        if self.applied.kind == "none":
            return self
        outcome = TrialOutcome(kind=kind.name, tried=len(self.escapes), key=key, time=rfc3339(clock.now()))
        return replace(self, applied=self.applied.evolve(trial=outcome))


def kind_of(spec: JobSpec) -> RunKind:
    """Return the kind of a run, by what decides its sandbox."""
    name: Literal["host", "request"] = "request" if spec.code == "request" else "host"
    given = spec.sandbox.network
    network: Literal["none", "proxy", "host"] = "none" if not given else "host" if given == "host" else "proxy"
    return RunKind(name, network=network, devices=bool(spec.sandbox.devices))


def try_sandbox(
    clock: Clock,
    uid: int | None,
    enclose: Callable[[JobSpec, RunDirectory], Confinement] = enclosed,
    paths: HostPaths = HostPaths(),  # noqa: B008 - frozen
    kind: RunKind = HOST_KIND,
) -> SandboxTrial:
    """Run the escape program in this platform's sandbox and say what such a run as this user would get.

    Args:
        clock: measures the try's own limits.
        uid: the user runs will be; None is ours, or an ordinary one when we are root.
        enclose: puts the sandbox around a run.
        paths: the private paths to try to reach, and the allow-list that runs get.
        kind: the kind of run that is tried, with its tools, network and devices.
    """
    trial = try_one(clock, uid, enclose, paths, kind)
    if (
        trial.applied.kind != "none"
        or sys.platform != "linux"
        or kind not in _WITHOUT_NAMESPACES
        or enclose is not enclosed
    ):
        return trial
    weaker = try_one(clock, uid, partial(enclosed, kind="landlock"), paths, kind, mounts=False)
    if weaker.applied.kind == "none":
        why = f"{trial.applied.reason}; Landlock alone: {weaker.applied.reason}"
        return replace(trial, applied=nothing(why[:TEXT_MAX_CHARS]))
    why = f"{INSTEAD_OF}{trial.applied.reason}"[:TEXT_MAX_CHARS]
    return replace(weaker, applied=weaker.applied.evolve(filters=(*weaker.applied.filters, why)))


def try_one(
    clock: Clock,
    uid: int | None,
    enclose: Callable[[JobSpec, RunDirectory], Confinement],
    paths: HostPaths,
    kind: RunKind,
    *,
    mounts: bool = True,
) -> SandboxTrial:
    """Try one sandbox; `mounts` says whether it has mounts of its own, which are looked at then."""
    try:
        shared = Path(tempfile.gettempdir())
        sweep(PREFIX, shared)
        with held_folder(PREFIX, shared) as root, make_targets(root) as targets:
            directory = make_directory(root / "run")
            (directory.work / "kakeya_planted.py").write_text("")
            given = paths.interpreter
            program = given if given is not None and os.access(given, os.X_OK) else sys.executable
            spec = _spec(targets.argv(program, paths, kind.network, mounts=mounts), uid, paths, targets.models, kind)
            confinement = enclose(spec, directory)
            witness = Witness(directory.work)
            quiet = Hooks(on_log=lambda _: None, on_started=witness.started, should_stop=witness.record_users)
            execution = RunExecution(spec, directory, quiet, secrets=(), confinement=confinement, clock=clock).execute()
            return _evaluate(execution, targets, witness, confinement.applied.evolve(use=None))
    except InfrastructureError as error:
        return SandboxTrial(nothing(error.message))
    except OSError as error:
        return SandboxTrial(nothing(f"it could not be tried: {error.strerror}"))


def _evaluate(execution: Execution, targets: TrialTargets, witness: Witness, applied: SandboxApplied) -> SandboxTrial:
    """Return the outcome of a trial: facts measured on the host come before what the program reported."""
    answer = _parse_answer(execution)
    if isinstance(answer, str):
        wrote = "tried, and a run can write outside its directories"
        return SandboxTrial(nothing(wrote if targets.outside.exists() else answer))
    survivors = sum(command.survivors for command in execution.commands)
    escapes = targets.escapes(answer, survivors, witness.users)
    wrong = [escape.what for escape in escapes if not escape.refused]
    if wrong:
        return SandboxTrial(nothing(f"tried, and a run can {', '.join(wrong)}"), escapes)
    if answer["cannot write its own directory"]:
        return SandboxTrial(nothing("tried, and a run cannot write its own directory"), escapes)
    if not witness.users:
        return SandboxTrial(nothing("tried, and its processes were not seen from outside"), escapes)
    return SandboxTrial(applied, escapes)


def make_directory(root: Path) -> RunDirectory:
    """Create a run's folders, all private."""
    directory = RunDirectory(root, root / "work", root / "out", root / "home", root / "tmp")
    for folder in (root, directory.work, directory.out, directory.home, directory.tmp):
        folder.mkdir(mode=0o700)
    return directory


def _parse_answer(execution: Execution) -> dict[str, Any] | str:
    """Return what the program found, or why it found nothing."""
    text = execution.log.decode("utf-8", "replace").strip()
    if not execution.ok or execution.program_exit != 0:
        last = text.splitlines()[-1] if text else execution.message or f"exit code {execution.program_exit}"
        return "it does not start: " + "".join(char for char in last if char.isprintable())[:300]
    try:
        answer: dict[str, Any] = json.loads(text.partition("\n")[0])
    except ValueError:
        return "its trial program gave no answer"
    return answer


def _spec(argv: tuple[str, ...], uid: int | None, paths: HostPaths, models: Path, kind: RunKind) -> JobSpec:
    read_only = (str(models), *(path for path in paths.read_only if Path(path).exists()))
    devices = tuple(path for path in paths.devices if kind.devices and Path(path).is_char_device())
    return JobSpec(
        id="0" * 26,
        request_digest=_NOBODYS_DIGEST,
        preset="sandbox-trial",
        preset_digest=_NOBODYS_DIGEST,
        policy_digest=_NOBODYS_DIGEST,
        params={},
        profile="smoke",
        code="host" if kind.name == "host" else "request",
        trust_class="host" if kind.name == "host" else "untrusted",
        commands=(Command(name="trial", argv=argv),),
        environment=(),
        limits=_LIMITS,
        sandbox=SandboxSpec(
            mode="required", uid=uid, read_only=read_only, devices=devices, network=_NETWORKS[kind.network]
        ),
        outputs=(),
        gate_profile="smoke",
    )
