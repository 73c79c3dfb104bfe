"""Run a test suite in this process and keep every outcome as a row.

The plug-in counts what pytest reports; nothing is read back from text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

OUTCOMES = ("passed", "failed", "skipped", "error")


@dataclass(frozen=True)
class TestRow:
    """One test: its node id, outcome, seconds of set-up, call and tear-down together, and why it was not passed."""

    __test__ = False

    id: str
    outcome: str
    duration_s: float
    reason: str | None


class OutcomeCollector:
    """A pytest plug-in; `rows` is complete when the session ends."""

    def __init__(self) -> None:
        self._rows: dict[str, TestRow] = {}
        self.collected = 0

    def pytest_collection_finish(self, session: Any) -> None:
        """Count what was selected."""
        self.collected = len(session.items)

    def pytest_collectreport(self, report: Any) -> None:
        """Keep a file that could not be collected as an error."""
        if report.failed:
            self._rows[report.nodeid] = TestRow(report.nodeid, "error", 0.0, _reason(report))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Merge the three phases of a test: the worst phase decides."""
        before = self._rows.get(report.nodeid)
        duration = (before.duration_s if before else 0.0) + float(report.duration)
        outcome, reason = _outcome(report)
        if before is not None and OUTCOMES.index(before.outcome) >= OUTCOMES.index(outcome):
            outcome, reason = before.outcome, before.reason
        self._rows[report.nodeid] = TestRow(report.nodeid, outcome, duration, reason)

    @property
    def rows(self) -> tuple[TestRow, ...]:
        """All rows, by node id."""
        return tuple(self._rows[key] for key in sorted(self._rows))


def run_suite(arguments: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Run pytest with these arguments; return its exit code and the report's raw rows."""
    import pytest

    collector = OutcomeCollector()
    code = int(pytest.main([*arguments, "-p", "no:cacheprovider"], plugins=[collector]))
    rows = [asdict(row) for row in collector.rows]
    return code, {"exit_code": code, "command": ["pytest", *arguments], "collected": collector.collected, "tests": rows}


def _outcome(report: Any) -> tuple[str, str | None]:
    if report.passed:
        return "passed", None
    if report.skipped:
        return "skipped", _reason(report)
    return ("failed" if report.when == "call" else "error"), _reason(report)


def _reason(report: Any) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:400]
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).splitlines()[0][:400]
    lines = str(report.longrepr or "").strip().splitlines()
    return (lines[-1] if lines else "no reason given")[:400]
