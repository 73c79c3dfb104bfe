"""How a function becomes a rule.

Its docstring documents the rule: the first line is the message and says what must hold, the rest why it is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps

from bridge.gate.interface import Evidence, Report, Skip, Violation
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.verdict import Premise, Severity
from bridge.records.workload import KIND as WORKLOAD

Check = Callable[[Evidence], "Iterable[Violation] | Skip"]
ReportCheck = Callable[[Report, Evidence], "Iterable[Violation]"]
RecordCheck = Callable[[RunRecord, Evidence], "Iterable[Violation]"]
RunCheck = Callable[[RunRecord, JobSpec, Evidence], "Iterable[Violation]"]


@dataclass(frozen=True)
class RegisteredRule:
    """A rule and what is said of it.

    Attributes:
        code: never changes; the layer G0 … G9, a hyphen, a word.
        premise: what its violations take from claims, unless one says otherwise.
        severity: ``reject`` where a recomputation contradicts the report, ``violation`` where a premise falls.
        kinds: report kinds it looks at, empty for every kind.
        enveloped: it reads fields that every kind of the engine's has, and an owner's own program has not.
        remedy: what to do about a violation.
    """

    code: str
    premise: Premise
    severity: Severity
    remedy: str
    message: str
    why: str
    check: Check
    kinds: tuple[str, ...] = ()
    enveloped: bool = False

    @property
    def layer(self) -> str:
        """The part of the code before its first hyphen."""
        return self.code.split("-", 1)[0]

    def looks_at(self, kind: str) -> bool:
        """Whether it looks at reports of a kind."""
        return kind in self.kinds if self.kinds else not (self.enveloped and kind == WORKLOAD)

    def described(self) -> dict[str, object]:
        """Return what `gate rules` shows of it."""
        names = ("code", "layer", "premise", "severity", "kinds", "message", "why", "remedy")
        return {name: getattr(self, name) for name in names}

    def __call__(self, evidence: Evidence) -> Iterable[Violation] | Skip:
        """Return what violates the rule, or why it does not apply."""
        return self.check(evidence)


def rule(
    code: str,
    premise: Premise,
    *,
    remedy: str,
    severity: Severity = "reject",
    kinds: tuple[str, ...] = (),
) -> Callable[[Check], RegisteredRule]:
    """Declare a rule that looks at the whole evidence."""

    def register(check: Check) -> RegisteredRule:
        message, _, why = (inspect.getdoc(check) or "").partition("\n")
        return RegisteredRule(code, premise, severity, remedy, message.strip(), why.strip(), check, kinds)

    return register


def report_rule(
    code: str,
    premise: Premise,
    *,
    remedy: str,
    severity: Severity = "reject",
    kinds: tuple[str, ...] = (),
) -> Callable[[ReportCheck], RegisteredRule]:
    """Declare a rule that looks at one well-formed report of its kinds after the other."""

    def register(check: ReportCheck) -> RegisteredRule:
        @wraps(check)
        def over_reports(evidence: Evidence) -> Iterable[Violation] | Skip:
            wanted = [r for r in evidence.reports if r.value is not None]
            reports = [r for r in wanted if (r.kind in kinds if kinds else r.kind != WORKLOAD)]
            if not reports:
                return Skip("no well-formed report of its kinds" if kinds else "no well-formed report")
            return (
                violation if violation.report else replace(violation, report=report.path)
                for report in reports
                for violation in check(report, evidence)
            )

        found = rule(code, premise, remedy=remedy, severity=severity, kinds=kinds)(over_reports)
        return replace(found, enveloped=not kinds)

    return register


def record_rule(
    code: str, premise: Premise, *, remedy: str, severity: Severity = "reject"
) -> Callable[[RecordCheck], RegisteredRule]:
    """Declare a rule that looks at the runner's record."""

    def register(check: RecordCheck) -> RegisteredRule:
        @wraps(check)
        def over_record(evidence: Evidence) -> Iterable[Violation] | Skip:
            return Skip("no RunRecord") if evidence.record is None else check(evidence.record, evidence)

        return rule(code, premise, remedy=remedy, severity=severity)(over_record)

    return register


def run_rule(
    code: str, premise: Premise, *, remedy: str, severity: Severity = "reject"
) -> Callable[[RunCheck], RegisteredRule]:
    """Declare a rule that compares the runner's record with the job spec."""

    def register(check: RunCheck) -> RegisteredRule:
        @wraps(check)
        def over_run(evidence: Evidence) -> Iterable[Violation] | Skip:
            if evidence.record is None or evidence.spec is None:
                return Skip("no RunRecord or no JobSpec")
            return check(evidence.record, evidence.spec, evidence)

        return rule(code, premise, remedy=remedy, severity=severity)(over_run)

    return register
