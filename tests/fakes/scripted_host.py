"""A host that takes each step of a run when the test says so, over any bus, with real claims and real result trees."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

from bridge.bus.sides.runner import RunnerBus
from bridge.bus.tree import Tree
from bridge.bus.views import HeldClaim, LogChunk, RequestRef
from bridge.gate.derivation import derive
from bridge.presets.facts import PolicyFacts, Trust
from bridge.presets.installed import find, registry
from bridge.presets.model import Preset
from bridge.presets.resolution import resolve
from bridge.publish import build_tree
from bridge.records.bus import Beacon
from bridge.records.claim import Claim, Reason
from bridge.records.logs import LogHead
from bridge.records.request import Request
from bridge.records.run import (
    Attempt,
    CodeRecord,
    CommandResult,
    HostRecord,
    LimitHit,
    OutputRecord,
    RunRecord,
    SandboxApplied,
)
from bridge.records.verdict import ClaimResult, Decision, Finding, GateIdentity, Verdict
from bridge.system.clock import Clock, rfc3339
from bridge.trust.attestation import ATTESTATION_FILE, ChainPosition, attest
from bridge.trust.signing_key import MetadataSigner, given_key

PRESETS = ("mlx-env-probe", "cuda-env-probe", "pytest-path")
PROBE = {
    "kind": "environment_probe",
    "schema_version": 3,
    "environment": {
        "backend": "mlx",
        "device": "cpu",
        "os": "Linux",
        "machine": "x86_64",
        "python": "3.11.2",
        "versions": {},
    },
    "arms": [],
    "rows": {"checks": [{"name": "mlx", "ok": True, "required": True, "detail": "0.32", "value": None}], "matmul": []},
    "claims": [],
    "fallbacks": [],
}
SANDBOX = SandboxApplied(kind="none", reason="a test", network=False, namespaces=(), filters=(), uid=0)


class ScriptedHost:
    """Plays the runner's side of one bus."""

    def __init__(self, bus: RunnerBus, clock: Clock, name: str = "mini") -> None:
        self.bus, self.clock, self.name = bus, clock, name
        self.claims: dict[str, HeldClaim] = {}
        self.logs: dict[str, bytes] = {}
        self.own: dict[str, Preset] = {}
        self.machine = HOST
        self._beats = 0
        self._signer: MetadataSigner | None = None
        self._signed = 0

    def sign(self) -> str:
        """Sign every result from here on; return name and key as a reader pins them."""
        key = given_key(hashlib.sha256(self.name.encode()).digest())
        self._signer = MetadataSigner(key)
        return f"{self.name}={key.public}"

    def beat(self, state: str = "idle", presets: tuple[str, ...] = PRESETS, **changes: object) -> None:
        self._beats += 1
        fields = {
            "runner": self.name, "version": "0.1.0", "sequence": self._beats, "state": state, "policy_digest": "0" * 64,
            "presets": presets, "labels": ("quiet",), "capabilities": ("mlx",), "host": self.name, "queue": 0,
            "running": (), "disk_free_bytes": 10**11, "thermal": "unknown", "time": rfc3339(self.clock.now()),
        }  # fmt: skip
        self.bus.beacon(Beacon.model_validate({**fields, **changes}))

    def offer(self, *presets: Preset) -> None:
        """Show presets of the host's own, whole."""
        self.own = {preset.name: preset for preset in presets}
        offers = tuple(preset.model_dump(mode="json", by_alias=True) for preset in presets)
        self.beat(presets=(*PRESETS, *self.own), offers=offers)

    def ref(self, run_id: str) -> RequestRef:
        return next(ref for ref in self.bus.snapshot().requests if ref.id == run_id)

    def newest(self) -> str:
        return max(ref.id for ref in self.bus.snapshot().requests)

    def claim(self, run_id: str) -> None:
        self._ref = self.ref(run_id)
        self._request = Request.parse(self.bus.read_request(self._ref).data)
        self.claims[run_id] = self.bus.claim(self._claim(run_id, "claimed", sequence=0))

    def start(self, run_id: str, phase: str = "running", **changes: object) -> None:
        self._advance(run_id, state="started", phase=phase, **changes)

    def judge(self, run_id: str) -> None:
        self.start(run_id, "judging")

    def log(self, run_id: str, data: bytes, *, final: bool = False) -> None:
        before = self.logs.get(run_id, b"")
        seq = len(self.logs.setdefault(f"{run_id}#", b""))
        self.logs[f"{run_id}#"] += b"."
        head = LogHead(
            id=run_id,
            seq=seq,
            offset=len(before),
            length=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            final=final,
        )
        self.logs[run_id] = before + data
        self._advance(run_id, log=LogChunk(head, data), state="started", phase="running")

    def finish(
        self, run_id: str, reason: Reason = "passed", *, decision: Decision = "valid",
        reports: Mapping[str, object] | None = None, claims: tuple[ClaimResult, ...] = (), message: str | None = None,
        forge: Mapping[str, bytes] | None = None, program_exit: int | None = 0, attempt: int = 1,
        gate: GateIdentity | None = None, findings: tuple[Finding, ...] = (), commands: tuple[CommandResult, ...] = (),
        limits_hit: tuple[LimitHit, ...] = (), sandbox: SandboxApplied = SANDBOX,
    ) -> None:  # fmt: skip
        """End a run; `forge` replaces files of the tree after it was sealed, `gate` is who is said to have judged."""
        request = self._request
        files = {name: json.dumps(value).encode() for name, value in (reports or {"probe.json": PROBE}).items()}
        spec = resolve(request, find(request.preset, {**registry(), **self.own}), FACTS, Trust())
        record = self._record(run_id, request, reason, files, message, program_exit, attempt)
        record = record.evolve(commands=commands or record.commands, limits_hit=limits_hit, sandbox=sandbox)
        verdict = Verdict(
            id=run_id, decision=decision, headline="a scripted verdict", why=(), profile=request.profile,
            gate=gate or ANOTHER_GATE, findings=findings, claims=claims, reports=tuple(files), rules_run=1,
            rules_skipped={},
        )  # fmt: skip
        tree = build_tree(
            request_bytes=request.canonical(), signature=None, claims=self.bus.claim_commits(self.claims[run_id].chain),
            log=self.logs.get(run_id, b""), record=record, spec=spec, reports=files, verdict=verdict,
            derived=derive(run_id, files, record, spec).evolve(gate=verdict.gate), bus_id=request.bus_id,
            request_oid=self._ref.oid, attestation="none" if self._signer is None else "dsse",
        )  # fmt: skip
        if self._signer is not None:
            self._signed += 1
            link = ChainPosition("c" * 64, self._signed)
            tree[ATTESTATION_FILE] = attest(
                tree, ref=request.ref, record=record, verdict=verdict, link=link, signer=self._signer
            )
        oid = self.bus.build_result(Tree({**tree, **(forge or {})}), run_id)
        current = self.claims[run_id]
        end = current.claim.evolve(
            state="terminal", phase=None, reason=reason, message=message, exit_code=0, result_oid=oid, progress=None,
            sequence=current.claim.sequence + 1, nonce=os.urandom(16).hex(), time=rfc3339(self.clock.now()),
        )  # fmt: skip
        self.claims[run_id] = self.bus.publish(current, end)
        self.bus.copy_result(self._ref, oid)

    def _advance(self, run_id: str, *, log: LogChunk | None = None, **changes: object) -> None:
        current = self.claims[run_id]
        claim = current.claim.evolve(
            sequence=current.claim.sequence + 1, nonce=os.urandom(16).hex(), time=rfc3339(self.clock.now()), **changes
        )
        self.claims[run_id] = self.bus.advance(current, claim, log=log)

    def _claim(self, run_id: str, state: str, *, sequence: int) -> Claim:
        return Claim.model_validate(
            {
                "id": run_id, "request_oid": self._ref.oid, "state": state, "runner": self.name,
                "nonce": os.urandom(16).hex(), "sequence": sequence, "lease_s": self.bus.identity().lease_s,
                "time": rfc3339(self.clock.now()),
            }
        )  # fmt: skip

    def _record(
        self, run_id: str, request: Request, reason: str, files: Mapping[str, bytes], message: str | None,
        program_exit: int | None, attempt: int,
    ) -> RunRecord:  # fmt: skip
        now = rfc3339(self.clock.now())
        ran = reason in {"passed", "gate_rejected"}
        log = self.logs.get(run_id, b"")
        return RunRecord(
            id=run_id, bus_id=request.bus_id, request_digest=hashlib.sha256(request.canonical()).hexdigest(),
            request_oid=self._ref.oid, claims=self.claims[run_id].chain, runner=self.name, runner_version="0.1.0",
            preset=request.preset, preset_digest="1" * 64, policy_digest="2" * 64, gate_digest=ANOTHER_GATE.digest,
            labels=(), host=self.machine, code=CODE, models=(), environment=(),
            commands=(KILLED,) if reason == "cancelled" and self.claims[run_id].claim.state == "started" else (),
            executor_ok=True, program_exit=None if not ran else program_exit, reason=reason, message=message,
            limits_hit=(), sandbox=SANDBOX, telemetry=None, sample_marks=(), sample_marks_dropped=0,
            outputs=tuple(
                OutputRecord(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), after_start=True)
                for name, data in files.items()
            ),
            attempt=Attempt(key="3" * 64, number=attempt, earlier=()), imported=None, created=request.created,
            claimed=now, started=now, ended=now, queue_s=0.5, wall_s=1.5,
            log_bytes=len(log), log_sha256=hashlib.sha256(log).hexdigest(), log_truncated_bytes=0, redactions=0,
        )  # fmt: skip


KILLED = CommandResult(
    name="probe", argv=("probe",), started_s=0.1, ended_s=0.5, exit_code=None, signal=15, peak_rss_bytes=1, cpu_s=0.1,
    survivors=0,
)  # fmt: skip
ANOTHER_GATE = GateIdentity(version="scripted", digest="5" * 64)
FACTS = PolicyFacts(digest="2" * 64, interpreter="/usr/bin/python3", embedded=True)
HOST = HostRecord(
    name="mini", os="Linux", os_version="6.1", machine="x86_64", cpu="a cpu", cpu_count=2, memory_bytes=8 << 30,
    devices=(), drivers={}, virtualised="unknown",
)  # fmt: skip
CODE = CodeRecord(
    origin="host", trust_class="host", identity="f" * 40, dirty=False, interpreter="/usr/bin/python3",
    interpreter_version="3.11.2", packages={}, lock_digest="4" * 64,
)  # fmt: skip

__all__ = ["HOST", "PRESETS", "PROBE", "ScriptedHost"]
