"""Roots of a bus that moves, met by one reader at the old and at the new place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.trust.root import RootContent, TrustRoot, read_root, write_root
from bridge.trust.root_memory import KnownRoot, RootMemory
from tests.fakes.memory_bus import BUS_ID, bus_record
from tests.unit.bridge.trust.stage import NOW, RealClock
from tests.unit.bridge.trust.test_root_machine import new_key


class Move:
    """The roots of one move, oldest first, and a reader."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.owner = folder, new_key()
        content = RootContent(bus_record(RealClock()))
        self.before = self.next(content, None)
        self.moving = self.next(content, self.before, moving_to="NEW")
        self.farewell = self.next(content, self.moving, moved_to="NEW", schema_version=3)
        self.opened = self.next(content, self.farewell)

    def next(self, content: RootContent, before: TrustRoot | None, **changes: Any) -> TrustRoot:
        record = content.record.evolve(**changes)
        return read_root(write_root(replace(content, record=record), self.owner, NOW, before))

    def meet(self, place: str, root: TrustRoot) -> KnownRoot:
        memory = RootMemory(self.folder / "reader", place)
        met = memory.meet(root.files, BUS_ID, pin=None, now_s=NOW.timestamp())
        assert met is not None
        return met


@pytest.fixture
def move(tmp_path: Path) -> Move:
    return Move(tmp_path)


def test_the_farewell_counts_at_the_old_place_for_who_knows_newer_roots_and_leaves_those_remembered(move: Move) -> None:
    move.meet("OLD", move.before)
    move.meet("NEW", move.opened)
    met = move.meet("OLD", move.farewell)
    assert (met.root, met.note) == (move.farewell, None)
    assert move.meet("NEW", move.opened).root == move.opened


@pytest.mark.parametrize("replayed", ["farewell", "moving", "before"])
def test_no_root_of_a_move_that_is_pushed_to_the_new_place_counts_for_who_saw_a_newer_one_there(
    move: Move, replayed: str
) -> None:
    move.meet("NEW", move.opened)
    met = move.meet("NEW", getattr(move, replayed))
    assert (met.root, "set back" in str(met.note)) == (move.opened, True)


def test_who_knows_the_farewell_takes_the_place_where_the_bus_is_about_to_arrive_as_moving(move: Move) -> None:
    move.meet("OLD", move.farewell)
    met = move.meet("NEW", move.moving)
    assert (met.root, met.note) == (move.moving, None)
    back = move.meet("OLD", move.moving)  # pushed over the farewell by a stranger
    assert (back.root, "set back" in str(back.note)) == (move.farewell, True)
    assert move.meet("NEW", move.opened).root == move.opened


def test_a_root_that_neither_moves_nor_is_newer_counts_nowhere(move: Move) -> None:
    move.meet("NEW", move.opened)
    met = move.meet("OLD", move.before)
    assert (met.root, "set back" in str(met.note)) == (move.opened, True)
