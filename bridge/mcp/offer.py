"""Which presets this bus offers: those of its live runners, or every installed one where none has to be awake."""

from __future__ import annotations

from typing import Final

from bridge.mcp.interface import Commands
from bridge.mcp.tools import FIXED, ToolSpec, of_preset
from bridge.presets import registry

FRESH_S: Final = 30.0
MISS_S: Final = 5.0  # an unknown name asks the bus again, no more often than this


class Offer:
    """The tools of one bus, asked for anew when the last answer is old.

    Args:
        commands: asks the bus.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._asked_s = float("-inf")
        self._presets: tuple[str, ...] = ()

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return every tool, the fixed ones first; those alone where the bus does not answer."""
        now_s = self._commands.clock.steady_s()
        if now_s - self._asked_s > FRESH_S:
            self._presets, self._asked_s = self._ask(), now_s
        return (*FIXED, *(tool for name in self._presets if (tool := of_preset(name)) is not None))

    def find(self, name: str) -> ToolSpec | None:
        """Return a tool by name; a preset that was offered a moment ago is asked for again."""
        found = next((tool for tool in self.tools() if tool.name == name), None)
        if found is None and self._commands.clock.steady_s() - self._asked_s > MISS_S:
            self._asked_s = float("-inf")
            found = next((tool for tool in self.tools() if tool.name == name), None)
        return found

    def _ask(self) -> tuple[str, ...]:
        document = self._commands.answer(["runners"])
        if document["outcome"]["exit_code"] != 0:
            return ()
        rows = document["data"] or []
        offered = {name for row in rows if row["live"] for name in row["presets"]}
        if not offered and (document["bus"] or {}).get("source") == "embedded":
            offered = {name for name, preset in registry().items() if preset.status == "ready"}
        return tuple(sorted(offered))
