"""Presets and kinds are data: no line of what runs, sends or shows them names a kind of the engine's."""

from __future__ import annotations

import re
from pathlib import Path

from bridge.gate.declared.kind import kinds

BRIDGE = Path(__file__).parents[3] / "bridge"
ROOMS = ("runner", "executor", "client", "bus", "cli")


def test_no_line_of_these_rooms_names_an_engine_kind():
    names = re.compile("|".join(rf"[\"']{re.escape(name)}[\"']" for name in kinds()))
    offences = [
        f"{path.relative_to(BRIDGE)}:{number}"
        for room in ROOMS
        for path in sorted((BRIDGE / room).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if names.search(line)
    ]
    assert offences == []
