"""Which lines each area has."""

from __future__ import annotations

from benchmarks.areas import AREAS
from benchmarks.show import engine_folders, escapes, rooms, statistics
from benchmarks.show.line import Line

LINES: dict[str, tuple[Line, ...]] = dict.fromkeys(AREAS, ()) | {
    "rooms": rooms.LINES,
    "executor": escapes.LINES,
    "evidence": statistics.LINES,
    "engine": engine_folders.LINES,
}
