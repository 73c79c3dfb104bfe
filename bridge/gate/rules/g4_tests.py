"""A test suite's rows, count and exit code agree, and at least one test passed.

A suite that collected nothing, or skipped everything, has shown nothing; an exit code of 0 beside a failure is a lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule("G4-TESTS", kinds=(kinds.TEST_SUITE,), remedy="Use `kakeya-engine tests`; name a path that holds tests.")
def _look(report: Report, _evidence: Evidence) -> Iterator[Violation]:
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
    _, *arguments = rows["command"] or [""]
    missing = [path for path in report.body["config"]["paths"] if path not in arguments]
    if missing:
        yield Violation(f"the command does not name {missing}", "/rows/command")
