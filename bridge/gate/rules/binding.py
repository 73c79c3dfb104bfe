"""Rules that bind report, record, job spec and gate to one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from bridge.gate import profiles
from bridge.gate.interface import Evidence, Report, Skip, Violation
from bridge.gate.rule import record_rule, report_rule, rule, run_rule
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord


@rule("G0-RECORD", "bound", remedy="Keep run.json and spec.json as the runner wrote them, together.")
def require_record_and_spec(evidence: Evidence) -> Iterator[Violation]:
    """The runner's record and the job spec are there together, well-formed.

    One without the other cannot be compared. Without both, a report file can be checked but nobody saw it being made.
    A run that ended before any command of it may have no job spec: how it ended says that nothing is to be judged.
    """
    if evidence.nothing_ran and evidence.spec is None:
        return
    if (evidence.record is None) != (evidence.spec is None):
        absent = "RunRecord" if evidence.record is None else "JobSpec"
        yield Violation(f"the {absent} is absent or unreadable, the other one is there")
    elif evidence.record is None:
        yield Violation("no RunRecord: nobody but the report's author saw this run", severity="violation")


@rule("G1-PROFILE", "bound", remedy="Name a profile of this gate in the preset's gate_profile.")
def require_known_profile(evidence: Evidence) -> Iterator[Violation] | Skip:
    """The preset asks for thresholds this gate has.

    An unknown profile must not fall back to somebody's defaults in silence.
    """
    if evidence.spec is None:
        return Skip("no job spec")
    name = evidence.spec.gate_profile
    known = profiles.names()
    return iter(() if name in known else (Violation(f"unknown gate profile {name!r}; known: {', '.join(known)}"),))


@report_rule(
    "G1-RUN", "bound", remedy="Let the workload copy the KAKEYA_* variables of its own run; never reuse a report."
)
def compare_run_fields(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A report names this run and its request.

    Otherwise an accurate run of one system and a fast run of another can be put together, or an old report re-used.
    What was asked of it is the job spec's word.
    """
    spec, run = evidence.spec, cast("Mapping[str, Any]", report.body["run"])
    if spec is None:
        return
    for name, wanted in (("id", evidence.run_id), ("request_digest", spec.request_digest)):
        if run[name] != wanted:
            yield Violation(f"{name}: got {run[name]!r}, expected {wanted!r}", f"/run/{name}")


@run_rule("G1-SPEC", "bound", remedy="Keep run.json and spec.json of one run together, as the runner wrote them.")
def compare_record_with_spec(record: RunRecord, spec: JobSpec, evidence: Evidence) -> Iterator[Violation]:
    """The runner's record is of this run and of this job spec.

    What was decided and what ran are two documents; every field they share must agree.
    """
    pairs: dict[str, tuple[object, object]] = {
        "id": (record.id, evidence.run_id),
        "spec.id": (spec.id, evidence.run_id),
        "request_digest": (record.request_digest, spec.request_digest),
        "preset": (record.preset, spec.preset),
        "preset_digest": (record.preset_digest, spec.preset_digest),
        "policy_digest": (record.policy_digest, spec.policy_digest),
        "labels": (record.labels, spec.labels),
        # A secret's value is masked in the record; its name is there.
        "environment": (
            tuple(
                (name, value)
                for (name, value), v in zip(record.environment, spec.environment, strict=False)
                if not v.secret
            ),
            tuple((v.name, v.value) for v in spec.environment if not v.secret),
        ),
        "environment names": (tuple(name for name, _ in record.environment), tuple(v.name for v in spec.environment)),
    }
    for name, (got, wanted) in pairs.items():
        if got != wanted:
            yield Violation(f"{name}: the record says {got!r}, expected {wanted!r}", name)


@record_rule(
    "G9-GATE",
    "bound",
    severity="note",
    remedy="Nothing: read both verdicts, the one stored with the result and this one.",
)
def compare_gates(record: RunRecord, evidence: Evidence) -> Iterator[Violation]:
    """The gate that judges is the gate of the record; another one says so.

    On the host they are the same program, so a difference means a changed record. Later, a newer gate may judge the
    same files differently; that is said, never silent.
    """
    gate, digest, version = evidence.gate, record.gate_digest, record.runner_version
    if gate is None:
        return
    if digest != gate.digest:
        yield Violation(
            f"judged by gate {gate.digest[:12]}, the record names gate {digest[:12]}",
            "gate_digest",
            severity="reject" if evidence.authority == "host" else "note",
        )
    elif version != gate.version:
        yield Violation(f"runner {version!r} with the gate of {gate.version!r}", "runner_version", severity="reject")
