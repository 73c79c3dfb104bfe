"""`report`: the reports of a run or of files, arm by arm."""

from __future__ import annotations

from pathlib import Path

from bridge.cli.mac.context import Invocation
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.reports import read_report, rows
from bridge.errors import UsageError


def report(call: Invocation) -> int:
    """Show reports arm by arm."""
    path = Path(call.directory, call.args.what)
    if path.is_file():
        found = {path.name: read_report(path)}
    else:
        run = call.find_run(call.args.what)
        result = run.result()
        found = {name: dict(value) for name, value in result.reports.items()}
        if not found:
            raise UsageError(f"run {result.id} left no report", remedy=f"kakeya-mac logs {result.id}")
        _print_verdict(call, JudgedResult.of_run(run))
    for name, value in found.items():
        call.output.row("report", clean_line(name))
        for label, text in rows(value):
            call.output.row(label, clean_line(text))
    call.output.document(of_data("report", found))
    return 0


def _print_verdict(call: Invocation, side: JudgedResult) -> None:
    """Print what the gate here says of a result before what its reports say of themselves."""
    from bridge.gate.render import rows as verdict_rows

    if side.verdict is not None:
        for label, text in verdict_rows(side.verdict, side.result.record):
            call.output.row(clean_line(label), clean_line(text))
