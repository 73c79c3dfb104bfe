"""The page of a bus: its runners, who waits and in which order, the last runs, histories of presets, pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bridge.client.connection.liveness import SeenRunner
from bridge.client.document.parts import RunRow
from bridge.client.evidence.history import HistoryRow, by_number
from bridge.client.page import plots
from bridge.client.page.markup import marked, page, section, table, text
from bridge.client.page.pictures import kept_files
from bridge.durations import age_text, duration_text
from bridge.ids import short
from bridge.run.state import RunState

_WAITING = frozenset({RunState.QUEUED})
_PARAMETERS_CHARS = 60
_GOING = frozenset({RunState.CLAIMED, RunState.RUNNING, RunState.JUDGING})


@dataclass(frozen=True)
class BusView:
    """What is shown of a bus.

    Attributes:
        route: as the reader names it.
        runners: those that were seen.
        runs: the newest ones, newest first.
        histories: claims of stored results by preset, oldest first.
        pictures: of the newest stored results, by run and path.
        embedded: whether it is this machine's own, whose runner starts with a request.
    """

    route: str
    at: str
    runners: Sequence[SeenRunner]
    runs: Sequence[RunRow]
    histories: Mapping[str, Sequence[HistoryRow]]
    pictures: Mapping[str, bytes]
    embedded: bool = False


def page_of_bus(view: BusView) -> str:
    """Return the page."""
    live = sum(runner.live for runner in view.runners)
    waiting = sorted((row for row in view.runs if row.state in _WAITING), key=lambda row: row.id)
    going = [row for row in view.runs if row.state in _GOING]
    awake = f"{live} of {len(view.runners)} runners are awake"
    if view.embedded and not live:
        awake = "the runner of this machine starts with the next request"
    kind = "held" if live or view.embedded else "missing"
    head = (
        f'<h1>Bus {text(view.route)}</h1><p class="verdict {kind}">{awake}, '
        f"{len(going)} running, {len(waiting)} waiting</p><p>as of {text(view.at)}</p>"
    )
    parts = [
        head,
        section("Runners", _runners(view.runners)),
        section("Running", _runs(going)),
        section("Waiting, in the order in which they were sent", _queue(waiting)),
        section("Last runs", _runs([row for row in view.runs if row.state not in _WAITING | _GOING])),
        *(section(f"History of {name}", *_history(rows)) for name, rows in view.histories.items()),
        section("Pictures of the newest results", *kept_files(view.pictures)),
    ]
    return page(f"Kakeya bus {view.route}", parts)


def _runners(runners: Sequence[SeenRunner]) -> str:
    rows = (
        (
            runner.beacon.runner,
            marked("held" if runner.live else "missing", _state(runner)),
            f"{age_text(runner.age_s)} ago",
            runner.beacon.queue,
            ", ".join(runner.beacon.labels),
        )
        for runner in runners
    )
    return table(("runner", "state", "seen", "queue", "labels"), rows)


def _state(runner: SeenRunner) -> str:
    return runner.beacon.state if runner.live or runner.beacon.state == "stopped" else "gone"


def _queue(rows: Sequence[RunRow]) -> str:
    cells = (
        (place, row.preset or "?", _cut(row.options or ""), short(row.id), age_text(row.age_s))
        for place, row in enumerate(rows, start=1)
    )
    return table(("place", "preset", "parameters", "run", "waits"), cells)


def _runs(rows: Sequence[RunRow]) -> str:
    cells = (
        (
            *(short(row.id), row.preset or "?", _cut(row.options or ""), _ended(row), row.metric or ""),
            *(row.runner or "", "" if row.took_s is None else duration_text(row.took_s), age_text(row.age_s)),
        )
        for row in rows
    )
    return table(("run", "preset", "parameters", "state", "value", "runner", "took", "age"), cells)


def _cut(parameters: str) -> str:
    """Return what fits into a column; the page of the run has all."""
    return parameters if len(parameters) <= _PARAMETERS_CHARS else f"{parameters[:_PARAMETERS_CHARS]}…"


def _ended(row: RunRow) -> Markup:
    words = text(row.reason or row.state.word)
    return words if row.verdict is None else words + " " + marked(row.verdict, row.verdict)


def _history(rows: Sequence[HistoryRow]) -> Iterator[str]:
    for (metric, unit), group in by_number(row for row in rows if row.value is not None).items():
        series: dict[str, list[tuple[float, float]]] = {}
        for at, row in enumerate(group, start=1):
            series.setdefault(row.params or metric, []).append((float(at), float(row.value or 0.0)))
        if len(group) > 1:
            yield plots.dots(series, "run, oldest first", plots.labelled(metric, unit))
