"""One claimed run from its claim to its delivery: what `bridge.pipeline` calls around the stages.

Knows the order of durable steps; decides nothing about policy, evidence or formats.
"""

from __future__ import annotations

import datetime as dt
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from bridge.bus.views import Tree
from bridge.errors import KakeyaError, PolicyRefusedError, RequestRejectedError
from bridge.executor.endings import of_execution
from bridge.executor.interface import Execution, Hooks, RunDirectory
from bridge.pipeline import finish
from bridge.presets import Preset, Trust
from bridge.publish import mask
from bridge.records import Attempt, JobSpec, ModelDigest, Request, RunRecord
from bridge.run.outcomes import EndedError, Ending, RunOutcome
from bridge.runner.actions.announce import RunAnnouncement
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import BusLink
from bridge.runner.machine.identity import beside_installation
from bridge.runner.machine.machine import Machine
from bridge.runner.machine.models import ModelDigests
from bridge.runner.run.claim_renewal import ClaimedRun, ClaimRenewal
from bridge.runner.run.delivery import ResultDelivery
from bridge.runner.run.large_files import large_files
from bridge.runner.run.record import RunFacts, run_record
from bridge.runner.run.sender import Sender
from bridge.runner.state import kept
from bridge.runner.state.attempts import attempt_key, load_reports, save_reports, unreported
from bridge.runner.state.folder import OpenState
from bridge.runner.state.log import for_run
from bridge.system.clock import Clock, parse_rfc3339, rfc3339
from bridge.system.process import run as run_process

_APPROVAL_WALL_S = 60.0


class ClaimedRunSession:
    """Implements `bridge.pipeline.RunSession`.

    Args:
        rules: what the owner allows.
        machine: what runs the job.
        work: the claim that is held.
        renewal: renews it.
        delivery: brings the result to its requester.
        cancelled: returns whether somebody asked to cancel this run.
        stopping: set when the runner was asked to end now; the run ends as ``interrupted``.
    """

    def __init__(
        self,
        rules: OwnerRules,
        machine: Machine,
        state: OpenState,
        link: BusLink,
        *,
        work: ClaimedRun,
        renewal: ClaimRenewal,
        delivery: ResultDelivery,
        clock: Clock,
        cancelled: Callable[[], bool],
        stopping: threading.Event,
        log: logging.Logger,
    ) -> None:
        self.ref, self.clock, self.presets, self.policy = work.ref, clock, rules.presets, rules.facts
        self.bus_id = link.record.bus_id
        self.request_bytes = None if work.received is None else work.received.data
        self.signature = None if work.received is None else work.received.signature
        self._rules, self._machine, self._state = rules, machine, state
        self._link, self._renewal, self._delivery = link, renewal, delivery
        self._cancelled, self._stopping, self._log = cancelled, stopping, for_run(log, work.ref.id)
        self._claimed = work.claimed
        self._request: Request | None = None
        self._started: dt.datetime | None = None
        self._attempt: Attempt | None = None
        self._models: tuple[ModelDigest, ...] = ()
        self._output = b""
        self._sender = Sender(rules, lambda: state.ledger, link, work.ref, clock=clock, log=log)
        self._revoked: str | None = None
        self._kept: kept.KeptRun | None = None

    def read(self) -> bytes:
        """Return the stored request.

        Raises:
            RequestRejectedError: there is none that could be read.
        """
        if self.request_bytes is None:
            with self._link.lock:
                received = self._link.bus.read_request(self.ref)
            self.request_bytes, self.signature = received.data, received.signature
        return self.request_bytes

    def read_if_there(self) -> None:
        """Read the request for a run that is only finalised; a branch that is gone is no reason not to."""
        try:
            self._request = Request.parse(self.read())
        except (KakeyaError, ValueError) as error:
            self._log.warning("its request cannot be read any more: %s", error)

    def go_on_with(self, found: kept.KeptRun) -> RunOutcome:
        """Judge and publish a run that an earlier process of this runner saw to its end."""
        self.request_bytes, self.signature = found.request_bytes, found.signature
        self._request = Request.parse(found.request_bytes)
        self._started, self._attempt, self._models = parse_rfc3339(found.started), found.attempt, found.models
        self._output, self._kept = found.execution.log, found
        return finish(self, found.spec, found.execution, of_execution(found.execution))

    def failed(self, error: Exception) -> None:
        """Log why the run ended, with the way there; a bug is what nobody raised on purpose."""
        if isinstance(error, EndedError):
            self._log.debug("ended: %s", error)
        elif isinstance(error, KakeyaError):
            self._log.debug("%s: %s", type(error).__name__, error, exc_info=error)
        else:
            self._log.error("a bug: %s: %s", type(error).__name__, error, exc_info=error)

    def admit(self, request: Request, preset: Preset) -> Trust:
        """Return what is known of the sender and the code, after clock, cancels and approval are checked once more.

        Raises:
            EndedError: cancelled or expired while queued.
            RequestRejectedError: it was let in before, or half signed.
            PolicyRefusedError: the signature does not hold, or the owner's approval program said no.
        """
        self._request = request
        self._sender.let_in(request, self.read(), self.signature, self._renewal.held.chain[0])
        if self._cancelled() and self._sender.may_be_cancelled():
            raise EndedError(Ending("cancelled", "cancelled before it started"))
        validity = dt.timedelta(seconds=self._rules.policy.expiry_max_s)
        until, now = min(parse_rfc3339(request.expires), parse_rfc3339(request.created) + validity), self.clock.now()
        if until <= now:
            said = f"it was valid until {rfc3339(until)}, and on this host it is {rfc3339(now)}"
            raise EndedError(Ending("expired", f"{said}: send it again, or check the clocks if that is not so"))
        if self._stopping.is_set():
            raise EndedError(Ending("interrupted", "the runner was asked to stop"))
        self._ask_owner(request, preset)
        if preset.code == "request":
            self._renewal.start()  # the history that decides about the code may take longer than a lease
        return self._sender.trust(request, preset)

    def execute(self, spec: JobSpec) -> Execution:
        """Run a job spec: directories, `started` acknowledged and journalled, then processes.

        Raises:
            FencedError: another runner moved the claim.
        """
        journal, run_id = self._state.journal, self.ref.id
        self._renewal.start()  # fetching code and digesting models may take longer than a lease
        directory = self._prepare(spec)
        journal.append("prepared", run_id)
        self._renewal.advance(state="started", phase="running")
        journal.append("started", run_id, self._renewal.held.oid)
        self._started = self.clock.now()
        self._log.info("running %s (limit %.0f s)", spec.preset, spec.limits.wall_s)
        hooks = Hooks(on_log=self._renewal.feed, on_started=self._process, should_stop=self._should_stop)
        try:
            execution = self._machine.executor.execute(
                spec, directory, hooks, tuple(self._rules.policy.secrets.values())
            )
            if execution.ending == "interrupted" and (why := self._renewal.lost()) is not None:
                execution = replace(execution, message=why)
            if execution.ending == "cancelled" and self._revoked is not None:
                execution = replace(execution, ending="revoked", message=f"stopped while it ran: {self._revoked}")
            execution = beside_installation(execution, self._machine.code)
            digest = self._keep(spec, execution)
        finally:
            shutil.rmtree(directory.root, ignore_errors=True)
        detail = {"program_exit": execution.program_exit, "ending": execution.ending, "kept_sha256": digest}
        journal.append("exited", run_id, None, **detail)
        # A lease that ran out meanwhile takes nothing from what was measured: only who moved the claim decides.
        self._renewal.finish("judging")
        return execution

    def _keep(self, spec: JobSpec, execution: Execution) -> str | None:
        """Make what the run came to durable before its directory goes; return the digest, None when it failed."""
        machine, request = self._machine, self._request
        self._output = execution.log
        self._kept = kept.KeptRun(
            id=self.ref.id,
            request_oid=self.ref.oid,
            request_bytes=self.request_bytes or b"",
            signature=self.signature,
            spec=mask(spec),
            execution=execution,
            code=machine.code.record(spec, request),
            host=machine.executor.host(),
            models=self._models,
            attempt=self._attempt,
            runner_version=machine.version,
            started=rfc3339(self._started or self.clock.now()),
            ended=rfc3339(self.clock.now()),
        )
        try:
            return kept.save(self._state.folder.kept, self._kept)
        except OSError as error:
            self._log.warning("would be lost in a crash before it is published: %s", error.strerror)
            return None

    def record(self, spec: JobSpec | None, execution: Execution | None, ending: Ending) -> RunRecord:
        """Return the record of the run; from here on the claim moves only to its end."""
        self._renewal.stop()
        if execution is None and not self._output:
            self._output = f"kakeya: {ending.reason}: {ending.message or ''}\n".encode()
        facts = RunFacts(
            ref=self.ref,
            bus_id=self.bus_id,
            held=self._renewal.held,
            request_bytes=self.request_bytes,
            request=self._request,
            claimed=self._claimed,
            started=self._started,
            attempt=self._attempt_now(),
            models=self._models,
            log=self._output,
            kept=self._kept,
            signer=self._sender.signer,
            ending=ending,
            ended=rfc3339(self.clock.now()),
        )
        return run_record(self._rules, self._machine, facts, spec, execution)

    def earlier(self, record: RunRecord) -> Mapping[str, Mapping[str, bytes]]:
        """Return the reports of earlier attempts of the same configuration on this host, by run id."""
        if record.attempt is None:
            return {}
        return load_reports(self._state.folder.reports, record.attempt.earlier)

    def log(self) -> bytes:
        """Return the whole log kept."""
        return self._output

    @property
    def attestation(self) -> Literal["none", "dsse"]:
        """Whether the result is signed: by every runner that can, whatever the bus record, which others push, says."""
        return "dsse" if self._state.attesting.has_key else "none"

    def claims(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return the claim chain so far, as raw commits with their claims."""
        with self._link.lock:
            return self._link.bus.claim_commits(self._renewal.held.chain)

    def publish(self, files: Mapping[str, bytes], ending: Ending) -> RunOutcome:
        """Build the result once, end the run by one compare-and-swap, copy the result to its branch.

        Raises:
            FencedError: another runner ended the run.
        """
        state, folder, held = self._state, self._state.folder, self._renewal.held
        state.journal.append("judged", self.ref.id, None, reason=ending.reason)
        if self._attempt is not None:
            save_reports(folder.reports, self.ref.id, files)  # before the journal says that nothing is left to do
        with state.attesting.sealing(files, self.ref.ref, state.journal) as sealed:
            with self._link.lock:
                result_oid = self._link.bus.build_result(Tree(files=sealed.files), self.ref.id)
            detail = {"ref": self.ref.ref, "reason": ending.reason, "message": ending.message, **sealed.detail}
            state.journal.append("result_built", self.ref.id, result_oid, **detail)
        kept.drop(folder.kept, self.ref.id)
        shutil.rmtree(folder.runs / self.ref.id, ignore_errors=True)  # there where preparing it failed
        delivery = self._delivery.deliver(self.ref, held, ending, result_oid)
        said = f"{ending.reason}: {ending.message}" if ending.message else ending.reason
        self._log.info("%s%s", said, "" if delivery == "copied" else f" ({delivery})")
        if delivery != "spooled":  # nobody is notified of what cannot be fetched yet
            self._delivery.notify(RunAnnouncement(self.ref, self._link.bus.route, self._request, ending, files))
        return RunOutcome(id=self.ref.id, ending=ending, result_oid=result_oid, delivery=delivery)

    def _prepare(self, spec: JobSpec) -> RunDirectory:
        rules, machine, folder, request = self._rules, self._machine, self._state.folder, self._request
        root = folder.runs / self.ref.id
        shutil.rmtree(root, ignore_errors=True)
        directory = RunDirectory(root, root / "work", root / "out", root / "home", root / "tmp")
        for made in (root, directory.work, directory.out, directory.home, directory.tmp):
            made.mkdir(mode=0o700)
        if spec.code == "request":
            if spec.tree is None:
                raise RequestRejectedError("the request brings no tree")
            # Not under the lock: it reads only the request's own objects, and renewals must go on meanwhile.
            large, work = large_files(rules.policy.lfs, folder.root / "lfs", self.clock), directory.work
            if spec.base is None:
                self._link.bus.fetch_workload(self.ref, spec.tree, work, large_files=large)
            else:
                self._link.bus.fetch_pair(self.ref, spec.tree, spec.base, work, large_files=large)
        code = machine.code.record(spec, request)
        described = machine.executor.host()
        key = attempt_key(spec, f"{code.identity} {code.tree or ''}", f"{described.name} {described.cpu}")
        self._attempt = self._count(spec, key, None if request is None else request.confirms)
        names = [v.value for v in spec.environment if v.name in ("KAKEYA_TARGET", "KAKEYA_DRAFTER")]
        digests = ModelDigests(folder.model_digests)
        self._models = digests.of(names, rules.policy.model_roots, machine.code.engine)
        return directory

    def _count(self, spec: JobSpec, key: str, confirms: str | None) -> Attempt:
        """Count this attempt before it measures anything.

        Raises:
            RequestRejectedError: it is to confirm a run that was no run of this question here.
        """
        attempts = self._state.attempts
        if confirms is not None and not attempts.counted(key, confirms):
            raise RequestRejectedError(
                f"it is to confirm {confirms}, which this host did not run with the same preset, parameters, profile "
                "and code",
                remedy="confirm a run of the same question on the same host, or leave --confirms out",
            )
        look = spec.profile == "claim" and spec.primary_claim is not None
        return attempts.count(key, self.ref.id, self.clock.now(), look=look, confirms=confirms)

    def _attempt_now(self) -> Attempt | None:
        """Return the attempt with what its earlier ones left by now."""
        counted = self._attempt
        if counted is None:
            return None
        return counted.evolve(unseen=unreported(self._state.folder.reports, counted.earlier))

    def _process(self, pid: int, started: float, marker: str) -> None:
        self._state.journal.append("process", self.ref.id, None, pid=pid, started=started, marker=marker)

    def _should_stop(self) -> Literal["cancelled", "interrupted"] | None:
        self._revoked = self._revoked or self._sender.no_longer()
        if self._revoked is not None or (self._cancelled() and self._sender.may_be_cancelled()):
            return "cancelled"
        return "interrupted" if self._stopping.is_set() or self._renewal.lost() is not None else None

    def _ask_owner(self, request: Request, preset: Preset) -> None:
        approval = self._rules.policy.approval
        if not approval:
            return
        done = run_process(
            approval, env={"PATH": "/usr/bin:/bin"}, timeout_s=_APPROVAL_WALL_S, input=request.canonical()
        )
        if not done.ok:
            said = done.stdout.decode("utf-8", "replace").strip()[:200]
            raise PolicyRefusedError(
                f"the host owner's approval program refused {preset.name}" + (f": {said}" if said else "")
            )
