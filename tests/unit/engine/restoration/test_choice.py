"""Which f_theta a command line means: the one it names, else the target's own of the layout's rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import UsageError
from engine.restoration.choice import chosen_restoration

LAYOUT = "sink4+window64+ftheta64"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "big-ftheta64").mkdir()
    (tmp_path / "big-ftheta64" / "config.json").write_text("{}")
    return tmp_path / "big"


def test_the_one_named_like_the_target_is_taken_unless_another_is_named(target: Path) -> None:
    assert chosen_restoration(None, LAYOUT, target) == f"{target}-ftheta64"
    assert chosen_restoration("mine", LAYOUT, target) == "mine"
    assert chosen_restoration(None, "sink4+window64", target) is None
    assert chosen_restoration(None, None, target) is None


def test_one_that_is_missing_or_not_needed_is_refused(target: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no f_theta of rank 32 is known for 'big': expected one called 'big-ftheta32'"
    ):
        chosen_restoration(None, "sink4+window64+ftheta32", target)
    with pytest.raises(UsageError, match="--restoration mine: --cache native restores nothing"):
        chosen_restoration("mine", "native", target)
