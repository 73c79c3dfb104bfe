"""One claimed run from its claim to its delivery: what `bridge.pipeline` calls around the stages.

Knows the order of durable steps; decides nothing about policy, evidence or formats.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Literal

from bridge.bus.tree import Tree
from bridge.errors import (
    InfrastructureError,
    JournalError,
    KakeyaError,
    LeftRunningError,
    PolicyRefusedError,
    RemoteError,
    RequestRejectedError,
    of_system,
)
from bridge.executor.interface import Execution
from bridge.executor.removal import remove_tree
from bridge.limits import BEGIN_AGAIN_S
from bridge.presets.facts import Trust
from bridge.presets.model import Preset
from bridge.records.jobspec import JobSpec
from bridge.records.places import PlaceNames
from bridge.records.request import Request
from bridge.records.run import Attempt, ModelDigest, RunRecord
from bridge.run.outcomes import EndedError, Ending, RunOutcome
from bridge.runner.actions.announce import RunAnnouncement
from bridge.runner.authorisation.rules import OwnerRules, lacking
from bridge.runner.connection.link import BusLink
from bridge.runner.machine.machine import Machine
from bridge.runner.run.claim_renewal import ClaimedRun, ClaimRenewal
from bridge.runner.run.delivery import ResultDelivery
from bridge.runner.run.follower import RunFollower
from bridge.runner.run.places import place_names
from bridge.runner.run.preparation import directory_of, prepare
from bridge.runner.run.record import RunFacts, run_record
from bridge.runner.run.sender import Sender
from bridge.runner.run.slots import RunSlots
from bridge.runner.state import prepared
from bridge.runner.state.attempts import load_reports, save_reports, unreported
from bridge.runner.state.audit import audit
from bridge.runner.state.folder import OpenState
from bridge.runner.state.log import for_run
from bridge.runner.state.sittings import set_of
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
        stopping: set when the runner was asked to end now and its runs with it, as ``interrupted``.
        leaving: set when the runner was asked to end and to leave its runs to the next one.
        slots: gives the run a card of its own.
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
        leaving: threading.Event,
        slots: RunSlots,
        log: logging.Logger,
    ) -> None:
        self.ref, self.clock, self.presets, self.policy = work.ref, clock, rules.presets, rules.facts
        self.bus_id = link.record.bus_id
        self.request_bytes = None if work.received is None else work.received.data
        self.signature = None if work.received is None else work.received.signature
        self._rules, self._machine, self._state = rules, machine, state
        self._link, self._renewal, self._delivery = link, renewal, delivery
        self._cancelled, self._stopping, self._leaving, self._slots = cancelled, stopping, leaving, slots
        self._log, self._handle = for_run(log, work.ref.id), state.folder.runs / work.ref.id
        self._claimed = work.claimed
        self._request: Request | None = None
        self._started: dt.datetime | None = None
        self._attempt: Attempt | None = None
        self._models: tuple[ModelDigest, ...] = ()
        self._sender = Sender(rules, state.ledger, link, work.ref, clock=clock, log=log)
        self._follower = RunFollower(
            work.ref.id, self._handle, machine, state.journal, renewal=renewal, sender=self._sender,
            cancelled=cancelled, stopping=stopping, leaving=leaving, log=self._log,
        )  # fmt: skip
        self._prepared: prepared.PreparedRun | None = None
        self._went = False  # whether its program was told to begin

    @property
    def places(self) -> PlaceNames:
        """How the folders of this machine are said in what is published."""
        return place_names(self._handle, self._state.folder, self._rules.policy.interpreter, self._machine.recent_code)

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

    def begins_later(self, error: Exception) -> bool:
        """Whether the claim is kept and the run tried again: its program has not begun, and the remote stumbled."""
        if self._went or not isinstance(error, RemoteError) or not error.is_passing or self._stopping.is_set():
            return False
        if self.clock.now() - parse_rfc3339(self._claimed) >= dt.timedelta(seconds=BEGIN_AGAIN_S):
            return False
        self._log.warning("not begun yet, and tried again: %s", error.message)
        return True

    def failed(self, error: Exception) -> None:
        """Log why the run ended, with the way there; a bug is what nobody raised on purpose."""
        if isinstance(error, PolicyRefusedError | RequestRejectedError):
            asker = None if self._request is None else self._request.principal
            audit(self._log, "refused", self.ref.id, principal=asker, why=error.message)
        if isinstance(error, EndedError):
            self._log.debug("ended: %s", error)
        elif isinstance(error, KakeyaError):
            self._log.debug("%s: %s", type(error).__name__, error, exc_info=error)
        elif isinstance(error, OSError):
            self._log.error("%s", of_system(error).message, exc_info=error)
        else:
            self._log.error("a bug: %s: %s", type(error).__name__, error, exc_info=error)

    def admit(self, request: Request, preset: Preset) -> Trust:
        """Return what is known of the sender and the code, after clock, cancels and approval are checked once more.

        Raises:
            EndedError: cancelled or expired while queued.
            RequestRejectedError: it was let in before, or half signed.
            PolicyRefusedError: the signature does not hold, or the owner's approval program said no.
            InfrastructureError: no card is left for it.
        """
        self._request = request
        self._sender.let_in(request, self.read(), self.signature, self._renewal.held.chain[0])
        self.policy = self._sender.limited(request, preset)
        signer = self._sender.signer
        audit(self._log, "request", self.ref.id, principal=self._sender.asker, preset=preset.name,
              signer=None if signer is None else signer.fingerprint)  # fmt: skip
        if self._cancelled() and self._sender.may_be_cancelled():
            raise EndedError(Ending("cancelled", "cancelled before it started"))
        until, now = self._rules.valid_until(request), self.clock.now()
        if until <= now:
            said = f"it was valid until {rfc3339(until)}, and on this host it is {rfc3339(now)}"
            raise EndedError(Ending("expired", f"{said}: send it again, or check the clocks if that is not so"))
        if self._stopping.is_set():
            raise EndedError(Ending("interrupted", "the runner was asked to stop"))
        if self._leaving.is_set():
            raise LeftRunningError("claimed, and left to the next start of this runner")
        if preset.code == "request" or self._rules.policy.approval:
            self._renewal.start()  # the owner's program, or the history of the code, may take longer than a lease
        self._ask_owner(request, preset)
        self.policy = self._slots.assign(self.ref.id, self.policy)
        return self._sender.trust(request, preset)

    def execute(self, spec: JobSpec) -> Execution:
        """Run a job spec: its folder written down, `started` acknowledged and journalled, then processes.

        Raises:
            FencedError: another runner moved the claim.
            LeftRunningError: the runner ends and the run goes on.
        """
        self._renewal.start()  # fetching code and digesting models may take longer than a lease
        self._prepare(spec)
        self._state.journal.append("prepared", self.ref.id)
        return self._begin(spec)

    def _begin(self, spec: JobSpec) -> Execution:
        """Let a prepared run start, once the bus and the journal know that it does."""
        journal, run_id, secrets = self._state.journal, self.ref.id, tuple(self._rules.policy.secrets.values())
        # The supervisor starts beside the push; it starts nothing before it is told to go.
        with self._machine.executor.start(spec, directory_of(self._handle), self._handle, secrets) as starting:
            self._renewal.begin()
            journal.append("started", run_id, self._renewal.held.oid)
            self._log.info("running %s (limit %.0f s)", spec.preset, spec.limits.wall_s)
            with self._follower.leavable():
                self._went = True
                running = starting.go(self._follower.hooks())
        return self._follower.follow(running)

    def recover(self) -> tuple[JobSpec | None, Execution | None]:
        """Follow a run that this runner started before, or return what it came to; None when nothing is known of it.

        Raises:
            FencedError: another runner moved the claim.
            LeftRunningError: the runner ends and the run goes on, or the bus does not answer: nothing has ended yet.
        """
        found = prepared.load(self._handle, self.ref.id, self.ref.oid)
        if found is None:
            self.read_if_there()
            return None, None
        self._restore(found)
        try:
            self._renewal.extend(self._link.budget.lease_s())  # nobody here knows when it was renewed last
            self._renewal.start()
            came_to = self._machine.executor.recover(self._handle, self._follower.hooks())
            self._renewal.resume_log()
        except RemoteError as error:
            raise LeftRunningError(f"not followed yet: {error.message}") from error
        if isinstance(came_to, Execution):
            self._renewal.feed(came_to.log)
            return found.spec, self._follower.ended(came_to)
        if came_to is None:
            self._log.info("was prepared and never started: running it now")
            return found.spec, self._begin(found.spec)
        self._log.info("goes on: following it again")
        return found.spec, self._follower.follow(came_to)

    def _restore(self, found: prepared.PreparedRun) -> None:
        """Take over what an earlier process knew, and look whether the request still counts.

        Raises:
            LeftRunningError: nobody can tell now; the run goes on.
        """
        self._know(found)
        self.request_bytes, self.signature = found.request_bytes, found.signature
        self._request = Request.parse(found.request_bytes)
        history = self._state.journal.of(self.ref.id)
        self._follower.revoked = None if history is None else history.revoked
        try:
            self._sender.let_in(self._request, found.request_bytes, found.signature, self._renewal.held.chain[0])
        except (PolicyRefusedError, RequestRejectedError) as error:
            self._follower.revoked = self._follower.revoked or error.message
        except JournalError:
            raise
        except (InfrastructureError, OSError) as error:
            raise LeftRunningError(f"not followed yet: {error}") from error

    def record(self, spec: JobSpec | None, execution: Execution | None, ending: Ending) -> RunRecord:
        """Return the record of the run; from here on the claim moves only to its end."""
        self._renewal.stop()
        if execution is None and not self._follower.output:
            self._follower.output = f"kakeya: {ending.reason}: {ending.message or ''}\n".encode()
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
            log=self._follower.output,
            prepared=self._prepared,
            signer=self._sender.signer,
            asker=self._sender.asker,
            ending=ending,
            ended=rfc3339(self.clock.now()),
        )
        return run_record(self._rules, self._machine, facts, spec, execution)

    def earlier(self, record: RunRecord) -> Mapping[str, Mapping[str, bytes]]:
        """Return the reports of earlier attempts of the same configuration on this host, by run id."""
        if record.attempt is None or set_of(self._request) is not None:  # a sitting stands by itself
            return {}
        return load_reports(self._state.folder.reports, record.attempt.earlier)

    def log(self) -> bytes:
        """Return the whole log kept."""
        return self._follower.output

    @property
    def attestation(self) -> Literal["none", "dsse"]:
        """Whether the result is signed: by every runner that can, whatever the bus record, which others push, says."""
        return "dsse" if self._link.signs or self._state.attesting.has_key else "none"

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
            detail = {"ref": self.ref.ref, "reason": ending.reason, "message": ending.message, "claim": held.oid}
            state.journal.append("result_built", self.ref.id, result_oid, **detail, **sealed.detail)
        remove_tree(self._handle)
        delivery = self._delivery.deliver(self.ref, held, ending, result_oid, log=self._renewal.last_chunk())
        said = f"{ending.reason}: {ending.message}" if ending.message else ending.reason
        self._log.info("%s%s", said, "" if delivery == "copied" else f" ({delivery})")
        audit(self._log, "ended", self.ref.id, reason=ending.reason, result=result_oid, delivery=delivery)
        if delivery != "spooled":  # nobody is notified of what cannot be fetched yet
            self._delivery.notify(RunAnnouncement(self.ref, self._link.bus.route, self._request, ending, sealed.files))
        return RunOutcome(id=self.ref.id, ending=ending, result_oid=result_oid, delivery=delivery)

    def _attempt_now(self) -> Attempt | None:
        """Return the attempt with what its earlier ones left by now."""
        counted = self._attempt
        if counted is None:
            return None
        return counted.evolve(unseen=unreported(self._state.folder.reports, counted.earlier))

    def _prepare(self, spec: JobSpec) -> None:
        """Make the run's folder, and know what is known of it before it starts.

        Raises:
            RequestRejectedError: what the preset needs is not installed here; or as `prepare` does.
        """
        code, preset = self._machine.code, self._rules.presets.get(spec.preset)
        missing = lacking(preset, code.packages)
        if missing:
            raise RequestRejectedError(
                f"preset {spec.preset!r} needs {', '.join(missing)}, which the host's interpreter does not have",
                remedy=f"on the host: {code.interpreter} -m pip install {' '.join(missing)}",
            )
        known = prepare(
            self._rules, self._machine, self._state, self._link.bus, self.ref, self._request, spec,
            code=code, clock=self.clock,
        )  # fmt: skip
        known = known.evolve(request_bytes=self.request_bytes or b"", signature=self.signature)
        prepared.save(self._handle, known)
        self._know(known)

    def _know(self, run: prepared.PreparedRun) -> None:
        self._prepared, self._started = run, parse_rfc3339(run.started)
        self._attempt, self._models = run.attempt, run.models

    def _ask_owner(self, request: Request, preset: Preset) -> None:
        approval = self._rules.policy.approval
        if not approval:
            return
        done = run_process(
            approval,
            env={"PATH": "/usr/bin:/bin"},
            timeout_s=_APPROVAL_WALL_S,
            input=self._sender.as_counted(request).canonical(),
        )
        if not done.ok:
            said = done.stdout.decode("utf-8", "replace").strip()[:200]
            raise PolicyRefusedError(
                f"the host owner's approval program refused {preset.name}" + (f": {said}" if said else "")
            )
