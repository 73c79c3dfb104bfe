"""The workers of a run import every file of its tests between them, and nothing is said before collecting."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.importing import files_below, import_first, part_of


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two files that can be imported, between two that cannot, and one that is no test."""
    folder = tmp_path / "parted"
    (folder / "deeper").mkdir(parents=True)
    texts = {
        "__init__.py": "",
        "helper.py": "",
        "test_a.py": "raise ValueError('broken')",
        "test_b.py": "",
        "test_c.py": "import pytest\npytest.importorskip('no_such_library')",
        "deeper/__init__.py": "",
        "deeper/test_d.py": "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_files_are_found_below_folders_and_by_the_ids_of_tests(tree: Path) -> None:
    every = [tree / "parted" / name for name in ("deeper/test_d.py", "test_a.py", "test_b.py", "test_c.py")]
    assert files_below([str(tree)]) == every
    assert files_below([str(every[2]), f"{every[0]}::test_something[a/b]", str(every[2])]) == [every[0], every[2]]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_the_parts_of_all_workers_are_every_file_once(workers: int) -> None:
    files = [Path(f"test_{index}.py") for index in range(11)]
    parts = [part_of(files, f"gw{worker}", workers) for worker in range(workers)]
    assert sorted(file for part in parts for file in part) == sorted(files)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_what_cannot_be_imported_is_left_to_collecting(tree: Path) -> None:
    try:
        import_first(files_below([str(tree)]), tree)
    except pytest.skip.Exception:
        pytest.fail("a file that is to be skipped was not left to collecting")
    assert {"parted.test_b", "parted.deeper.test_d"} <= sys.modules.keys()
    assert not {"parted.test_a", "parted.test_c", "parted.helper"} & sys.modules.keys()
