"""The end of a run whose supervisor did not come to write one down.

Knows nothing about how anybody came to look.
"""

from __future__ import annotations

from pathlib import Path

from bridge.executor.command.outputs import import_outputs
from bridge.executor.holder.folder import JobFile, SupervisorFacts
from bridge.executor.interface import Execution
from bridge.executor.observe import host as machine
from bridge.executor.processes.tree import kill_leftovers
from bridge.records.run import LimitHit, SampleMark
from bridge.system.clock import Clock, rfc3339


def killed_run(
    job: JobFile, facts: SupervisorFacts, *, log: bytes, marks: bytes, failed: str | None, clock: Clock
) -> Execution:
    """Kill what is left of a run and return its end: killed, with log, marks and reports.

    Args:
        job: what was to run.
        facts: which supervisor had begun.
        log: what it had kept of the log.
        marks: the lines of sample marks it had written; a torn last one is none.
        failed: what went wrong in the supervisor, where it came to say so.
        clock: for the record.
    """
    rebooted = facts.boot_id != machine.boot_id()
    left = 0 if rebooted else kill_leftovers(facts.pid, facts.started, facts.marker)
    why = "the machine was restarted while it ran" if rebooted else "its supervisor was killed"
    declared = [output.path for output in job.spec.outputs]
    imported = import_outputs(
        Path(facts.out), stamp=facts.stamp, declared=declared, secrets=job.secrets, marks_bytes=len(marks)
    )
    if left:
        log += f"[kakeya] {left} processes outlived the supervisor and were killed\n".encode()
    return Execution(
        ok=False,
        ending="killed",
        program_exit=None,
        message=why if failed is None else failed,
        commands=(),
        limits_hit=tuple[LimitHit, ...](imported.hits),
        sandbox=job.offered,
        telemetry=None,
        sample_marks=_marks(marks),
        sample_marks_dropped=0,
        outputs=tuple(imported.outputs),
        reports=imported.reports,
        log=log,
        log_truncated_bytes=0,
        redactions=None,
        wall_s=0.0,
        host=job.host,
        ended=rfc3339(clock.now()),
    )


def _marks(lines: bytes) -> tuple[SampleMark, ...]:
    *whole, _torn = lines.split(b"\n")
    return tuple(SampleMark.parse(line) for line in whole)
