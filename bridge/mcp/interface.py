"""What the tools need of the program: a way to run one command and get its document."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from bridge.mcp.tools import ToolSpec
from bridge.presets.model import Preset
from bridge.system.clock import Clock

Document = dict[str, Any]
OnEvent = Callable[[Mapping[str, Any]], None]


class Commands(Protocol):
    """Runs commands of `kakeya-mac` in this process."""

    @property
    def clock(self) -> Clock:
        """The clock that waiting goes by."""
        ...

    @property
    def tool_of(self) -> Mapping[str, str]:
        """The tool that calls a command, by the command."""
        ...

    def tools(self, offered: Mapping[str, Preset | None], own: Collection[str]) -> tuple[ToolSpec, ...]:
        """Return the tools of a bus.

        Args:
            offered: what it offers by name, None for what nobody here knows.
            own: those names that its hosts have of their own.
        """
        ...

    def answer(self, words: Sequence[str]) -> Document:
        """Return the document that a command prints with ``--json``."""
        ...

    def watch(self, words: Sequence[str], on_event: OnEvent, ended: Callable[[], bool]) -> Document:
        """Return the document of a command that waits, its events told on the way.

        Args:
            words: the command line.
            on_event: takes each event of ``--json-lines``.
            ended: whether whoever asked has gone: the wait then ends early, and the run goes on.
        """
        ...
