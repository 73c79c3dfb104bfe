"""`train ftheta` from the command line: fitted, trained by a loss, continued after a stop, and loaded by the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="f_thetas are trained with torch")

from safetensors.torch import load_file  # noqa: E402

from engine.cli import train  # noqa: E402
from engine.loading import load_backend  # noqa: E402
from engine.training.checkpoint import only_training  # noqa: E402
from tests.integration.training.conftest import ASSETS  # noqa: E402

PAIR = ("--target", str(ASSETS / "kakeya-tiny-qwen3"), "--drafter", str(ASSETS / "kakeya-tiny-qwen3-dflash"))
FIT = ("ftheta", *PAIR, "--rank", "16", "--length", "160", "--episodes", "4")


@pytest.mark.ci
def test_a_training_that_was_stopped_ends_in_the_file_of_one_that_was_not(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    hybrid = ("--loss", "attn_distill_hybrid")
    assert train.main([*FIT, "--steps", "4", *hybrid, "--out", str(whole)]) == 0
    assert train.main([*FIT[:-1], "2", "--out", str(cut)]) == 0
    assert train.main([*FIT, "--steps", "2", *hybrid, "--out", str(cut)]) == 0
    halfway = load_file(cut / "model.safetensors")
    assert train.main([*FIT, "--steps", "4", *hybrid, "--out", str(cut)]) == 0
    straight, continued = (load_file(folder / "model.safetensors") for folder in (whole, cut))
    assert all(torch.equal(straight[name], continued[name]) for name in straight)
    assert not any(torch.equal(straight[name], halfway[name]) for name in straight)
    record = json.loads((whole / "training.json").read_text())
    assert record["command"].endswith("--steps 4 --loss attn_distill_hybrid --episodes 4 --length 160")
    assert record["episodes"] == {"training": 4, "held_out": 1}
    backend: Any = load_backend("torch", "cpu")
    target = backend.load_target(ASSETS / "kakeya-tiny-qwen3")
    loaded = backend.load_restoration(whole, target, backend.load_dflash(ASSETS / "kakeya-tiny-qwen3-dflash", target))
    assert loaded.settings.rank == 16


def test_a_loss_without_steps_is_refused_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main([*FIT, "--loss", "mse", "--out", str(tmp_path / "made")]) == 2
    assert "--loss mse without --steps: the closed form has none; say how many steps" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_sums_of_more_contexts_are_no_fit_of_fewer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = ("--work", str(tmp_path / "work"))
    assert train.main([*FIT[:-1], "2", *work, "--out", str(tmp_path / "first")]) == 0
    assert train.main([*FIT[:-1], "1", *work, "--out", str(tmp_path / "second")]) == 2
    assert "holds the sums of 2 contexts; none of 1 can be made of them. Give --episodes 2" in capsys.readouterr().err
    assert not (tmp_path / "second").exists()


def test_two_fits_do_not_write_their_sums_in_one_work_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with only_training(tmp_path / "work"):
        assert train.main([*FIT, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "made")]) == 2
    assert "another training works in" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
