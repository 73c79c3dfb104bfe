"""How a rule file declares its rule.

A rule is a module: its docstring is the rule's message, the first line says what must hold, the rest why it is asked.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bridge.gate.interface import Evidence, Report, Skip, Violation
from bridge.records import Severity

Check = Callable[[Evidence], "Iterable[Violation] | Skip"]
ReportCheck = Callable[[Report, Evidence], "Iterable[Violation]"]


@dataclass(frozen=True)
class RegisteredRule:
    """A rule with what the registry needs to know about it; see `bridge.gate.interface.Rule`."""

    code: str
    severity: Severity
    remedy: str
    message: str
    why: str
    check: Check
    kinds: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()

    @property
    def layer(self) -> str:
        """The part of the code before its first hyphen."""
        return self.code.split("-", 1)[0]

    def __call__(self, evidence: Evidence) -> Iterable[Violation] | Skip:
        """Look."""
        return self.check(evidence)


def rule(
    code: str,
    *,
    severity: Severity = "reject",
    remedy: str,
    kinds: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
) -> Callable[[Check], RegisteredRule]:
    """Declare a rule that looks at the whole evidence."""

    def register(check: Check) -> RegisteredRule:
        message, why = _documentation(check)
        return RegisteredRule(code, severity, remedy, message, why, check, kinds, requires)

    return register


def report_rule(
    code: str,
    *,
    severity: Severity = "reject",
    remedy: str,
    kinds: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
) -> Callable[[ReportCheck], RegisteredRule]:
    """Declare a rule that looks at one well-formed report of its kinds after the other."""

    def register(check: ReportCheck) -> RegisteredRule:
        message, why = _documentation(check)

        def over_reports(evidence: Evidence) -> Iterable[Violation] | Skip:
            concerned = [r for r in evidence.reports if r.value is not None and (not kinds or r.kind in kinds)]
            if not concerned:
                return Skip("no well-formed report of its kinds" if kinds else "no well-formed report")
            return _over(concerned, evidence)

        def _over(concerned: list[Report], evidence: Evidence) -> Iterator[Violation]:
            for report in concerned:
                for violation in check(report, evidence):
                    yield violation if violation.report else _in_report(violation, report.path)

        return RegisteredRule(code, severity, remedy, message, why, over_reports, kinds, requires)

    return register


def _in_report(violation: Violation, path: str) -> Violation:
    return Violation(violation.message, violation.where, path, violation.severity, violation.detail, violation.claims)


def _documentation(check: Callable[..., object]) -> tuple[str, str]:
    text = inspect.cleandoc(sys.modules[check.__module__].__doc__ or "")
    first, _, rest = text.partition("\n")
    return first.strip(), rest.strip()
