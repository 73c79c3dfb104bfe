from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.order import Noting, dealt, file_of, seconds_by_place

ROOT = Path(__file__).parents[3]
SECONDS = {"a/long.py": 30.0, "b/longer.py": 40.0, "c": 50.0, "d/least.py": 5.0}


def test_long_files_are_dealt_out_longest_first_and_short_tests_fill_the_parts() -> None:
    tests = ["a/long.py::1", "a/long.py::2[x::y]", "b/longer.py::3", "c/one.py::4", "c/two.py::5", "d/least.py::6"]
    tests = [*(f"e/short.py::{number}" for number in range(6)), *tests]
    order = [tests[place] for place in dealt(tests, SECONDS, 3)]
    assert sorted(order) == sorted(tests)
    first, second, third = order[:4], order[4:8], order[8:]
    assert [file_of(test) for test in first[:2]] == ["c/one.py", "c/two.py"]
    assert second[0] == "b/longer.py::3"
    assert [file_of(test) for test in third[:3]] == ["a/long.py", "a/long.py", "d/least.py"]
    assert [test for test in order if test.startswith("e/")] == [f"e/short.py::{number}" for number in range(6)]


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_a_file_that_is_longer_than_a_part_stays_together(workers: int) -> None:
    tests = [f"{file}::{number}" for file in ("e/short.py", "a/long.py") for number in range(9)]
    order = dealt(tests, SECONDS, workers)
    assert sorted(order) == list(range(18))
    places = [order.index(number) for number in range(9, 18)]
    assert places == list(range(places[0], places[0] + 9))


def test_the_table_of_a_run_holds_what_takes_long_and_counts_a_shared_folder_once(tmp_path: Path) -> None:
    noting = Noting(tmp_path / "table.json")
    shared = next(path for path in seconds_by_place() if not path.endswith(".py"))
    for test, duration in ((f"{shared}/x.py::1", 4.0), (f"{shared}/y.py::2", 5.0), ("e/short.py::3", 0.5)):
        noting.pytest_runtest_logreport(SimpleNamespace(nodeid=test, duration=duration))  # type: ignore[arg-type]
    noting.pytest_sessionfinish()
    assert seconds_by_place(tmp_path / "table.json") == {shared: 9.0}


def test_all_that_the_table_names_is_there() -> None:
    assert [path for path in seconds_by_place() if not (ROOT / path).exists()] == []
