"""Which presets `run` offers: those of live runners, or every installed one where none has to be awake."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pydantic

from bridge.client.connection.offers import AT
from bridge.mcp.interface import Commands
from bridge.mcp.tools import ToolSpec
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
        """Return every tool; `run` offers nothing where the bus does not answer."""
        now_s = self._commands.clock.steady_s()
        if now_s - self._asked_s > FRESH_S:
            self._presets, self._asked_s = self._ask(), now_s
        presets = self._presets  # another call may ask anew meanwhile
        return self._commands.tools(presets, tuple(name for name in presets if name not in registry()))

    def find(self, name: str, preset: object = None) -> ToolSpec | None:
        """Return a tool by name.

        Args:
            name: of the tool.
            preset: what `run` is to run; one that was not offered a moment ago is asked for again.
        """
        unknown = isinstance(preset, str) and preset not in self._presets
        if unknown and self._commands.clock.steady_s() - self._asked_s > MISS_S:
            self._asked_s = float("-inf")
        return next((tool for tool in self.tools() if tool.name == name), None)

    def _ask(self) -> dict[str, Preset | None]:
        """Return what is offered by name, with the definition of what only a host of this bus has."""
        document = self._commands.answer(["runners"])
        if document["outcome"]["exit_code"] != 0:
            return {}
        rows = document["data"] or []
        offered = {name for row in rows if row["live"] for name in row["presets"]}
        here = not offered and (document["bus"] or {}).get("embedded", False)
        listed = self._commands.answer(["presets"])["data"] or [] if here or not offered <= registry().keys() else []
        if here:
            offered = {row["name"] for row in listed if row["offered"]}
        own = _own(listed)
        told_apart = {name.partition(AT)[0] for name in own if AT in name}
        names = sorted((offered | own.keys()) - told_apart)
        return {name: own.get(name) or registry().get(name) for name in names}


def _own(rows: Iterable[Mapping[str, Any]]) -> dict[str, Preset]:
    """Return the definitions that a bus offers beside the installed presets, of the rows of `presets`."""
    definitions: dict[str, Preset] = {}
    for row in rows:
        if row["definition"] is not None:
            with contextlib.suppress(pydantic.ValidationError):
                definitions[row["name"]] = Preset.model_validate_json(json.dumps(row["definition"]))
    return definitions
