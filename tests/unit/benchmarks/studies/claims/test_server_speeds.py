"""The servers that are measured are those of the checkout that measures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.studies.claims.server_speeds import link_environment


@pytest.mark.parametrize("before", [None, "another", "gone"])
def test_the_environment_is_this_checkout_s_whatever_was_linked_before(tmp_path: Path, before: str | None) -> None:
    (tmp_path / "another").mkdir()
    if before is not None:
        (tmp_path / ".venv").symlink_to(tmp_path / before)
    link_environment(tmp_path)
    assert (tmp_path / ".venv").readlink() == Path(sys.executable).parents[1]
