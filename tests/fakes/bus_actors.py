"""What tests of the bus say in one line: a request, a claim, a log chunk, a beacon; and a clock that stands still."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from dataclasses import dataclass, field

from bridge.bus.refbus import RefBus
from bridge.bus.tree import Tree
from bridge.bus.views import ClaimView, HeldClaim, LogChunk, RequestRef, Submission
from bridge.errors import FencedError
from bridge.ids import new_id
from bridge.records.bus import Beacon
from bridge.records.claim import Claim
from bridge.records.logs import LogHead
from bridge.records.request import LimitRequest, Request, RunnerSelector, Workload
from bridge.request import DEFAULT_TEMPLATE, idempotency_key, request_branch
from bridge.system.clock import Clock, rfc3339

START = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@dataclass
class FakeClock:
    """A clock that moves only when told; `sleep` tells it."""

    moment: dt.datetime = START
    steady: float = 1000.0

    def now(self) -> dt.datetime:
        return self.moment

    def steady_s(self) -> float:
        return self.steady

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.steady += seconds
        self.moment += dt.timedelta(seconds=seconds)


@dataclass
class Actor:
    """One bus seen by one name; every nonce is fresh."""

    bus: RefBus
    clock: Clock
    name: str = "mini"
    serial: int = field(default=0)

    def new_id(self) -> str:
        return new_id(int(self.clock.now().timestamp() * 1000), os.urandom(10))

    def request(
        self,
        run_id: str | None = None,
        *,
        template: str = DEFAULT_TEMPLATE,
        workload: Workload | None = None,
        **changes: object,
    ) -> Request:
        run = run_id or self.new_id()
        now = self.clock.now()
        runner, limits = RunnerSelector(), LimitRequest()
        record = self.bus.identity()
        fields: dict[str, object] = {
            "id": run,
            "bus_id": record.bus_id,
            "ref": request_branch(template, "mlx-env-probe", run),
            "principal": "unsigned",
            "preset": "mlx-env-probe",
            "params": {},
            "profile": "smoke",
            "workload": workload,
            "runner": runner,
            "limits": limits,
            "created": rfc3339(now),
            "expires": rfc3339(now + dt.timedelta(hours=2)),
            "idempotency_key": idempotency_key(
                bus_id=record.bus_id,
                principal="unsigned",
                preset="mlx-env-probe",
                params={},
                profile="smoke",
                tree=None if workload is None else workload.tree,
                runner=runner,
                limits=limits,
            ),
        }
        return Request.model_validate({**fields, **changes})

    def submit(self, request: Request | None = None) -> Submission:
        made = request or self.request()
        return self.bus.submit(made.canonical(), made.ref, made.workload)

    def record(self, ref: RequestRef, state: str, sequence: int, **changes: object) -> Claim:
        fields: dict[str, object] = {
            "id": ref.id,
            "request_oid": ref.oid,
            "state": state,
            "runner": self.name,
            "nonce": os.urandom(16).hex(),
            "sequence": sequence,
            "lease_s": 15.0,
            "time": rfc3339(self.clock.now()),
        }
        if state == "terminal":
            fields |= {"reason": "passed", "exit_code": 0}
        return Claim.model_validate({**fields, **changes})

    def claim(self, ref: RequestRef) -> HeldClaim:
        return self.bus.claim(self.record(ref, "claimed", 0))

    def displace(self, ref: RequestRef, tip: str) -> None:
        """Write a claim over what is there, whoever began the run, as whoever can push can.

        Raises:
            FencedError: the tip moved.
        """
        written = self.record(ref, "claimed", 0)
        _, outcomes = self.bus._claims._move(written, (), tip, [])
        if not all(outcome.landed for outcome in outcomes.values()):
            raise FencedError(f"the claim of {ref.id} moved on")

    def start(self, ref: RequestRef, current: HeldClaim) -> HeldClaim:
        return self.bus.advance(current, self.record(ref, "started", current.claim.sequence + 1, phase="running"))

    def renew(self, ref: RequestRef, current: HeldClaim, **along: object) -> HeldClaim:
        claim = self.record(ref, current.claim.state, current.claim.sequence + 1)
        return self.bus.advance(current, claim, **along)  # type: ignore[arg-type]

    def take_over(self, ref: RequestRef, view: ClaimView, state: str = "claimed", **changes: object) -> HeldClaim:
        return self.bus.take_over(view, self.record(ref, state, view.claim.sequence + 1, **changes))

    def publish(
        self, ref: RequestRef, current: HeldClaim, files: dict[str, bytes] | None = None, **changes: object
    ) -> HeldClaim:
        oid = self.bus.build_result(Tree(files or {"manifest.json": b"{}", "reports/a.json": b"[1]"}), ref.id)
        claim = self.record(ref, "terminal", current.claim.sequence + 1, result_oid=oid, **changes)
        return self.bus.publish(current, claim)

    def run(self, ref: RequestRef) -> HeldClaim:
        """Claim, start and publish."""
        return self.publish(ref, self.start(ref, self.claim(ref)))

    def beacon(self, sequence: int = 0, **changes: object) -> Beacon:
        fields: dict[str, object] = {
            "runner": self.name,
            "version": "0.1.0",
            "sequence": sequence,
            "state": "idle",
            "policy_digest": "0" * 64,
            "presets": ("mlx-env-probe",),
            "labels": (),
            "capabilities": ("mlx",),
            "host": "a host",
            "queue": 0,
            "running": (),
            "disk_free_bytes": 1,
            "thermal": "unknown",
            "time": rfc3339(self.clock.now()),
        }
        return Beacon.model_validate({**fields, **changes})


def chunk(run_id: str, seq: int, offset: int, data: bytes, *, final: bool = False) -> LogChunk:
    digest = hashlib.sha256(data).hexdigest()
    return LogChunk(LogHead(id=run_id, seq=seq, offset=offset, length=len(data), sha256=digest, final=final), data)
