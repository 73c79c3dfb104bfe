"""A client shows no result that differs in anything from what was published."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bridge.bus.tree import Tree
from bridge.client.clone.store import read_tree
from bridge.client.run.status import check
from bridge.errors import IntegrityError
from tests.support.committed import SMOKE, unpacked


@pytest.fixture
def files() -> dict[str, bytes]:
    """Return a result that was published and committed here."""
    return dict(read_tree(SMOKE).files)


@pytest.fixture
def run_id(files: dict[str, bytes]) -> str:
    return str(json.loads(files["run.json"])["id"])


def test_what_was_published_passes(files: dict[str, bytes], run_id: str) -> None:
    check(Tree(files=files), run_id)


def test_one_changed_file_is_enough_to_refuse_a_result(files: dict[str, bytes], run_id: str) -> None:
    changed = files | {"summary.md": files["summary.md"] + b"\n"}

    with pytest.raises(IntegrityError, match=r"does not verify: [^(]*summary\.md[^(]*$"):
        check(Tree(files=changed), run_id)


def test_what_the_finder_leaves_in_a_folder_is_no_part_of_the_result(tmp_path: Path) -> None:
    folder = unpacked(SMOKE, tmp_path / "result")
    for place in (folder, folder / "reports"):
        (place / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    assert read_tree(folder) == read_tree(SMOKE)


def test_a_pipe_in_a_folder_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    folder = unpacked(SMOKE, tmp_path / "result")
    os.mkfifo(folder / "reports" / "more.json")
    with pytest.raises(IntegrityError, match="regular files only"):
        read_tree(folder)
