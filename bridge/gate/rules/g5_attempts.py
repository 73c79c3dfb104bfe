"""From the second attempt on, only the estimate pooled over all attempts is citable.

The best of ten reruns of identical code is "faster" 22 % of the time. The runner counts; the earlier reports are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import Attempt


@rule(
    "G5-ATTEMPTS",
    severity="not_citable",
    remedy="Pool the attempts: judge with the earlier results beside this one, or change the code or the question.",
)
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.record is None:
        return Skip("no RunRecord")
    if evidence.record.attempt is None:
        return iter((Violation("the runner did not count this attempt", "attempt"),))
    return _attempt(evidence, evidence.record.attempt)


def _attempt(evidence: Evidence, attempt: Attempt) -> Iterator[Violation]:
    if attempt.number != len(attempt.earlier) + 1 or len(set(attempt.earlier)) != len(attempt.earlier):
        yield Violation(
            f"attempt {attempt.number} with {len(attempt.earlier)} earlier ones", "attempt", severity="reject"
        )
    if evidence.run_id in attempt.earlier:
        yield Violation("this run is its own earlier attempt", "attempt", severity="reject")
    if not any(report.value is not None and report.value["arms"] for report in evidence.reports):
        return  # nothing timed: repeating it changes nothing
    missing = [one for one in attempt.earlier if not any(r.value for r in evidence.earlier.get(one, ()))]
    if missing:
        yield Violation(
            f"attempt {attempt.number}: {len(missing)} earlier attempts are not pooled, e.g. {missing[0]}", "attempt"
        )
