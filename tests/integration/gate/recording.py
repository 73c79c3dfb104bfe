"""What an honest real run left, and how it would have ended had the workload lied.

The lie is told in this process: its marks pass the runner's own reader at the times they were recorded, its files are
brought in by the runner's own import, and the run is judged and published by the pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bridge.bus.views import RequestRef
from bridge.executor.command.marks import MarkReader
from bridge.executor.command.outputs import import_outputs, start_stamp
from bridge.executor.endings import of_execution
from bridge.executor.interface import Execution
from bridge.pipeline import finish
from bridge.presets.facts import PolicyFacts, Trust
from bridge.presets.model import Preset
from bridge.records.jobspec import JobSpec
from bridge.records.places import PlaceNames
from bridge.records.request import Request
from bridge.records.run import RunRecord
from bridge.run.outcomes import Ending, RunOutcome
from bridge.system.clock import SystemClock
from bridge.trust.verifier import verify_tree
from tests.integration.gate.lies.registry import Lie
from tests.integration.gate.site import CLOCK, Ended, Site
from tests.integration.gate.workload import Behaviour, Pipe

REPORT = "report.json"


@dataclass
class RecordedPipe(Pipe):
    """The sample pipe of a run that is over: what is written arrives at the time that is set.

    Attributes:
        t_s: seconds since the run's start.
    """

    descriptor: int = -1
    reader: MarkReader = field(default_factory=MarkReader)
    t_s: float = 0.0

    def write(self, mark: dict[str, str]) -> None:
        self.reader.feed(json.dumps(mark).encode() + b"\n", self.t_s)


@dataclass
class RecordedSession:
    """Implements `bridge.pipeline.RunSession` for a run that has ended: it is judged, and its tree is kept.

    Attributes:
        recorded: the record of the honest run.
        files, ending: what was published.
    """

    ref: RequestRef
    recorded: RunRecord
    request_bytes: bytes | None
    chain: tuple[tuple[bytes, bytes], ...]
    text: bytes
    signature: bytes | None = None
    clock: SystemClock = CLOCK
    presets: Mapping[str, Preset] = field(default_factory=dict)
    attestation: Literal["none", "dsse"] = "none"
    files: dict[str, bytes] = field(default_factory=dict)
    ending: Ending | None = None

    @property
    def bus_id(self) -> str:
        return self.recorded.bus_id

    @property
    def places(self) -> PlaceNames:
        return PlaceNames({})

    @property
    def policy(self) -> PolicyFacts:
        return PolicyFacts(digest=self.recorded.policy_digest, interpreter="")

    def read(self) -> bytes:
        raise NotImplementedError("the run is over")

    def admit(self, request: Request, preset: Preset) -> Trust:
        raise NotImplementedError("the run is over")

    def execute(self, spec: JobSpec) -> Execution:
        raise NotImplementedError("the run is over")

    def record(self, spec: JobSpec | None, execution: Execution | None, ending: Ending) -> RunRecord:
        assert execution is not None
        return self.recorded.evolve(
            commands=execution.commands,
            program_exit=execution.program_exit,
            reason=ending.reason,
            message=ending.message,
            limits_hit=execution.limits_hit,
            sample_marks=execution.sample_marks,
            sample_marks_dropped=execution.sample_marks_dropped,
            outputs=execution.outputs,
        )

    def earlier(self, record: RunRecord) -> Mapping[str, Mapping[str, bytes]]:
        return {}

    def log(self) -> bytes:
        return self.text

    def claims(self) -> tuple[tuple[bytes, bytes], ...]:
        return self.chain

    def publish(self, files: Mapping[str, bytes], ending: Ending) -> RunOutcome:
        self.files, self.ending = dict(files), ending
        return RunOutcome(id=self.ref.id, ending=ending, result_oid=None, delivery="spooled")


@dataclass(frozen=True)
class Recording:
    """One honest run as its requester fetched it, with the claims on it as the bus keeps them."""

    ended: Ended
    ref: RequestRef
    chain: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, site: Site, name: str) -> Recording:
        """Return the recording of a run of this site."""
        ended = site.ended(name)
        record = RunRecord.parse(ended.files["run.json"], max_bytes=1 << 26)
        return cls(ended, site.requests[name], site.bus().claim_commits(record.claims))

    @property
    def report(self) -> bytes:
        return self.ended.files[f"reports/{REPORT}"]

    def judged(self, lie: Lie, out: Path) -> tuple[Ending, dict[str, Any]]:
        """Return how the run ends when its workload lies, and the published verdict.

        Args:
            lie: what the workload does.
            out: an empty folder, the run's report directory.
        """
        record = RunRecord.parse(self.ended.files["run.json"], max_bytes=1 << 26)
        spec = JobSpec.parse(self.ended.files["spec.json"], max_bytes=1 << 26)
        session = RecordedSession(
            self.ref, record, self.ended.files["request.json"], self.chain, self.ended.files["log.txt"]
        )
        execution = self._told(lie.behaviour(), out, record, spec)
        finish(session, spec, execution, of_execution(execution))
        assert verify_tree(session.files, run_id=record.id) == []
        assert session.ending is not None
        return session.ending, json.loads(session.files["verdict.json"])

    def _told(self, behaviour: Behaviour, out: Path, record: RunRecord, spec: JobSpec) -> Execution:
        """Return what the executor would have seen."""
        stamp, pipe = start_stamp(out), RecordedPipe(t_s=record.commands[-1].started_s)
        report = json.loads(self.report)
        behaviour.begin(pipe, list(dict.fromkeys(mark.sample for mark in record.sample_marks)))
        for mark in record.sample_marks:
            pipe.t_s = mark.t_s
            digest = {} if mark.token_digest is None else {"token_digest": mark.token_digest}
            behaviour.announce(pipe, {"event": mark.event, "sample": mark.sample, **digest})
        behaviour.write(out / REPORT, behaviour.finish(report))
        pipe.reader.end()
        imported = import_outputs(out, stamp=stamp, declared=[output.path for output in spec.outputs])
        last = record.commands[-1].evolve(exit_code=behaviour.exit_code)
        return replace(
            _execution(record),
            commands=(*record.commands[:-1], last),
            program_exit=behaviour.exit_code,
            limits_hit=(*record.limits_hit, *imported.hits),
            sample_marks=tuple(pipe.reader.marks),
            sample_marks_dropped=pipe.reader.dropped,
            outputs=tuple(imported.outputs),
            reports=imported.reports,
        )


def _execution(record: RunRecord) -> Execution:
    """Return what the executor saw of the honest run."""
    return Execution(
        ok=record.executor_ok,
        ending="exited",
        program_exit=record.program_exit,
        message=record.message,
        commands=record.commands,
        limits_hit=record.limits_hit,
        sandbox=record.sandbox,
        telemetry=record.telemetry,
        sample_marks=record.sample_marks,
        sample_marks_dropped=record.sample_marks_dropped,
        outputs=record.outputs,
        reports={},
        log=b"",
        log_truncated_bytes=record.log_truncated_bytes,
        redactions=record.redactions,
        wall_s=record.wall_s,
        imported=record.imported,
        peers=record.peers,
    )
