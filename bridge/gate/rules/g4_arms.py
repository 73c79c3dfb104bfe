"""A comparison has one baseline, at most one control and one candidate, and nothing else.

Two baselines are a choice of which one to lose to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule("G4-ARMS", kinds=kinds.SAMPLED, remedy="Give every arm its own name and role; use the engine's harness.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence)
    names = Counter(arm.name for arm in arms.all)
    for name, count in names.items():
        if count > 1:
            yield Violation(f"arm {name!r} occurs {count} times", "/arms")
    if report.kind in kinds.ONE_EACH:
        roles = Counter(arm.role for arm in arms.all)
        for role, count in roles.items():
            if count > 1:
                yield Violation(f"{count} arms have the role {role!r}", "/arms")
        if arms.baseline is None:
            yield Violation("there is no baseline", "/arms")
    order = [("baseline", "control", "candidate").index(arm.role) for arm in arms.all]
    if order != sorted(order):
        yield Violation(f"arms are listed as {[arm.role for arm in arms.all]}, expected the baseline first", "/arms")
    for arm in arms.all:
        expected = kinds.ROLES.get(arm.name)
        if expected is not None and arm.role != expected:
            yield Violation(f"arm {arm.name!r} has role {arm.role!r}, expected {expected!r}", f"/arms/{arm.index}/role")
        if not arm.measured:
            yield Violation(f"arm {arm.name!r} has no measured sample", f"/arms/{arm.index}/samples")
