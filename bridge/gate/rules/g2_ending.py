"""The executor worked, every command ended by itself with exit code 0, and nothing of it was left behind.

A report written before a crash describes a run that did not finish.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule


@rule("G2-ENDING", remedy="Read log.txt of the run: `kakeya-mac logs ID`; a run that failed is repeated, not judged.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    return Skip("no RunRecord") if evidence.record is None else _endings(evidence)


def _endings(evidence: Evidence) -> Iterator[Violation]:
    record = evidence.record
    if record is None:
        return
    if not record.executor_ok:
        yield Violation(f"the executor failed: {record.message or record.reason}")
    if record.program_exit != 0:
        yield Violation(f"the program ended with {record.program_exit}, expected 0")
    if record.reason != "passed":
        yield Violation(f"the run ended as {record.reason!r}, expected 'passed'")
    if not record.commands:
        yield Violation("no command ran")
    for command in record.commands:
        if command.exit_code != 0 or command.signal is not None:
            yield Violation(f"got exit code {command.exit_code}, signal {command.signal}, expected 0", command.name)
        if command.survivors:
            yield Violation(f"{command.survivors} processes survived the end of the command", command.name)
    for hit in record.limits_hit:
        # A long log is cut and the run goes on; every other bound cuts what was measured.
        mild = hit.limit == "log_bytes" and hit.action == "truncated"
        yield Violation(
            f"limit {hit.limit}: {hit.observed:g} met the bound {hit.bound:g}, {hit.action}",
            hit.limit,
            severity="note" if mild else "reject",
        )
