"""`report`: the reports of a run or of files, declared metrics first, and what a preset gave over time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.results import find_result, say_first
from bridge.cli.screen.table import Column, table_lines
from bridge.client.clone.packed import is_packed
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.history import rows_of_preset
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.reports import derived_of_file, read_report, rows
from bridge.client.run.present import claim_parts
from bridge.errors import UsageError
from bridge.ids import short
from bridge.run.asked import asked_text

_HISTORY: Final = (
    Column("ended", least=11, rank=1),
    Column("run"),
    Column("parameters", least=8, rank=4),
    Column("code", least=8, rank=3),
    Column("host", least=8, rank=2),
    Column("metric"),
    Column("value"),
)


def report(call: Invocation) -> int:
    """Show reports, what the gate says of them first; or the history of a preset.

    Raises:
        UsageError: both were asked for, or neither.
    """
    if (call.args.what is None) == (call.args.history is None):
        raise UsageError("name a run or a file, or --history PRESET")
    return _reports(call) if call.args.history is None else _history(call)


def _reports(call: Invocation) -> int:
    path = Path(call.directory, call.args.what)
    claims: list[dict[str, Any]] = []
    if path.is_file() and not is_packed(path):
        found = {path.name: read_report(path)}
        derived = {path.name: derived_of_file(path)}
    else:
        _, judged = find_result(call, call.args.what)
        result = judged.result
        say_first(call, result.id, judged.verdict, judged.answer)
        if result.request is not None:
            call.output.row("asked", clean_line(asked_text(result.request)))
        found = {name: dict(value) for name, value in result.reports.items()}
        derived = {name: result.derived.report(name) for name in found}
        if not found:
            raise UsageError(f"run {result.id} left no report", remedy=f"kakeya-mac logs {result.id}")
        _print_verdict(call, judged)
        claims = [] if judged.verdict is None else claim_parts(judged.verdict, judged.answer)
    for name, value in found.items():
        call.output.row("report", clean_line(name))
        for label, text in rows(value, derived[name]):
            call.output.row(label, clean_line(text))
    shown = {name: one.model_dump(mode="json") for name, one in derived.items() if one is not None}
    call.output.document({**of_data("report", found), "claims": claims, "derived": shown})
    return 0


def _history(call: Invocation) -> int:
    """Print every claim of the results of a preset that are stored here, oldest first."""
    found = list(rows_of_preset(call.settings(), call.args.history))
    if not found:
        raise UsageError(
            f"no result of {call.args.history!r} is stored here",
            remedy=f"kakeya-mac ls --preset {call.args.history}, then kakeya-mac fetch ID",
        )
    cells = [(one.ended, short(one.id), one.params, one.code, one.host, one.metric, one.text) for one in found]
    lines = table_lines(_HISTORY, [tuple(map(clean_line, row)) for row in cells], call.output.columns)
    for line in lines:
        for part in call.output.fitted(line, indent=lines[0].index("value")):
            call.output.data(part)
    call.output.document(of_data("report", [asdict(one) for one in found]))
    return 0


def _print_verdict(call: Invocation, side: JudgedResult) -> None:
    """Print what the gate here says of a result before what its reports say of themselves."""
    from bridge.gate.render import rows as verdict_rows

    if side.verdict is not None:
        for label, text in verdict_rows(side.verdict, side.result.record):
            call.output.row(clean_line(label), clean_line(text))
