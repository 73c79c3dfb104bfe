"""`compare`: two results side by side, or the runs of a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.results import find_result, first_row
from bridge.cli.mac.tables.sweep import sweep_lines
from bridge.cli.screen.answer import Answer, Fitted, Line, Row, Talk, also_with_error
from bridge.client.clone.store import holds_result, id_in
from bridge.client.document.comparison import CompareData, Fact
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence import compare as comparing
from bridge.client.evidence import sweep as sweeping
from bridge.client.send.sweep import find_sweep, runs_of
from bridge.ids import short

if TYPE_CHECKING:
    from bridge.cli.table.options import CompareOptions


def compare(call: Invocation[CompareOptions]) -> Answer:
    """Put two runs side by side, with the gate's statistics where both measured the same; alone, a sweep's runs."""
    if call.options.b is None:
        return _compare_sweep(call)
    (run, a), (_, b) = (find_result(call, what) for what in (call.options.a, call.options.b))
    lines: list[Line] = [first_row(side.result.id, side.verdict, side.answer) for side in (a, b)]
    first, second = a.result, b.result
    with also_with_error(call.output, lines):
        facts, measured = comparing.compare(a, b), comparing.measured(a, b)
    lines += _side_by_side((short(first.id), short(second.id)), facts, call.output.columns)
    lines += [Row("B vs A", f"{clean_line(difference.wording)}   NOT CITABLE") for difference in measured.differences]
    for floor in measured.noise:
        lines.append(Row("noise", f"{floor.stage}: {comparing.noise_text(floor.a, floor.b, floor.confidence)}"))
    for reason in measured.reasons:
        where = "" if reason.report is None else f"{reason.report}: "
        lines.append(Row(reason.kind, clean_line(where + reason.text)))
    lines.append(Talk("note", comparing.CAUTION))
    numbers = comparing.shown_differences(measured)
    data = CompareData(first.id, second.id, comparing.CAUTION, facts, numbers, measured.noise, measured.reasons)
    return Answer(data, lines, bus=None if run is None else run.bus_part)


def _compare_sweep(call: Invocation[CompareOptions]) -> Answer:
    """Return the table of a sweep, and what its runs differ by from the first one of their repeat."""
    session, folder = call.connect(quiet=True), Path(call.directory, call.options.a)
    sweep_id = find_sweep(session, (id_in(folder) if holds_result(folder) else None) or call.options.a)
    runs = [call.run_on(session, run_id) for run_id in runs_of(session, sweep_id)]
    sweep = sweeping.SweptRuns(sweep_id, runs, [run.status() for run in runs])
    lines: list[Line] = sweep_lines(sweep, call.output.columns)
    lines += [
        Row(f"{short(number.b)} vs {short(number.a)}", f"{clean_line(number.wording)}   NOT CITABLE")
        for number in sweeping.differences(sweep.rows)
    ]
    lines.append(Talk("note", sweeping.EXPLORATORY))
    return Answer(sweep.data(), lines, bus=session.bus_part)


def _side_by_side(ids: tuple[str, str], facts: list[Fact], width: int | None) -> Iterator[Fitted]:
    """Yield the table of facts: what is the same is said once, and what differs below each other on a narrow screen."""
    cleaned = [(fact.same, clean_line(fact.name), clean_line(fact.a), clean_line(fact.b)) for fact in facts]
    label = max((len(name) for _, name, _, _ in cleaned), default=0)
    column = max((len(ids[0]), *(len(a) for same, _, a, _ in cleaned if not same)))
    is_wide = width is None or all(label + column + len(b) + 6 <= width for same, _, _, b in cleaned if not same)
    if is_wide:
        yield Fitted(f"  {'':<{label}}  {ids[0]:<{column}}  {ids[1]}", 0)
    for same, name, a, b in cleaned:
        if same or is_wide:
            yield Fitted(f"= {name:<{label}}  {a}" if same else f"* {name:<{label}}  {a:<{column}}  {b}", label + 4)
            continue
        yield Fitted(f"* {name:<{label}}  {ids[0]}  {a}", label + len(ids[0]) + 6)
        yield Fitted(f"  {'':<{label}}  {ids[1]}  {b}", label + len(ids[1]) + 6)
