"""A client shows no result that differs in anything from what was published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.bus.tree import Tree
from bridge.client.run.status import check
from bridge.errors import IntegrityError

PUBLISHED = Path(__file__).parents[4] / "docs" / "evidence" / "k3-fused-allmlx-code-rpa4gwnn"


@pytest.fixture
def files() -> dict[str, bytes]:
    """Return a result that was published and committed here."""
    paths = (path for path in PUBLISHED.rglob("*") if path.is_file())
    return {path.relative_to(PUBLISHED).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def run_id(files: dict[str, bytes]) -> str:
    return str(json.loads(files["run.json"])["id"])


def test_what_was_published_passes(files: dict[str, bytes], run_id: str) -> None:
    check(Tree(files=files), run_id)


def test_one_changed_file_is_enough_to_refuse_a_result(files: dict[str, bytes], run_id: str) -> None:
    changed = files | {"summary.md": files["summary.md"] + b"\n"}

    with pytest.raises(IntegrityError, match=r"does not verify: [^(]*summary\.md[^(]*$"):
        check(Tree(files=changed), run_id)
