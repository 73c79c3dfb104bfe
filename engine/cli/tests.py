"""`kakeya-engine tests`: run a test suite and write its outcome as a report."""

from __future__ import annotations

import argparse
import os
import time

from engine.cli.boundary import guarded
from engine.measurement.suite import run_suite
from engine.options import add_out_option
from engine.reports import Report, RunContext, write_report
from engine.reports.context import machine_facts, thread_facts, utc_now


def parser() -> argparse.ArgumentParser:
    """Return the command line of this verb."""
    built = argparse.ArgumentParser(prog="kakeya-engine tests", description=__doc__)
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
