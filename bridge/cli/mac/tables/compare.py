"""`compare`: two results side by side, or the runs of a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.results import find_result, say_first
from bridge.client.clone.store import holds_result, id_in
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence import compare as comparing
from bridge.client.evidence import sweep as sweeping
from bridge.client.send.sweep import find_sweep, runs_of
from bridge.ids import short


def compare(call: Invocation) -> int:
    """Put two runs side by side, with the gate's statistics where both measured the same; alone, a sweep's runs."""
    if call.args.b is None:
        return _compare_sweep(call)
    (run, a), (_, b) = (find_result(call, what) for what in (call.args.a, call.args.b))
    for side in (a, b):
        say_first(call, side.result.id, side.verdict, side.answer)
    first, second = a.result, b.result
    lines, measured = comparing.compare(a, b), comparing.measured(a, b)
    for text in _side_by_side((short(first.id), short(second.id)), lines):
        for part in call.output.fitted(text, indent=text.find("  ", 2) + 2):
            call.output.data(part)
    for one in measured.differences:
        call.output.row("B vs A", f"{clean_line(one.wording)}   NOT CITABLE")
    for floor in measured.noise:
        call.output.row("noise", f"{floor.stage}: {comparing.noise_text(floor.a, floor.b, floor.confidence)}")
    for reason in measured.reasons:
        where = "" if reason.report is None else f"{reason.report}: "
        call.output.row(reason.kind, clean_line(where + reason.text))
    call.output.say("note", comparing.CAUTION)
    data = {"a": first.id, "b": second.id, "caution": comparing.CAUTION, "lines": [asdict(line) for line in lines]}
    bus = None if run is None else run.bus_part()
    call.output.document(of_data("compare", {**data, **comparing.data(measured)}, bus=bus))
    return 0


def _compare_sweep(call: Invocation) -> int:
    """Print the table of a sweep, and what its runs differ by from the first one of their repeat."""
    session, folder = call.connect(quiet=True), Path(call.directory, call.args.a)
    sweep_id = find_sweep(session, (id_in(folder) if holds_result(folder) else None) or call.args.a)
    runs = [call.run_on(session, run_id) for run_id in runs_of(session, sweep_id)]
    found = sweeping.SweptRuns(sweep_id, runs, [run.status() for run in runs])
    for line in sweeping.table(found.rows):
        call.output.data(line)
    for a, b, value in sweeping.differences(found.rows):
        call.output.row(f"{short(b.id)} vs {short(a.id)}", f"{clean_line(value['wording'])}   NOT CITABLE")
    call.output.say("note", sweeping.EXPLORATORY)
    call.output.document(of_data("compare", found.data(), bus=session.bus_part()))
    return 0


def _side_by_side(ids: tuple[str, str], lines: list[comparing.Line]) -> Iterator[str]:
    """Yield the table of facts: what is the same is said once, so that columns are as wide as what differs."""
    cleaned = [(line.same, clean_line(line.name), clean_line(line.a), clean_line(line.b)) for line in lines]
    label = max((len(name) for _, name, _, _ in cleaned), default=0)
    column = max((len(ids[0]), *(len(a) for same, _, a, _ in cleaned if not same)))
    yield f"  {'':<{label}}  {ids[0]:<{column}}  {ids[1]}"
    for same, name, a, b in cleaned:
        yield f"= {name:<{label}}  {a}" if same else f"* {name:<{label}}  {a:<{column}}  {b}"
