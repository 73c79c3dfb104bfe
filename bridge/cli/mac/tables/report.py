"""`report`: the reports of a run or of files, declared metrics first, and what a preset gave over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.results import find_result, first_row
from bridge.cli.screen.answer import Answer, Fitted, Line, Row, also_with_error
from bridge.cli.screen.table import Column, table_lines
from bridge.client.clone.packed import is_packed
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.history import rows_of_preset
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.reports import derived_of_file, metrics_of, read_report, rows, value_text
from bridge.client.run.present import claims_of
from bridge.errors import UsageError
from bridge.ids import short
from bridge.run.asked import asked_text

if TYPE_CHECKING:
    from bridge.cli.table.options import ReportOptions


_HISTORY: Final = (
    Column("ended", least=11, rank=2),
    Column("run"),
    Column("parameters", least=12, rank=1),
    Column("code", least=8, rank=4),
    Column("host", least=8, rank=3),
    Column("metric"),
    Column("value"),
)


def report(call: Invocation[ReportOptions]) -> Answer:
    """Show reports, what the gate says of them first; or the history of a preset.

    Raises:
        UsageError: both were asked for, or neither.
    """
    if (call.options.what is None) == (call.options.history is None):
        raise UsageError("name a run or a file, or --history PRESET")
    if call.options.history is not None:
        return _history(call, call.options.history)
    return _reports(call, str(call.options.what))


def _reports(call: Invocation[ReportOptions], what: str) -> Answer:
    path = Path(call.directory, what)
    lines: list[Line] = []
    claims: list[dict[str, Any]] = []
    run_id: str | None = None
    if path.is_file() and not is_packed(path):
        reports = {path.name: read_report(path)}
        derived = {path.name: derived_of_file(path)}
    else:
        run, judged = find_result(call, what)
        result = judged.result
        run_id = None if run is None else run.id
        lines.append(first_row(result.id, judged.verdict, judged.answer))
        if result.request is not None:
            lines.append(Row("asked", clean_line(asked_text(result.request))))
        reports = {name: dict(value) for name, value in result.reports.items()}
        derived = {name: result.derived.report(name) for name in reports}
        if not reports:
            with also_with_error(call.output, lines):
                raise UsageError(f"run {result.id} left no report", remedy=f"kakeya-mac logs {result.id}")
        lines += _verdict_rows(judged)
        claims = [claim.model_dump(mode="json") for claim in claims_of(judged.verdict, judged.answer)]
    own = metrics_of(reports)
    for metric, values in own.items():
        lines.append(Row("metric", clean_line(f"{metric} {', '.join(map(value_text, values))}")))
    for name, value in () if own else reports.items():
        lines.append(Row("report", clean_line(name)))
        lines += [Row(label, clean_line(text)) for label, text in rows(value, derived[name])]

    def document(command: str) -> dict[str, Any]:
        from bridge.client.document.envelope import of_data

        shown = {name: report.model_dump(mode="json") for name, report in derived.items() if report is not None}
        about: dict[str, str] = {} if run_id is None else {"id": run_id, "short": short(run_id)}
        return {**of_data(command, reports), **about, "claims": claims, "derived": shown}

    return Answer(lines=lines, document=document)


def _history(call: Invocation[ReportOptions], preset: str) -> Answer:
    """Return every claim of the results of a preset that are stored here, oldest first."""
    rows = list(rows_of_preset(call.settings(), preset))
    if not rows:
        raise UsageError(
            f"no result of {preset!r} is stored here",
            remedy=f"kakeya-mac ls --preset {preset}, then kakeya-mac fetch ID",
        )
    cells = [(row.ended, short(row.id), row.params, row.code, row.host, row.metric, row.text) for row in rows]
    lines = table_lines(_HISTORY, [tuple(map(clean_line, row)) for row in cells], call.output.columns)
    return Answer([asdict(row) for row in rows], [Fitted(line, lines[0].index("value")) for line in lines])


def _verdict_rows(side: JudgedResult) -> Iterator[Row]:
    """Yield what the gate here says of a result before what its reports say of themselves."""
    from bridge.gate.render import rows as verdict_rows

    if side.verdict is not None:
        for label, text in verdict_rows(side.verdict, side.result.record):
            yield Row(clean_line(label), clean_line(text))
