"""The page of a preset: what its runs gave over time, a plot and a table of each metric."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.client.evidence.history import HistoryRow
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
    metrics = dict.fromkeys(row.metric for row in rows)
    return page(f"Kakeya preset {preset}", [head, *(_metric(name, rows) for name in metrics)])


def _metric(name: str, rows: Sequence[HistoryRow]) -> str:
    rows_of_metric = [row for row in rows if row.metric == name]
    series: dict[str, list[tuple[float, float]]] = {}
    for at, row in enumerate(rows_of_metric, start=1):
        if row.value is not None:
            series.setdefault(row.params or name, []).append((float(at), row.value))
    cells = (
        (row.ended, short(row.id), row.params, row.code, row.host, row.text, marked(row.decision, row.quotation))
        for row in rows_of_metric[-LISTED:]
    )
    return section(
        plots.labelled(name, rows_of_metric[0].unit),
        plots.dots(series, "run, oldest first", plots.labelled(name, rows_of_metric[0].unit)),
        table(("ended", "run", "parameters", "code", "host", "value", "quote"), cells),
        left_out(rows_of_metric, "earlier runs are not listed"),
    )
