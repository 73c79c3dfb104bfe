"""Write down what happened, from what the runner and its executor saw; never from what the workload says."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass

from bridge.bus.views import HeldClaim, RequestRef
from bridge.executor.interface import Execution
from bridge.gate.identity import identity as gate_identity
from bridge.presets.facts import Trust
from bridge.presets.resolution import host_labels
from bridge.presets.workloads.digests import again
from bridge.publish import MASK
from bridge.records.jobspec import JobSpec
from bridge.records.request import Request
from bridge.records.run import Attempt, CodeRecord, ModelDigest, RunRecord, SandboxApplied
from bridge.run.outcomes import Ending
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.machine.machine import Machine
from bridge.runner.state.prepared import PreparedRun
from bridge.system.clock import parse_rfc3339, rfc3339
from bridge.trust.ssh_signatures import Signer

_NOTHING = SandboxApplied(kind="none", reason="nothing was started", network=False, namespaces=(), filters=(), uid=0)
_UNKNOWN_PRESET = "unknown"
_ZERO = "0" * 64


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run when its record is written.

    Attributes:
        request: None when the bytes were no request.
        claimed: time of the first claim of the chain.
        started: when the first command was about to start, or None.
        signer: who signed the request, as far as this host verified it.
        asker: who asked, in the words of the record.
        prepared: what was known before it started; it may have been another process of this runner that knew it.
        ended: now, for a run that did not run.
    """

    ref: RequestRef
    bus_id: str
    held: HeldClaim
    request_bytes: bytes | None
    request: Request | None
    claimed: str
    started: dt.datetime | None
    attempt: Attempt | None
    models: tuple[ModelDigest, ...]
    log: bytes
    prepared: PreparedRun | None
    signer: Signer | None
    asker: str
    ended: str
    ending: Ending


def run_record(
    rules: OwnerRules,
    machine: Machine,
    facts: RunFacts,
    spec: JobSpec | None,
    execution: Execution | None,
) -> RunRecord:
    """Return the record of a run, whatever became of it."""
    created = facts.claimed if facts.request is None else facts.request.created
    queue_s = (parse_rfc3339(facts.claimed) - parse_rfc3339(created)).total_seconds()
    preset = rules.presets.get(facts.request.preset) if facts.request is not None else None
    prepared = facts.prepared
    ran_on = None if execution is None else execution.host
    return RunRecord(
        id=facts.ref.id,
        bus_id=facts.bus_id,
        request_digest=hashlib.sha256(facts.request_bytes or b"").hexdigest(),
        request_oid=facts.ref.oid,
        claims=facts.held.chain,
        runner=rules.name,
        runner_version=machine.version if prepared is None else prepared.runner_version,
        preset=_UNKNOWN_PRESET if facts.request is None else facts.request.preset,
        preset_digest=spec.preset_digest if spec is not None else _ZERO if preset is None else preset.digest(),
        policy_digest=rules.facts.digest if spec is None else spec.policy_digest,
        gate_digest=gate_identity().digest,
        labels=host_labels(rules.facts, _trust(facts.signer)) if spec is None else spec.labels,
        principal=facts.asker if spec is None else spec.principal,
        signer=_trust(facts.signer).signer if spec is None else spec.signer,
        host=ran_on or machine.executor.host(),
        code=_code(machine, facts, spec),
        models=facts.models,
        environment=() if spec is None else _shown(spec),
        commands=() if execution is None else execution.commands,
        executor_ok=execution is not None and execution.ok,
        program_exit=None if execution is None else execution.program_exit,
        reason=facts.ending.reason,
        message=facts.ending.message,
        limits_hit=() if execution is None else execution.limits_hit,
        sandbox=_NOTHING if execution is None else execution.sandbox,
        telemetry=None if execution is None else execution.telemetry,
        sample_marks=() if execution is None else execution.sample_marks,
        sample_marks_dropped=0 if execution is None else execution.sample_marks_dropped,
        outputs=() if execution is None else execution.outputs,
        attempt=facts.attempt,
        imported=None if execution is None else execution.imported,
        created=created,
        claimed=facts.claimed,
        started=None if facts.started is None else rfc3339(facts.started),
        ended=facts.ended if execution is None or execution.ended is None else execution.ended,
        queue_s=max(0.0, queue_s),
        wall_s=0.0 if execution is None else execution.wall_s,
        log_bytes=len(facts.log),
        log_sha256=hashlib.sha256(facts.log).hexdigest(),
        log_truncated_bytes=0 if execution is None else execution.log_truncated_bytes,
        redactions=0 if execution is None else execution.redactions,
        peers=() if execution is None else execution.peers,
        launches=() if execution is None else execution.launches,
        nonce=None if execution is None else execution.nonce,
    )


def _code(machine: Machine, facts: RunFacts, spec: JobSpec | None) -> CodeRecord | None:
    """Return which code it was: as it was before the start, else as it is.

    Each repeat starts its owner's program anew, so that what was edited meanwhile ran too, or may have.
    """
    if facts.prepared is None:
        return None if spec is None else machine.code.record(spec, facts.request)
    code = facts.prepared.code
    if code is None:
        return None
    now = again(code.programs)
    return code if now == code.programs else code.evolve(programs=now, dirty=True)


def _trust(signer: Signer | None) -> Trust:
    return Trust() if signer is None else Trust(principal=signer.principal, signer=signer.fingerprint)


def _shown(spec: JobSpec) -> tuple[tuple[str, str], ...]:
    return tuple((v.name, MASK if v.secret else v.value) for v in spec.environment)
