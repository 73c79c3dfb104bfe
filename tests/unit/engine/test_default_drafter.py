"""Which drafter a target gets when nobody names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.checkpoint import ASSETS, resolve_model
from engine.errors import UsageError
from engine.options import chosen_drafter


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


@pytest.fixture(autouse=True)
def nobody_names_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KAKEYA_DRAFTER", raising=False)
    monkeypatch.setenv("KAKEYA_MODEL_ROOTS", str(tmp_path / "root"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("name", ["kakeya-tiny-gemma4", "kakeya-tiny-qwen3"])
def test_a_packaged_target_gets_the_packaged_drafter_of_its_name(name: str) -> None:
    assert chosen_drafter(None, ASSETS / name) == str(ASSETS / f"{name}-dflash")


def test_a_drafter_beside_the_target_comes_before_one_of_the_same_name_elsewhere(tmp_path: Path) -> None:
    target = folder(tmp_path / "here" / "big")
    elsewhere = folder(tmp_path / "root" / "big-dflash")
    assert chosen_drafter(None, target) == str(elsewhere)
    beside = folder(tmp_path / "here" / "big-dflash")
    assert chosen_drafter(None, target) == str(beside)


def test_a_drafter_beside_a_target_in_a_relative_root_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "root" / "big")
    beside = folder(tmp_path / "root" / "big-dflash")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAKEYA_MODEL_ROOTS", "root")
    assert resolve_model(str(chosen_drafter(None, resolve_model("big")))) == beside


def test_a_target_of_the_cache_gets_the_drafter_of_its_model_and_not_of_its_commit(tmp_path: Path) -> None:
    target = folder(tmp_path / "models--Qwen--Qwen3-4B" / "snapshots" / ("0" * 40))
    with pytest.raises(UsageError, match="no drafter is known for 'Qwen3-4B': expected one called 'Qwen3-4B-dflash'"):
        chosen_drafter(None, target)
    own = folder(tmp_path / "root" / "Qwen3-4B-dflash")
    assert chosen_drafter(None, target) == str(own)


def test_where_each_step_may_choose_prompt_lookup_stands_beside_the_own_drafter_or_alone(tmp_path: Path) -> None:
    own = str(ASSETS / "kakeya-tiny-gemma4-dflash")
    assert chosen_drafter(None, ASSETS / "kakeya-tiny-gemma4", several=True) == f"{own},ngram"
    assert chosen_drafter("auto", ASSETS / "kakeya-tiny-gemma4") == own
    assert chosen_drafter(None, folder(tmp_path / "here" / "big"), several=True) == "ngram"
    assert chosen_drafter("one", ASSETS / "kakeya-tiny-gemma4", several=True) == "one"


def test_several_drafters_need_a_policy_that_chooses_among_them() -> None:
    assert chosen_drafter("one,ngram", ASSETS / "kakeya-tiny-gemma4", several=True) == "one,ngram"
    with pytest.raises(UsageError, match=r"'one,ngram' names several; expected one, or --depth auto"):
        chosen_drafter("one,ngram", ASSETS / "kakeya-tiny-gemma4")


def test_what_is_asked_for_comes_first_then_the_environment_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ASSETS / "kakeya-tiny-gemma4"
    monkeypatch.setenv("KAKEYA_DRAFTER", "ngram")
    assert chosen_drafter("small", target) == "small"
    assert chosen_drafter(None, target) == "ngram"
    assert chosen_drafter("none", target) is None


def test_a_target_without_a_known_drafter_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no drafter is known for 'big': expected one called 'big-dflash'.*none"):
        chosen_drafter(None, folder(tmp_path / "here" / "big"))
