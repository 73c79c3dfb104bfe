"""The rooms stay small, no import runs in a circle, and a class name means one thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.show import source

HANDLERS = sorted((source.ROOT / "bridge" / "cli" / "mac").rglob("*.py"))
HANDLER_IMPORTS_MAX = 12


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Return a tree with a circle, a full room and a class name with two meanings."""
    for package in source.PACKAGES:
        (tmp_path / package / "full").mkdir(parents=True)
    for number in range(source.ROOM_MAX + 1):
        (tmp_path / "bridge" / "full" / f"m{number}.py").write_text("")
    (tmp_path / "bridge" / "full" / "m0.py").write_text("from bridge.full import m1\nclass Twice: ...\n")
    (tmp_path / "bridge" / "full" / "m1.py").write_text("def later():\n    from bridge.full.m0 import Twice\n")
    (tmp_path / "engine" / "full" / "other.py").write_text("class Twice: ...\n")
    return tmp_path


def test_no_room_holds_more_than_a_dozen_modules() -> None:
    assert source.full_rooms() == {}


def test_no_imports_run_in_a_circle() -> None:
    assert source.circles() == []


def test_a_class_name_has_one_meaning() -> None:
    assert source.class_names_with_two_meanings() == {}


def test_what_is_wrong_would_be_found(house: Path) -> None:
    assert source.full_rooms(house) == {"bridge/full": source.ROOM_MAX + 1}
    assert source.circles(house) == [["bridge.full.m0", "bridge.full.m1"]]
    assert source.class_names_with_two_meanings(house) == {"Twice": ["bridge.full.m0", "engine.full.other"]}


@pytest.mark.parametrize("path", HANDLERS, ids=lambda path: path.stem)
def test_a_command_handler_imports_a_dozen_modules_at_most(path: Path) -> None:
    found = source.imports(path, source.modules())
    assert len(found) <= HANDLER_IMPORTS_MAX, sorted(found)
