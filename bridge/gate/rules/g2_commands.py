"""The commands that ran are the ones the job spec says, one after the other, within the run.

Anything else that ran could have written the report.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import JobSpec, RunRecord

CLOCK_SLACK_S = 0.05
BETWEEN_MAX_S = 10.0  # preparing the next command


@rule("G2-COMMANDS", remedy="Keep run.json and spec.json of one run together, as the runner wrote them.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.record is None or evidence.spec is None:
        return Skip("no RunRecord or no JobSpec")
    return _commands(evidence.record, evidence.spec)


def _commands(record: RunRecord, spec: JobSpec) -> Iterator[Violation]:
    got = [(command.name, command.argv) for command in record.commands]
    wanted = [(command.name, command.argv) for command in spec.commands]
    if got != wanted:
        names = [name for name, _ in got]
        yield Violation(f"got {names} with their arguments, the job spec says {[name for name, _ in wanted]}")
    before = 0.0
    for command in record.commands:
        if command.started_s < before - CLOCK_SLACK_S or command.ended_s < command.started_s:
            yield Violation(
                f"ran {command.started_s:.3f} to {command.ended_s:.3f} s, expected to start after {before:.3f} s",
                command.name,
            )
        if command.started_s > before + BETWEEN_MAX_S:
            yield Violation(f"nothing ran from {before:.3f} s to {command.started_s:.3f} s", command.name)
        before = max(before, command.ended_s)
        cores = max(record.host.cpu_count, 1)
        if command.cpu_s > (command.ended_s - command.started_s + CLOCK_SLACK_S) * cores * 1.1:
            yield Violation(f"{command.cpu_s:.1f} s of processor time do not fit on {cores} cores", command.name)
        if record.host.memory_bytes and command.peak_rss_bytes > record.host.memory_bytes:
            yield Violation(f"{command.peak_rss_bytes} bytes are more than the host has", command.name)
    if before > record.wall_s + CLOCK_SLACK_S + 0.01 * record.wall_s:
        yield Violation(f"the last command ended at {before:.3f} s of a run of {record.wall_s:.3f} s")
    if record.wall_s > spec.limits.wall_s + spec.limits.grace_s + 5.0:
        yield Violation(f"the run lasted {record.wall_s:.1f} s, its limit is {spec.limits.wall_s:.1f} s")
