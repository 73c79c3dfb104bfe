"""Rules on the files a run left: declared, of this run, recorded by the runner, within bounds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from bridge.gate.interface import Evidence, Report, Skip, Violation
from bridge.gate.rule import record_rule, report_rule, rule
from bridge.limits import REPORTS_MAX_COUNT, RESULT_MAX_BYTES
from bridge.records.run import RunRecord


@rule(
    "G1-DECLARED",
    "bound",
    remedy="Write what is declared: an owner's own program the file that KAKEYA_REPORT names, others below KAKEYA_OUT.",
)
def require_declared_reports(evidence: Evidence) -> Iterator[Violation]:
    """Every required report is there; zero reports fail.

    The seed's gate passed a run which wrote nothing: there was nothing to object to.
    """
    if evidence.spec is None:
        if not evidence.reports:
            yield Violation("no report at all")
        return
    for output in evidence.spec.outputs:
        if output.required and output.path not in evidence.files:
            yield Violation(f"the declared {output.kind} report is absent", report=output.path)
    if not evidence.reports:
        yield Violation("the run left no report")


@rule("G1-EXTRA", "bound", remedy="Declare the file in the preset, or delete it before the run ends.")
def refuse_undeclared_files(evidence: Evidence) -> Iterator[Violation] | Skip:
    """The run left exactly the declared files.

    A second report is a choice of which one to show.
    """
    if evidence.spec is None:
        return Skip("no job spec")
    declared = {output.path for output in evidence.spec.outputs}
    return (
        Violation(f"{path!r} is not declared by the preset", report=path)
        for path in sorted(set(evidence.files) - declared)
    )


@record_rule("G1-FRESH", "bound", remedy="Let the workload write its report itself, in the directory it is given.")
def refuse_older_files(record: RunRecord, _evidence: Evidence) -> Iterator[Violation]:
    """Reports were created in this run's directory, after its start.

    The runner looked: a file that is older than the run was not measured by it.
    """
    for output in record.outputs:
        if not output.after_start:
            yield Violation("the file is older than the run", report=output.path)


@report_rule("G1-KIND", "bound", remedy="Write the kind of report the preset declares for this path.")
def compare_declared_kind(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A report is of the kind its preset declares.

    The rules follow the kind, so a report that may choose its kind may choose its rules.
    """
    declared = {output.path: output.kind for output in evidence.spec.outputs} if evidence.spec else {}
    wanted = declared.get(report.path)
    if wanted is not None and report.kind != wanted:
        yield Violation(f"got kind {report.kind!r}, the preset declares {wanted!r}", "/kind")


@rule("G9-CAPS", "bound", remedy="Write fewer or smaller reports; raw rows belong in, logs do not.")
def bound_outputs(evidence: Evidence) -> Iterator[Violation]:
    """Reports stay within the bounds on number and size.

    A bound that is met by leaving out the end leaves out what the end says.
    """
    total = sum(len(data) for data in evidence.files.values())
    if len(evidence.files) > REPORTS_MAX_COUNT:
        yield Violation(f"{len(evidence.files)} files, at most {REPORTS_MAX_COUNT} are judged")
    if total > RESULT_MAX_BYTES:
        yield Violation(f"{total} bytes of reports, at most {RESULT_MAX_BYTES} are published")


@record_rule("G9-OUTPUTS", "bound", remedy="Fetch the result again: `kakeya-mac fetch ID`; never edit a result.")
def compare_output_digests(record: RunRecord, evidence: Evidence) -> Iterator[Violation]:
    """The files judged are exactly the files the runner recorded: path, size and digest.

    The record is the link between what was judged and what was made.
    """
    counts = Counter(output.path for output in record.outputs)
    for path, count in counts.items():
        if count > 1:
            yield Violation(f"recorded {count} times", report=path)
    for output in record.outputs:
        data = evidence.files.get(output.path)
        if data is None:
            yield Violation("the runner recorded this file, it is absent", report=output.path)
        elif len(data) != output.bytes:
            yield Violation(f"{len(data)} bytes, the runner recorded {output.bytes}", report=output.path)
        elif hashlib.sha256(data).hexdigest() != output.sha256:
            yield Violation("another digest than the runner recorded", report=output.path)
    for path in sorted(set(evidence.files) - set(counts)):
        yield Violation("the runner did not record this file", report=path)
