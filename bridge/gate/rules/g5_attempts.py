"""From the second attempt on, only the estimate pooled over all attempts is citable.

The best of ten reruns of identical code is "faster" 22 % of the time. The runner counts; the earlier reports are read.
One that was not this question, or that no gate would have let pass, is in no pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bridge.gate.interface import Evidence, Report, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import Attempt

_BY_ITSELF: Final = ("G3", "G4", "G5")


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
    ours = {report.path: report for report in evidence.reports if report.value is not None}
    for name, reports in evidence.earlier.items():
        for other in reports:
            if other.value is None or other.path not in ours:
                continue
            why = _another(name, other, ours[other.path]) or _refused(other, evidence)
            if why is not None:
                yield Violation(f"earlier attempt {name} cannot be pooled: {why}", "attempt", report=other.path)


def _another(name: str, other: Report, ours: Report) -> str | None:
    """Return how an earlier report is not this question asked before, None when it is."""
    theirs, mine = _question(other), _question(ours)
    differs = sorted(part for part in mine if theirs[part] != mine[part])
    if other.body["run"]["id"] != name:
        return f"its report is of run {other.body['run']['id']}"
    if differs:
        return f"it has another {', '.join(differs)}"
    return "its rows are this run's own" if _rows(other) == _rows(ours) else None


def _question(report: Report) -> dict[str, Any]:
    body, run = report.body, report.body["run"]
    asked = {part: run[part] for part in ("preset", "params", "profile")}
    arms = [(arm["name"], arm["role"], arm["code_path"]) for arm in body["arms"]]
    where = {part: body["environment"][part] for part in ("backend", "device")}
    return {**asked, "kind": body["kind"], "config": body["config"], "arms": arms, "environment": where}


def _rows(report: Report) -> list[Any]:
    return [[sample["stages"] for sample in arm["samples"]] for arm in report.body["arms"]]


def _refused(other: Report, evidence: Evidence) -> str | None:
    """Return what a rule of what a report says by itself refuses in an earlier one, None when nothing."""
    from bridge.gate.registry import rules  # the registry imports this module

    alone = Evidence(reports=(other,), record=None, spec=None, profile=evidence.profile)
    for code, entry in rules().items():
        if entry.layer not in _BY_ITSELF or code == "G5-ATTEMPTS":
            continue
        found = entry(alone)
        for violation in () if isinstance(found, Skip) else found:
            if (violation.severity or entry.severity) == "reject":
                return f"{code}: {violation.message}"
    return None
