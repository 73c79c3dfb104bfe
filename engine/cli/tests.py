"""`kakeya-engine tests`: run a test suite in this process and keep every outcome as a row of a report.

A plug-in counts what pytest reports; nothing is read back from text.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.options import add_out_option
from engine.reports import Report, RunContext, write_report
from engine.reports.context import machine_facts, thread_facts, utc_now

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
        """Count the tests that pytest selected."""
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


def parser() -> argparse.ArgumentParser:
    """Return the command line of this verb."""
    built = VerbParser(prog="kakeya-engine tests", description=__doc__)
    built.add_argument("paths", nargs="+", help="files, folders or node ids below the current directory")
    built.add_argument("--marker", default="", help="pytest marker expression")
    built.add_argument(
        "--require", action="append", default=[], help="turn the skip for a missing device into a failure"
    )
    built.add_argument("--report", metavar="FILE", default="tests.json", help="report name (default: %(default)s)")
    add_out_option(built)
    return built


def main(argv: list[str]) -> int:
    """Run the suite; the exit code is pytest's own, and a suite without a single test fails (5)."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    arguments = ["-q", *options.paths]
    if options.marker:
        arguments += ["-m", options.marker]
    for device in options.require:
        arguments += ["--require", device]
    context = RunContext.current(out=options.out)  # before the suite, which may change the environment
    started_at, started = utc_now(), time.perf_counter()
    code, rows = run_suite(arguments)
    report = Report(
        kind="test_suite",
        config={"paths": options.paths, "marker": options.marker, "require": options.require},
        environment={
            "backend": "none",
            "device": "cpu",
            **machine_facts(),
            "versions": {},
            "blas": None,
            "threads": thread_facts(os.environ),
        },
        started_at=started_at,
        ended_at=utc_now(),
        wall_s=time.perf_counter() - started,
        rows=rows,
    )
    write_report(report, context, options.report)
    return code


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
