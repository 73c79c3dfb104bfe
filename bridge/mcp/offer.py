"""Which presets this bus offers: those of its live runners, or every installed one where none has to be awake."""

from __future__ import annotations

import contextlib
import json
from typing import Final

import pydantic

from bridge.mcp.interface import Commands
from bridge.mcp.tools import AT, FIXED, ToolSpec, of_preset
from bridge.presets.installed import registry
from bridge.presets.model import Preset

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
        self._presets: dict[str, Preset | None] = {}

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return every tool, the fixed ones first; those alone where the bus does not answer."""
        now_s = self._commands.clock.steady_s()
        if now_s - self._asked_s > FRESH_S:
            self._presets, self._asked_s = self._ask(), now_s
        offered = (of_preset(name, own) for name, own in self._presets.items())
        return (*FIXED, *(tool for tool in offered if tool is not None))

    def find(self, name: str) -> ToolSpec | None:
        """Return a tool by name; a preset that was offered a moment ago is asked for again."""
        found = next((tool for tool in self.tools() if tool.name == name), None)
        if found is None and self._commands.clock.steady_s() - self._asked_s > MISS_S:
            self._asked_s = float("-inf")
            found = next((tool for tool in self.tools() if tool.name == name), None)
        return found

    def _ask(self) -> dict[str, Preset | None]:
        """Return what is offered by name, with the definition of what only a host of this bus has."""
        document = self._commands.answer(["runners"])
        if document["outcome"]["exit_code"] != 0:
            return {}
        rows = document["data"] or []
        offered = {name for row in rows if row["live"] for name in row["presets"]}
        here = not offered and (document["bus"] or {}).get("embedded", False)
        if here:
            offered = {name for name, preset in registry().items() if preset.status == "ready"}
        own = self._own() if here or not offered <= registry().keys() else {}
        told_apart = {name.partition(AT)[0] for name in own if AT in name}
        names = sorted((offered | own.keys()) - told_apart)
        return {name: own.get(name) for name in names}

    def _own(self) -> dict[str, Preset]:
        """Return the definitions that this bus offers beside the installed presets."""
        rows = self._commands.answer(["presets"])["data"] or []
        found: dict[str, Preset] = {}
        for row in rows:
            if row["definition"] is not None:
                with contextlib.suppress(pydantic.ValidationError):
                    found[row["name"]] = Preset.model_validate_json(json.dumps(row["definition"]))
        return found
