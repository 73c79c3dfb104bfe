"""The page of a sweep: what was set, how each run ended, what it measured, and what the runs differ by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from bridge.client.evidence.compare import claim_text
from bridge.client.evidence.sweep import EXPLORATORY, SweepRow, SweptRuns, differences, hosts
from bridge.client.page import plots
from bridge.client.page.markup import marked, page, section, table, text
from bridge.ids import short
from bridge.records.base import ParamValue
from bridge.records.verdict import ClaimResult

_PLOTTED: Final = 4  # metrics with a plot of their own


def page_of_sweep(sweep: SweptRuns) -> str:
    """Return the page of a sweep whose runs were asked."""
    rows = sweep.rows
    ordered = sorted(rows, key=_order)
    ended = sum(row.reason != "pending" for row in rows)
    head = (
        f"<h1>Sweep {text(short(sweep.id))} {text(sweep.preset)}</h1>"
        f'<p class="verdict recorded">exploratory: {ended} of {len(rows)} runs ended</p><p>{text(EXPLORATORY)}</p>'
    )
    parts = [
        head,
        section("Runs", *_plots(ordered), _runs(ordered)),
        section("Differences, not citable", _differing(rows)),
    ]
    return page(f"Kakeya sweep {short(sweep.id)}", parts)


def _order(row: SweepRow) -> tuple[list[tuple[bool, ParamValue]], int]:
    """Return by what the runs of a page are ordered: what was set, numbers before texts, then the repeat."""
    return [(isinstance(value, str), value) for value in row.params.values()], row.repeat


def _plots(rows: Sequence[SweepRow]) -> Iterator[str]:
    for metric in _metrics(rows)[:_PLOTTED]:
        pairs = [(row, claim) for row in rows if (claim := _claim(row, metric)) is not None]
        drawn = [(_name(row), claim.value, claim.interval or (claim.value, claim.value)) for row, claim in pairs
                 if claim.value is not None]  # fmt: skip
        unit = pairs[0][1].unit
        yield plots.intervals(drawn, f"{metric} ({unit})", 1.0 if unit in {"x", "ratio"} else None)


def _runs(rows: Sequence[SweepRow]) -> str:
    names, metrics = tuple(rows[0].params) if rows else (), _metrics(rows)
    places = hosts(rows)
    heads = (*names, "repeat", "run", *places, "ended", *metrics)
    return table(heads, (_cells(row, names, metrics, places.values()) for row in rows))


def _cells(
    row: SweepRow, names: Sequence[str], metrics: Sequence[str], places: Iterable[Callable[[SweepRow], str]]
) -> list[str]:
    verdict, answer = (None, None) if row.judged is None else (row.judged.verdict, row.judged.quotation)
    decision = "" if verdict is None or answer is None else f" {marked(verdict.decision, answer.word)}"
    cells = [text(row.params[name]) for name in names]
    cells += [text(row.repeat + 1), text(short(row.id)), *(text(place_of(row)) for place_of in places)]
    cells.append(f"{text(row.reason)}{decision}")
    claims = (_claim(row, metric) for metric in metrics)
    return cells + ["-" if claim is None else text(claim_text(claim, row.judged)) for claim in claims]


def _differing(rows: Sequence[SweepRow]) -> str:
    cells = ((text(f"{short(each.b)} vs {short(each.a)}"), text(each.wording)) for each in differences(rows))
    return table(("runs", "difference"), cells)


def _metrics(rows: Sequence[SweepRow]) -> list[str]:
    """Return the ids of what the runs claim, primary ones first."""
    claims = sorted((claim for row in rows for claim in row.claims), key=lambda claim: claim.role != "primary")
    return list(dict.fromkeys(claim.id for claim in claims))


def _claim(row: SweepRow, name: str) -> ClaimResult | None:
    return next((claim for claim in row.claims if claim.id == name), None)


def _name(row: SweepRow) -> str:
    params = " ".join(f"{name}={value}" for name, value in row.params.items())
    return f"{params} #{row.repeat + 1}".strip()[:60]
