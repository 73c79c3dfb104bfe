"""Make the folder of a run: its directories, its checkout, and what is known of it before it starts."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

from bridge.bus.sides.runner import RunnerBus
from bridge.bus.views import RequestRef
from bridge.errors import RequestRejectedError
from bridge.executor.interface import RunDirectory
from bridge.executor.removal import remove_tree
from bridge.launches.attempts import LOOK_DAYS
from bridge.records.jobspec import JobSpec
from bridge.records.request import Request
from bridge.records.run import Attempt, CodeRecord
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.machine.file_digests import FileDigests
from bridge.runner.machine.identity import CodeFacts
from bridge.runner.machine.machine import Machine
from bridge.runner.machine.models import ModelDigests
from bridge.runner.machine.packages import altered_files
from bridge.runner.run.large_files import large_files
from bridge.runner.state.attempts import Look, attempt_key, look_of, may_be_quoted, unreported
from bridge.runner.state.database import Fact
from bridge.runner.state.folder import OpenState
from bridge.runner.state.prepared import PreparedRun
from bridge.runner.state.sittings import set_of, sitting_times
from bridge.system.clock import Clock, parse_rfc3339, rfc3339


def directory_of(handle: Path) -> RunDirectory:
    """Return where the run of a folder may write."""
    root = handle / "files"
    return RunDirectory(root, root / "work", root / "out", root / "home", root / "tmp")


def prepare(  # noqa: PLR0917 - one caller
    rules: OwnerRules,
    machine: Machine,
    state: OpenState,
    bus: RunnerBus,
    ref: RequestRef,
    request: Request | None,
    spec: JobSpec,
    *,
    code: CodeFacts,
    clock: Clock,
) -> PreparedRun:
    """Make a run's folder anew and count its attempt; return what is known, but for the request's bytes.

    Raises:
        RequestRejectedError: request code without a tree, or one that cannot be checked out.
        RemoteError: the bus did not give the tree.
    """
    handle = state.folder.runs / ref.id
    remove_tree(handle)
    directory = directory_of(handle)
    for made in (handle, directory.root, directory.work, directory.out, directory.home, directory.tmp):
        made.mkdir(mode=0o700)
    if spec.code == "request":
        _check_out(rules, state, bus, ref, spec, directory.work, clock)
    ran = _identified(code, state, spec, request)
    described = machine.executor.host()
    names = [v.value for v in spec.environment if v.name in ("KAKEYA_TARGET", "KAKEYA_DRAFTER")]
    models = ModelDigests(state.folder.model_digests).of(names, rules.policy.model_roots, code.engine)
    asked = (spec, f"{ran.identity} {ran.tree or ''}", f"{described.name} {described.cpu}", models)
    look = look_of(*asked) if may_be_quoted(spec) else None
    if look is not None and spec.sitting is not None:
        look = state.attempts.of_sitting(look, ref.id, spec.sitting.count)
    if look is not None and request is not None and request.sweep is not None:
        look = replace(look, cells=request.sweep.cells)
    attempt = _count(state, ref, attempt_key(*asked), look, None if request is None else request.confirms, clock)
    started = clock.now()
    if (set_id := set_of(request)) is not None:
        sitting_times(state, rules.policy).begin(set_id, started)
    return PreparedRun(
        id=ref.id,
        request_oid=ref.oid,
        request_bytes=b"",
        signature=None,
        spec=spec,
        code=ran,
        models=models,
        attempt=attempt,
        runner_version=machine.version,
        started=rfc3339(started),
    )


def _identified(code: CodeFacts, state: OpenState, spec: JobSpec, request: Request | None) -> CodeRecord:
    """Return what runs; of a claim of the engine's also what Python may load that was not installed so."""
    ran = code.record(spec, request)
    if spec.profile != "claim" or spec.workload is not None or (code.engine is None and not code.sites):
        return ran
    digests = FileDigests(state.folder.package_digests)
    return ran.evolve(altered=altered_files(code.sites, code.strange, code.packages, digests))


def _count(  # noqa: PLR0917 - one caller
    state: OpenState, ref: RequestRef, key: str, look: Look | None, confirms: str | None, clock: Clock
) -> Attempt | None:
    """Count this attempt before it measures anything; a runner that remembers nothing counts nothing.

    Raises:
        RequestRejectedError: it is to confirm a run that was no run of this question here, or left no report.
    """
    if confirms is not None and not state.attempts.counted(key, confirms):
        raise RequestRejectedError(
            f"it is to confirm {confirms}, which this host did not run with the same preset, parameters, profile, "
            "code and models",
            remedy="confirm a run of the same question on the same host, or leave --confirms out",
        )
    if confirms is not None and unreported(state.folder.reports, [confirms]):
        raise RequestRejectedError(
            f"it is to confirm {confirms}, which left no report: there is nothing to confirm",
            remedy="confirm a run that ended with a report, or leave --confirms out",
        )
    if not state.folder.lasts:
        return None
    attempt = state.attempts.count(key, ref.id, clock.now(), look=look, confirms=confirms)
    since = state.database.fact(Fact.HISTORY_SINCE)
    if since is None or parse_rfc3339(since) <= clock.now() - dt.timedelta(days=LOOK_DAYS):
        return attempt
    return attempt.evolve(history_since=since)


def _check_out(  # noqa: PLR0917 - one caller
    rules: OwnerRules, state: OpenState, bus: RunnerBus, ref: RequestRef, spec: JobSpec, work: Path, clock: Clock
) -> None:
    if spec.tree is None:
        raise RequestRejectedError("the request brings no tree")
    # Not under the link's lock: it reads only the request's own objects, and renewals must go on meanwhile.
    large = large_files(rules.policy.lfs, state.folder.root / "lfs", clock)
    if spec.base is None:
        bus.fetch_workload(ref, spec.tree, work, large_files=large)
    else:
        bus.fetch_pair(ref, spec.tree, spec.base, work, large_files=large)
