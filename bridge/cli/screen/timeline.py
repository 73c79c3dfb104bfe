"""Show the progress of a run on stderr: a live line on a terminal, a growing timeline with heartbeats otherwise.

Knows `Progress` and `Output`; decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from bridge.cli.screen.output import Output, clock_face
from bridge.client.document.untrusted import PREFIX
from bridge.client.run.follow import HEARTBEAT_S, Progress
from bridge.client.run.progress import progress_part, progress_text
from bridge.durations import duration_text

_OF_LOG = "log "  # before each line that the program wrote
_END_WORDS = {
    "pending": "still pending",
    "runner_lost": "runner lost",
    "expired": "expired",
    "publish_failed": "not delivered yet",
}


def state_text(progress: Progress, limit_s: float | None) -> str:
    """Return ``00:02 running (limit 10m)``."""
    word = progress.state.word
    if progress.kind == "end" and progress.end is not None and progress.end != "terminal":
        word = _END_WORDS[progress.end]
    elif progress.state == "started" and limit_s is not None:
        word = f"{word} (limit {duration_text(limit_s)})"
    return f"{clock_face(progress.elapsed_s)} {word}"


class Timeline:
    """One line that grows by a piece per state; a line of its own for heartbeats, log and trouble.

    A context, so that a terminal is left clean however the wait ends.
    """

    def __init__(self, output: Output, limit_s: float | None, why_waiting: Callable[[], str]) -> None:
        self._output = output
        self._limit_s = limit_s
        self._why_waiting = why_waiting
        self._line_shown: str | None = None

    def __enter__(self) -> Timeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._output.end_line()

    def show(self, progress: Progress) -> None:
        """Show one event."""
        match progress.kind:
            case "state":
                self._output.append(state_text(progress, self._limit_s))
            case "log":
                for line in progress.lines:
                    self._output.note(f"{PREFIX}{line}", lead=_OF_LOG)
            case "trouble":
                self._output.note(f"{clock_face(progress.elapsed_s)} {progress.lines[0]}")
            case "heartbeat":
                self._output.note(self._heartbeat(progress))
                if progress.last_line not in {None, self._line_shown}:
                    self._line_shown = progress.last_line
                    self._output.note(f"{PREFIX}{progress.last_line}", lead=_OF_LOG)
            case "end":
                if progress.end != "terminal":
                    self._output.append(state_text(progress, self._limit_s))

    def _heartbeat(self, progress: Progress) -> str:
        if progress.run is not None:
            return f"{clock_face(progress.elapsed_s)} {progress.state.word}: {progress_text(progress.run)}"
        text = state_text(progress, self._limit_s)
        if progress.state == "queued":
            return f"{text}: {self._why_waiting()}"
        return f"{text}: nothing new for {duration_text(HEARTBEAT_S)}"


class LiveTimeline(Timeline):
    """A line that is replaced in place once a second; states and log lines scroll above it.

    No spinner: on the embedded bus every redraw would be taken from the machine that is being measured.
    """

    def __init__(
        self, output: Output, limit_s: float | None, why_waiting: Callable[[], str], steady_s: Callable[[], float]
    ) -> None:
        super().__init__(output, limit_s, why_waiting)
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._text = Text
        self._console = Console(
            file=output.stderr, no_color=not output.colour, highlight=False, markup=False, emoji=False
        )
        self._steady_s = steady_s
        self._last: Progress | None = None
        self._seen_s = steady_s()
        self._why = ""
        self._live = Live(get_renderable=self._line, console=self._console, refresh_per_second=1, transient=True)

    def __enter__(self) -> Timeline:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show one event."""
        self._last, self._seen_s = progress, self._steady_s()
        match progress.kind:
            case "log":
                for line in progress.lines:
                    self._console.print(self._text(f"{_OF_LOG}{PREFIX}{line}", style="dim"))
            case "trouble":
                self._console.print(self._text(f"{clock_face(progress.elapsed_s)} {progress.lines[0]}", style="yellow"))
            case "heartbeat":
                self._why = f": {self._why_waiting()}" if progress.state == "queued" else ""
            case "progress":
                pass  # the live lines show the last event
            case _:
                self._why = ""
                self._console.print(self._text(state_text(progress, self._limit_s)))

    def _line(self) -> Any:
        """Return the line with the seconds since the last event, and the last line of the log; each fits the screen."""
        if self._last is None or self._last.kind == "end":
            return self._text("")
        elapsed_s = self._last.elapsed_s + self._steady_s() - self._seen_s
        why = f": {progress_text(self._last.run)}" if self._last.run is not None else self._why
        lines = [f"{clock_face(elapsed_s)} {self._last.state.word}{why}"]
        lines += [] if self._last.last_line is None else [f"{_OF_LOG}{PREFIX}{self._last.last_line}"]
        return self._text("\n".join(lines), style="dim", no_wrap=True, overflow="ellipsis")


class EventTimeline(Timeline):
    """One JSON document an event, on stdout."""

    def show(self, progress: Progress) -> None:
        """Show one event."""
        from bridge.client.document.event import RunEvent

        event = RunEvent(
            event=progress.kind,
            elapsed_s=round(progress.elapsed_s, 3),
            state=progress.state.value,
            lines=progress.lines,
            untrusted=progress.kind == "log",
            log_bytes=progress.log_bytes,
            end=progress.end,
            progress=progress_part(progress.run),
            last_line=progress.last_line,
        )
        self._output.event(event.document())


def make_timeline(
    output: Output, limit_s: float | None, why_waiting: Callable[[], str], steady_s: Callable[[], float]
) -> Timeline:
    """Return the timeline for these streams; `steady_s` is the clock by which a live line goes on."""
    if output.lines:
        return EventTimeline(output, limit_s, why_waiting)
    if output.live:
        return LiveTimeline(output, limit_s, why_waiting, steady_s)
    return Timeline(output, limit_s, why_waiting)


def show_all(timeline: Timeline, events: Iterable[Progress]) -> None:
    """Show every event of a run."""
    with timeline:
        for progress in events:
            timeline.show(progress)
