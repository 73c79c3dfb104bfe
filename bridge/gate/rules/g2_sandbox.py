"""What confined the run is what the job spec asked for.

A network or another user's files are other sources of a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import JobSpec, RunRecord

NAMESPACES: Final = ("user", "pid", "ipc", "net", "uts", "cgroup", "mount")
FILTERS: Final = ("no new privileges", "no capabilities")


@rule("G2-SANDBOX", remedy="Run `kakeya-runner doctor`: it tries the sandbox and says what is missing.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.record is None or evidence.spec is None:
        return Skip("no RunRecord or no JobSpec")
    return _confinement(evidence.record, evidence.spec)


def _confinement(record: RunRecord, spec: JobSpec) -> Iterator[Violation]:
    applied, wanted = record.sandbox, spec.sandbox
    if wanted.mode == "required" and applied.kind == "none":
        yield Violation("a sandbox is required and none was applied", "kind")
    if wanted.mode == "off" and applied.kind != "none":
        yield Violation(f"got {applied.kind!r} although the job spec says off", "kind")
    if (applied.kind == "none") != (applied.reason is not None):
        yield Violation(f"kind {applied.kind!r} with reason {applied.reason!r}: no sandbox needs a reason", "reason")
    if applied.network and not wanted.network and applied.kind != "none":
        yield Violation("the run could reach a network; the job spec says it must not", "network")
    if wanted.network and not applied.network:
        yield Violation("the run could not reach the network the job spec grants", "network")
    if wanted.uid is not None and applied.uid != wanted.uid:
        yield Violation(f"ran as user {applied.uid}, expected {wanted.uid}", "uid")
    if applied.kind == "bwrap":
        needed = tuple(name for name in NAMESPACES if not (applied.network and name == "net"))
        if tuple(name for name in applied.namespaces if name in NAMESPACES) != needed:
            yield Violation(
                f"namespaces {list(applied.namespaces)} with network {applied.network}, expected {list(needed)}",
                "namespaces",
            )
        if applied.filters[:2] != FILTERS:
            yield Violation(f"filters begin with {list(applied.filters[:2])}, expected {list(FILTERS)}", "filters")
    if len(set(applied.namespaces)) != len(applied.namespaces) or len(set(applied.filters)) != len(applied.filters):
        yield Violation("a namespace or filter is listed twice", "namespaces")
    if applied.kind != "none" and not applied.namespaces and not applied.filters:
        yield Violation(f"{applied.kind} without a namespace and without a filter confines nothing", "namespaces")
