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


AWAY = "sink4+window64+ftheta@remote"


def test_rows_made_elsewhere_come_from_the_address_that_is_named_else_from_the_drafters(target: Path) -> None:
    assert chosen_restoration("grpc:unix:/a", AWAY, target) == "grpc:unix:/a"
    assert chosen_restoration(None, AWAY, target, "grpc:127.0.0.1:7,ngram") == "grpc:127.0.0.1:7"
    assert chosen_restoration("grpc:unix:/a", AWAY, target, "grpc:127.0.0.1:7") == "grpc:unix:/a"


@pytest.mark.parametrize("drafter", [None, "ngram", "grpc:127.0.0.1:7,grpc:127.0.0.1:8"])
def test_rows_made_elsewhere_need_one_address(target: Path, drafter: str | None) -> None:
    with pytest.raises(UsageError, match=r"no host is named that makes rows; start .* --restoration FOLDER` and"):
        chosen_restoration(None, AWAY, target, drafter)


def test_an_address_and_a_folder_are_told_apart(target: Path) -> None:
    with pytest.raises(UsageError, match="expected grpc:ADDRESS of a host that serves that f_theta"):
        chosen_restoration("mine", AWAY, target)
    with pytest.raises(UsageError, match=r"expected it with \+ftheta64@remote in --cache"):
        chosen_restoration("grpc:127.0.0.1:7", LAYOUT, target)
