"""The gate that judges is the gate of the record; another one says so.

On the host they are the same program, so a difference means a changed record. Later, a newer gate may judge the same
files differently; that is said, never silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule


@rule("G9-GATE", severity="note", remedy="Nothing: read both verdicts, the one stored with the result and this one.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    record, gate = evidence.record, evidence.gate
    if record is None or gate is None:
        return Skip("no RunRecord")
    return _gates(evidence, record.gate_digest, record.runner_version)


def _gates(evidence: Evidence, digest: str, version: str) -> Iterator[Violation]:
    gate = evidence.gate
    if gate is None:
        return
    on_host = evidence.authority == "host"
    if digest != gate.digest:
        yield Violation(
            f"judged by gate {gate.digest[:12]}, the record names gate {digest[:12]}",
            "gate_digest",
            severity="reject" if on_host else "note",
        )
    elif version != gate.version:
        yield Violation(f"runner {version!r} with the gate of {gate.version!r}", "runner_version", severity="reject")
