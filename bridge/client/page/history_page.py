"""The page of a preset: what its runs gave over time, a plot and a table of each metric in each unit that it had."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.client.evidence.history import HistoryRow, by_number
from bridge.client.page import plots
from bridge.client.page.markup import LISTED, left_out, marked, page, section, table, text
from bridge.ids import short


def page_of_history(preset: str, rows: Sequence[HistoryRow]) -> str:
    """Return the page of the results of a preset that are stored here.

    Args:
        preset: its name.
        rows: a claim of a run each, oldest first.
    """
    runs = len({row.id for row in rows})
    head = f'<h1>Preset {text(preset)}</h1><p class="verdict recorded">{runs} runs are stored here</p>'
    sections = (_number(metric, unit, group) for (metric, unit), group in by_number(rows).items())
    return page(f"Kakeya preset {preset}", [head, *sections])


def _number(metric: str, unit: str, rows: Sequence[HistoryRow]) -> str:
    title = plots.labelled(metric, unit)
    series: dict[str, list[tuple[float, float]]] = {}
    for at, row in enumerate(rows, start=1):
        if row.value is not None:
            series.setdefault(row.params or metric, []).append((float(at), row.value))
    cells = (
        (row.ended, short(row.id), row.params, row.code, row.host, row.text, marked(row.decision, row.quotation))
        for row in rows[-LISTED:]
    )
    return section(
        title,
        plots.dots(series, "run, oldest first", title),
        table(("ended", "run", "parameters", "code", "host", "value", "quote"), cells),
        left_out(rows, "earlier runs are not listed"),
    )
