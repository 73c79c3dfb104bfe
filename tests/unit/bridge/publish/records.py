"""Small, valid records."""

from __future__ import annotations

from bridge.records.claim import Claim
from bridge.records.derived import Derived
from bridge.records.jobspec import Command, DeclaredOutput, JobSpec, Limits, SandboxSpec
from bridge.records.run import CommandResult, HostRecord, RunRecord, SandboxApplied
from bridge.records.verdict import GateIdentity, Verdict

ID, SHA, OID, TIME = "0" * 26, "0" * 64, "e" * 40, "2026-11-20T10:00:00.000Z"

SPEC = JobSpec(
    id=ID, request_digest=SHA, preset="mlx-env-probe", preset_digest=SHA, policy_digest=SHA, params={}, profile="smoke",
    code="host", trust_class="host", commands=(Command(name="probe", argv=("/usr/bin/true",)),), environment=(),
    limits=Limits(
        wall_s=1.0, inactivity_s=1.0, grace_s=1.0, memory_bytes=1, processes=1, open_files=1, output_bytes=1,
        log_bytes=1
    ),
    sandbox=SandboxSpec(mode="preferred"), outputs=(DeclaredOutput(path="r.json", kind="environment_probe"),),
    gate_profile="probe",
)  # fmt: skip

RECORD = RunRecord(
    id=ID, bus_id="0" * 32, request_digest=SHA, request_oid=OID, claims=(OID,), runner="mini", runner_version="0",
    preset="mlx-env-probe", preset_digest=SHA, policy_digest=SHA, gate_digest=SHA, labels=(),
    host=HostRecord(
        name="h", os="Linux", os_version="1", machine="m", cpu="c", cpu_count=1, memory_bytes=1, devices=(), drivers={},
        virtualised="unknown",
    ),
    code=None, models=(), environment=(),
    commands=(
        CommandResult(
            name="probe", argv=("/usr/bin/true",), started_s=0.0, ended_s=0.1, exit_code=0, signal=None,
            peak_rss_bytes=1,
            cpu_s=0.0, survivors=0,
        ),
    ),
    executor_ok=True, program_exit=0, reason="passed", message=None, limits_hit=(),
    sandbox=SandboxApplied(kind="none", reason="test", network=False, namespaces=(), filters=(), uid=0), telemetry=None,
    sample_marks=(), sample_marks_dropped=0, outputs=(), attempt=None, imported=None, created=TIME, claimed=TIME,
    started=TIME, ended=TIME, queue_s=0.0, wall_s=0.1, log_bytes=0, log_sha256=SHA, log_truncated_bytes=0, redactions=0,
)  # fmt: skip

VERDICT = Verdict(
    id=ID, decision="valid", headline="fine", why=(), profile="smoke",
    gate=GateIdentity(version="0", digest=SHA), findings=(), claims=(), reports=("r.json",), rules_run=1,
    rules_skipped={},
)  # fmt: skip

DERIVED = Derived(id=ID, gate=VERDICT.gate, reports=())


def claim(run_id: str, request_oid: str, number: int) -> Claim:
    """Return the nth claim of a chain: claimed, then started."""
    return Claim(
        id=run_id, request_oid=request_oid, state="claimed" if number == 0 else "started", runner="mini",
        nonce=f"{number:032x}", sequence=number, lease_s=15.0, time=TIME,
    )  # fmt: skip
