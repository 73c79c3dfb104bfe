"""The page of a sweep: what was set, how each run ended, what it measured, and what the runs differ by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.client.evidence.sweep import (
    EXPLORATORY,
    SweepColumn,
    SweepRow,
    SweptRuns,
    columns,
    differences,
    ended,
    metrics,
)
from bridge.client.page import plots
from bridge.client.page.markup import marked, page, section, table, text
from bridge.ids import short
from bridge.records.base import ParamValue

_PLOTTED: Final = 4  # metrics with a plot of their own


def page_of_sweep(sweep: SweptRuns) -> str:
    """Return the page of a sweep whose runs were asked."""
    rows = sweep.rows
    ordered = sorted(rows, key=_order)
    count = sum(row.reason != "pending" for row in rows)
    head = (
        f"<h1>Sweep {text(short(sweep.id))} {text(sweep.asked)}</h1>"
        f'<p class="verdict recorded">exploratory: {count} of {len(rows)} runs ended</p><p>{text(EXPLORATORY)}</p>'
    )
    failures = ((ids[0], why) for why, ids in sweep.failures().items())
    parts = [
        head,
        section("Runs", *_plots(ordered), _runs(ordered)),
        section("Why runs failed", table(("first run", "reason"), failures)),
        section("Differences, not citable", _differing(rows)),
    ]
    return page(f"Kakeya sweep {short(sweep.id)}", parts)


def _order(row: SweepRow) -> tuple[list[tuple[bool, ParamValue]], int]:
    """Return by what the runs of a page are ordered: what was set, numbers before texts, then the repeat."""
    return [(isinstance(value, str), value) for value in row.params.values()], row.repeat


def _plots(rows: Sequence[SweepRow]) -> Iterator[str]:
    for metric in metrics(rows)[:_PLOTTED]:
        pairs = [(row, claim) for row in rows if (claim := row.claim(metric)) is not None]
        drawn = [(_name(row), claim.value, claim.interval or (claim.value, claim.value)) for row, claim in pairs
                 if claim.value is not None]  # fmt: skip
        unit = pairs[0][1].unit
        yield plots.intervals(drawn, plots.labelled(metric, unit), 1.0 if unit in {"x", "ratio"} else None)


def _runs(rows: Sequence[SweepRow]) -> str:
    shown = columns(rows)
    return table([column.name for column in shown], ([_cell(column, row) for column in shown] for row in rows))


def _cell(column: SweepColumn, row: SweepRow) -> object:
    verdict = None if row.judged is None else row.judged.verdict
    shown = column.text(row)
    return marked(verdict.decision, shown) if column.text is ended and verdict is not None else shown


def _differing(rows: Sequence[SweepRow]) -> str:
    names = {row.id: _name(row) for row in rows}
    cells = ((f"{names[each.b]} vs {names[each.a]}", each.wording) for each in differences(rows))
    return table(("runs", "difference"), cells)


def _name(row: SweepRow) -> str:
    params = " ".join(f"{name}={value}" for name, value in row.params.items())
    return f"{params} #{row.repeat + 1}".strip()[:60]
