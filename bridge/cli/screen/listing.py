"""Runs as a table that fits the screen, once or again and again in the same place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from bridge.cli.screen.table import Column, table_lines
from bridge.cli.signals import DetachedError
from bridge.client.document.untrusted import clean_line
from bridge.durations import age_text, duration_text

if TYPE_CHECKING:
    from bridge.cli.screen.output import Output
    from bridge.client.document.parts import RunRow
    from bridge.run.state import RunState

_NOBODY: Final = "unsigned"
NO_RUNS: Final = ("no runs yet", "no such runs")
_COLUMNS: Final = (
    Column("ID"),
    Column("STATE"),
    Column("PRESET", least=12),
    Column("OPTIONS", least=20, rank=1),
    Column("BY", least=8, rank=6),
    Column("ASKED", rank=3, right=True),
    Column("TOOK", rank=4, right=True),
    Column("RUNNER", least=8, rank=5),
    Column("RESULT", least=12),
    Column("METRIC", rank=2, right=True),
)


def run_lines(rows: Sequence[RunRow], width: int | None) -> list[str]:
    """Return the header and a line per run, newest first as they came; nothing for no runs."""
    return table_lines(_COLUMNS, [_cells(row) for row in rows], width) if rows else []


def _cells(row: RunRow) -> tuple[str, ...]:
    return (
        row.short,
        row.state.word,
        clean_line(row.preset or "?"),
        clean_line(row.options or ""),
        "" if row.asked_by in {None, _NOBODY} else clean_line(row.asked_by),
        f"{age_text(row.age_s)} ago",
        "" if row.took_s is None else duration_text(row.took_s),
        row.runner or "",
        _result(row),
        row.metric or "",
    )


def _result(row: RunRow) -> str:
    """Return how a run ended: the verdict of one that passed, which only a fetched result tells."""
    if row.reason not in {None, "passed"}:
        return row.reason or ""
    if row.verdict is None and row.reason is not None and not row.fetched:
        return f"{row.reason}, not fetched"
    return row.verdict or row.reason or ""


def repaint(output: Output, find: Callable[[], Sequence[RunRow]], pause: Callable[[], object]) -> int:
    """Show runs again and again until a signal asks for the end; return its exit code."""
    with _Repainter(output) as painter:
        try:
            while True:
                painter.show(find())
                pause()
        except DetachedError as detached:
            return detached.exit_code


class _Repainter:
    """Shows runs in the place of those before; below them on what is no terminal."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._last: list[tuple[str, RunState, str | None, str | None]] | None = None
        self._live: Any = None

    def __enter__(self) -> _Repainter:
        if self._output.live and self._output.stdout.isatty():  # COLUMNS may name a width where there is no screen
            from rich.console import Console
            from rich.live import Live

            console = Console(
                file=self._output.stdout, no_color=not self._output.data_colour, highlight=False, markup=False
            )
            self._live = Live(console=console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, rows: Sequence[RunRow]) -> None:
        """Show runs; where they cannot be shown in place, only once one of them went on."""
        lines = run_lines(rows, self._output.columns) or [NO_RUNS[0]]
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)
            return
        states = [(row.id, row.state, row.reason, row.verdict) for row in rows]
        if states == self._last:
            return
        for line in [*([] if self._last is None else [""]), *lines]:
            self._output.data(line)
        self._last = states
