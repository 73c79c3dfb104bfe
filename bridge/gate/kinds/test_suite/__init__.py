"""Test suites: its claims and its rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import TEST_SUITE
from bridge.gate.rule import report_rule


def recompute(report: Report, _evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the claim."""
    tests = report.body["rows"]["tests"]
    counts = Counter(test["outcome"] for test in tests)
    parts = [f"{counts[name]} {name}" for name in ("failed", "error", "skipped") if counts[name]]
    yield ClaimDraft(
        id="tests",
        metric_name="tests_passed",
        role="primary",
        value=float(counts["passed"]),
        unit="tests",
        n=len(tests),
        wording=f"{counts['passed']} of {len(tests)} tests passed" + (f" ({', '.join(parts)})" if parts else ""),
        detail=dict(sorted(counts.items())),
    )


@report_rule(
    "G4-TESTS", "outputs", kinds=(TEST_SUITE,), remedy="Use `kakeya-engine tests`; name a path that holds tests."
)
def recount_outcomes(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    """A test suite's rows, count and exit code agree, and at least one test passed.

    A suite that collected nothing, or skipped everything, has shown nothing; an exit code of 0 beside a failure is a
    lie.
    """
    rows = report.body["rows"]
    tests = rows["tests"]
    counts = Counter(test["outcome"] for test in tests)
    ids = Counter(test["id"] for test in tests)
    for name, count in ids.items():
        if count > 1:
            yield Violation(f"{name!r} occurs {count} times", "/rows/tests")
    cases = sum(1 for test in tests if "::" in test["id"])
    if cases != rows["collected"]:
        yield Violation(f"{rows['collected']} collected, {cases} tests have an outcome", "/rows/collected")
    failed = counts["failed"] + counts["error"]
    if (rows["exit_code"] == 0) != (failed == 0):
        yield Violation(f"exit code {rows['exit_code']} with {failed} failures", "/rows/exit_code")
    if not counts["passed"]:
        yield Violation(f"no test passed ({dict(counts) or 'none collected'})", "/rows/tests")
    for index, test in enumerate(tests):
        if (test["outcome"] == "passed") != (test["reason"] is None):
            yield Violation(f"outcome {test['outcome']!r} with reason {test['reason']!r}", f"/rows/tests/{index}")
    spent_s = sum(test["duration_s"] for test in tests)
    if spent_s > report.body["wall_s"] * 1.01 + 0.1:
        yield Violation(f"{spent_s:.2f} s of tests do not fit into {report.body['wall_s']:.2f} s", "/rows/tests")
    arguments = set(rows["command"][1:])
    missing = [path for path in report.body["config"]["paths"] if path not in arguments]
    if missing:
        yield Violation(f"the command does not name {missing}", "/rows/command")
