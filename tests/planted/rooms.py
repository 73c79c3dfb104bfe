"""Which tests matter for a room, cheapest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.planted.fault import Fault

UNIT, CONFORMANCE, INTEGRATION = "tests/unit", "tests/conformance", "tests/integration"
STAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "gate": {"unit": (f"{UNIT}/bridge/gate",), "integration": (f"{INTEGRATION}/gate",)},
    "bus": {
        "unit": (f"{UNIT}/bridge/bus",),
        "conformance": (f"{CONFORMANCE}/bus",),
        "integration": (f"{INTEGRATION}/bus",),
    },
    "runner": {"unit": (f"{UNIT}/bridge/runner",), "integration": (f"{INTEGRATION}/runner", f"{INTEGRATION}/trust")},
    "executor": {
        "unit": (f"{UNIT}/bridge/executor",),
        "conformance": (f"{CONFORMANCE}/executor",),
        "integration": (f"{INTEGRATION}/executor",),
    },
    "client": {"unit": (f"{UNIT}/bridge/client", f"{UNIT}/bridge/cli"), "integration": (f"{INTEGRATION}/client",)},
    "request": {"unit": (f"{UNIT}/bridge/request", f"{UNIT}/bridge/presets")},
    "engine": {
        "unit": (f"{UNIT}/engine",),
        "conformance": tuple(f"{CONFORMANCE}/engine{part}" for part in ("", "_sampling", "_dflash2")),
        "integration": (f"{INTEGRATION}/engine", f"{INTEGRATION}/engine_torch"),
    },
}
FAMILY = {
    "bridge": (
        f"{UNIT}/bridge",
        *(f"{CONFORMANCE}/{part}" for part in ("bus", "executor")),
        *(
            f"{INTEGRATION}/{part}"
            for part in ("gate", "bus", "client", "runner", "executor", "trust", "hosting", "setup", "workflows")
        ),
    ),
    "engine": (*STAGES["engine"]["unit"], *STAGES["engine"]["conformance"], *STAGES["engine"]["integration"]),
}


def stages(fault: Fault, tree: Path, finders: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield name and paths of each selection to try.

    They are the tests that found the fault before, its own, its room's, then its whole family's.
    """
    family = ("family", FAMILY[_family(fault.room)])
    for name, paths in (("found before", finders), ("look", fault.look), *STAGES[fault.room].items(), family):
        there = [path for path in paths if _is_there(tree, path)]
        if there:
            yield name, there


def named(fault: Fault, tree: Path, finders: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the single tests that are expected to find a fault: those of earlier reports, and of its own list."""
    return [path for path in (*finders.get(fault.name, ()), *fault.look) if "::" in path and _is_there(tree, path)]


def clean(room: str, faults: list[Fault], tree: Path) -> list[str]:
    """Return what a room's faults are found with first: its unit tests and every test file its faults name."""
    named = {path for fault in faults for path in fault.look}
    units = STAGES[room]["unit"]
    beside = sorted(path for path in named if not path.startswith(tuple(f"{unit}/" for unit in units)))
    return [path for path in (*units, *beside) if _is_there(tree, path)]


def _is_there(tree: Path, path: str) -> bool:
    """Return whether a folder, a file or a test of a file is there, whatever the test's parameters are."""
    file, _, name = path.partition("::")
    function = name.split("[")[0].split("::")[-1]
    return (tree / file).exists() and (not name or f"def {function}(" in (tree / file).read_text("utf-8"))


def _family(room: str) -> str:
    return "engine" if room == "engine" else "bridge"
