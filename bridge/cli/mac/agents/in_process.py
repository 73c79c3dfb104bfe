"""Run commands of `kakeya-mac` in this process, each with streams of its own: what the tools of agents call."""

from __future__ import annotations

import datetime as dt
import io
import json
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.cli.mac.agents.tools import TOOL_OF, tools_of
from bridge.cli.mac.context import Invocation
from bridge.cli.signals import DetachedError
from bridge.system.clock import Clock

if TYPE_CHECKING:
    from bridge.cli.table.options import McpOptions
    from bridge.mcp.tools import ToolSpec
    from bridge.presets.model import Preset


_SLICE_S = 0.5


@dataclass(frozen=True)
class InProcess:
    """Runs commands in this process, each with streams of its own, on the bus of the call that serves."""

    call: Invocation[McpOptions]

    @property
    def clock(self) -> Clock:
        """The clock that waiting goes by."""
        return self.call.clock

    @property
    def tool_of(self) -> Mapping[str, str]:
        """The tool that calls a command, by the command."""
        return TOOL_OF

    def tools(self, offered: Mapping[str, Preset | None], own: Collection[str]) -> tuple[ToolSpec, ...]:
        """Return the tools of a bus, made from the table of commands."""
        return tools_of(offered, own)

    def answer(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the document that a command prints with ``--json``."""
        out = io.StringIO()
        self._run([*words, "--json"], out, self.clock)
        document: dict[str, Any] = json.loads(out.getvalue())
        return document

    def watch(
        self, words: Sequence[str], on_event: Callable[[Mapping[str, Any]], None], ended: Callable[[], bool]
    ) -> dict[str, Any]:
        """Return the document of a command that waits, its events told on the way."""
        out = _EventStream(on_event)
        self._run([*words, "--json-lines"], out, _Interruptible(self.clock, ended))
        return out.result

    def _run(self, words: Sequence[str], out: io.StringIO, clock: Clock) -> None:
        from bridge.cli.mac.program import Surroundings, main

        bus = [] if self.call.options.bus is None else ["--bus", self.call.options.bus]
        around = Surroundings(
            out, io.StringIO(), self.call.environment, self.call.directory, clock, self.call.opener
        )  # fmt: skip
        main([*words, *bus], around)


@dataclass(frozen=True)
class _Interruptible:
    """A clock whose sleep ends when nobody waits any more."""

    inner: Clock
    ended: Callable[[], bool]

    def now(self) -> dt.datetime:
        """Return the wall time, UTC."""
        return self.inner.now()

    def steady_s(self) -> float:
        """Return seconds that never jump."""
        return self.inner.steady_s()

    def sleep(self, seconds: float) -> None:
        """Wait in slices; detach where nobody waits any more."""
        end_s = self.inner.steady_s() + seconds
        while not self.ended():
            left_s = end_s - self.inner.steady_s()
            if left_s <= 0:
                return
            self.inner.sleep(min(left_s, _SLICE_S))
        raise DetachedError(signal.SIGTERM)


class _EventStream(io.StringIO):
    """Takes the lines of ``--json-lines`` as they are written."""

    def __init__(self, on_event: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._on_event = on_event
        self.result: dict[str, Any] = {}

    def write(self, text: str) -> int:
        """Take a whole line; the program writes nothing else."""
        line = json.loads(text)
        if line["event"] == "result":
            self.result = line["document"]
        else:
            self._on_event(line)
        return len(text)
