from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from tests.conftest import SLOW_FIRST, pytest_collection_modifyitems

ROOT = Path(__file__).parents[3]


def test_files_that_take_longest_come_first_and_the_others_keep_their_order() -> None:
    names = ["b::1", "a::2", f"{SLOW_FIRST[1]}::3", f"{SLOW_FIRST[0]}::4[x::y]", f"{SLOW_FIRST[1]}::5"]
    items = [SimpleNamespace(nodeid=name) for name in names]
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert [names.index(item.nodeid) for item in items] == [3, 2, 4, 0, 1]


def test_every_file_that_is_listed_is_there() -> None:
    assert [file for file in SLOW_FIRST if not (ROOT / file).is_file()] == []
