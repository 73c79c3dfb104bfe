"""The runner's five calls: parse -> resolve -> execute -> judge -> publish. The only module that knows all stages.

Every ending comes out at the same place with a result; only a run that another runner owns by now has none of ours.
"""

# ruff: noqa: D102 (the methods of RunSession are described where they are implemented)

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from bridge.bus.views import RequestRef
from bridge.errors import FencedError, LeftRunningError
from bridge.executor.endings import of_execution
from bridge.executor.interface import Execution
from bridge.gate.derivation import derive
from bridge.gate.judging import judge
from bridge.presets.facts import PolicyFacts, Trust
from bridge.presets.installed import find
from bridge.presets.model import Preset
from bridge.presets.resolution import resolve
from bridge.publish import build_tree
from bridge.records.jobspec import JobSpec
from bridge.records.places import PlaceNames
from bridge.records.request import Request
from bridge.records.run import RunRecord
from bridge.request import parse
from bridge.run.outcomes import Ending, RunOutcome, of_error
from bridge.system.clock import Clock


class RunSession(Protocol):
    """What the runner does around the stages for one run whose claim it holds."""

    ref: RequestRef
    bus_id: str
    clock: Clock
    presets: Mapping[str, Preset]
    policy: PolicyFacts
    request_bytes: bytes | None
    signature: bytes | None

    @property
    def places(self) -> PlaceNames: ...
    @property
    def attestation(self) -> Literal["none", "dsse"]: ...
    def read(self) -> bytes: ...
    def admit(self, request: Request, preset: Preset) -> Trust: ...
    def execute(self, spec: JobSpec) -> Execution: ...
    def recover(self) -> tuple[JobSpec | None, Execution | None]: ...
    def begins_later(self, error: Exception) -> bool: ...
    def failed(self, error: Exception) -> None: ...
    def record(self, spec: JobSpec | None, execution: Execution | None, ending: Ending) -> RunRecord: ...
    def earlier(self, record: RunRecord) -> Mapping[str, Mapping[str, bytes]]: ...
    def log(self) -> bytes: ...
    def claims(self) -> tuple[tuple[bytes, bytes], ...]: ...
    def publish(self, files: Mapping[str, bytes], ending: Ending) -> RunOutcome: ...


def run_once(session: RunSession) -> RunOutcome:
    """Take one claimed request to its published result."""
    spec: JobSpec | None = None
    execution: Execution | None = None
    try:
        request = parse(session.read(), ref=session.ref.ref, bus_id=session.bus_id, now=session.clock.now())
        preset = find(request.preset, session.presets)
        trust = session.admit(request, preset)  # which also says whose limits hold
        spec = resolve(request, preset, session.policy, trust)
        execution = session.execute(spec)
        ending = of_execution(execution)
    except (FencedError, LeftRunningError):
        raise
    except Exception as error:  # a broad catch: every ending has a result
        if session.begins_later(error):
            raise LeftRunningError(f"not begun yet: {error}") from error
        session.failed(error)
        ending = of_error(error)
    return finish(session, spec, execution, ending)


def recover_once(session: RunSession, lost: Ending) -> RunOutcome:
    """Take a run that was started before to its published result: follow it, or judge what it came to.

    Args:
        session: of the run, whose claim is held.
        lost: how it ends when nothing is known of it here.
    """
    spec: JobSpec | None = None
    execution: Execution | None = None
    try:
        spec, execution = session.recover()
        ending = lost if execution is None else of_execution(execution)
    except (FencedError, LeftRunningError):
        raise
    except Exception as error:  # noqa: BLE001 (as above)
        session.failed(error)
        ending = of_error(error)
    return finish(session, spec, execution, ending)


def finish(session: RunSession, spec: JobSpec | None, execution: Execution | None, ending: Ending) -> RunOutcome:
    """Judge and publish whatever there is; what leaves the machine names none of its folders."""
    places = session.places
    if ending.message is not None:  # it goes into the log, the record and the claim that ends the run
        ending = Ending(ending.reason, places.name(ending.message))
    record = places.name_in(session.record(spec, execution, ending))
    spec = None if spec is None else places.name_in(spec)
    reports = {} if execution is None else execution.reports
    verdict = judge(session.ref.id, reports, record, spec, earlier=session.earlier(record))
    if ending.reason == "passed" and verdict.decision == "rejected":
        ending = Ending("gate_rejected", "; ".join(verdict.why) or verdict.headline)
    files = build_tree(
        request_bytes=session.request_bytes, signature=session.signature, claims=session.claims(), log=session.log(),
        record=record, spec=spec, reports=reports, verdict=verdict,
        derived=derive(session.ref.id, reports, record, spec), bus_id=session.bus_id, request_oid=session.ref.oid,
        attestation=session.attestation,
    )  # fmt: skip
    return session.publish(files, ending)
