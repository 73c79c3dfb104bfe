"""A report says which f_theta made its rows again, and the recompute command by which it made them again itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.checkpoint import folder_digest, resolve_model
from engine.cli import eval as eval_cli
from engine.restoration.settings import FORMAT

F_THETA = "kakeya-tiny-qwen3-ftheta64"
LAYOUT = "sink4+window64+ftheta64"
MODEL = (
    "--target",
    "kakeya-tiny-qwen3",
    "--drafter",
    "kakeya-tiny-qwen3-dflash",
    "--backend",
    "torch",
    "--device",
    "cpu",
)


@pytest.fixture
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two prompts of more than a window, whatever they are answered."""
    text = " ".join(f"entry {place} is {place * 7919 % 9000}." for place in range(20))
    rows = [{"id": f"n-{row}", "kind": "needle", "text": f"{row} {text}", "expected": "42"} for row in range(2)]
    path = tmp_path_factory.mktemp("sets") / "prompts.json"
    path.write_text(json.dumps({"schema": 1, "set": "entries", "rule": "made", "prompts": rows}))
    return path


def named(folder: Path) -> dict[str, str]:
    return {"name": folder.name, "digest": folder_digest(folder)}


@pytest.mark.parametrize("study", ["bounded-recall", "bounded-kv"])
def test_a_study_that_restores_names_its_f_theta_as_it_is_computed_again(
    prompts: Path, run_environment: Path, study: str
) -> None:
    argv = (study, "--set", str(prompts), *MODEL)
    if study == "bounded-recall":
        options = ("--arms", LAYOUT, "--prompts", "1", "--max-new", "2")
        assert eval_cli.main([*argv, *options]) == 0
    else:
        options = ("--cache", LAYOUT, "--contexts", "100", "--max-new", "2", "--launches", "2")
        for launch in ("0", "1"):
            assert eval_cli.main([*argv, *options, "--launch", launch]) == 0
        assert eval_cli.main([study, "--assemble"]) == 0
    report = json.loads((run_environment / f"{study}.json").read_bytes())
    expected = named(resolve_model(F_THETA))
    assert report["config"]["restoration"] == expected
    assert eval_cli.main(["recompute", "--set", str(prompts), *MODEL]) == 0
    again = json.loads((run_environment / "recompute.json").read_bytes())["reports"][f"{study}.json"]
    assert again["restoration"] == expected


def test_another_f_theta_has_another_digest(prompts: Path, run_environment: Path, tmp_path: Path) -> None:
    packaged = resolve_model(F_THETA)
    copied = tmp_path / "mine"
    copied.mkdir()
    for path in packaged.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    config = json.loads((copied / "config.json").read_text())
    assert config["format"] == FORMAT
    (copied / "config.json").write_text(json.dumps(config | {"note": "the same weights under a config of my own"}))
    options = ("--arms", LAYOUT, "--prompts", "1", "--max-new", "2", "--restoration", str(copied))
    assert eval_cli.main(["bounded-recall", "--set", str(prompts), *MODEL, *options]) == 0
    report = json.loads((run_environment / "bounded-recall.json").read_bytes())
    assert report["config"]["restoration"] == named(copied)
    assert report["config"]["restoration"]["digest"] != folder_digest(packaged)


def test_a_study_that_restores_nothing_names_none(prompts: Path, run_environment: Path) -> None:
    options = ("--arms", "sink4+window64", "--prompts", "1", "--max-new", "2")
    assert eval_cli.main(["bounded-recall", "--set", str(prompts), *MODEL, *options]) == 0
    assert json.loads((run_environment / "bounded-recall.json").read_bytes())["config"]["restoration"] is None


def test_the_default_arms_are_computed_again_on_the_target_they_were_measured_on(
    prompts: Path, run_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KAKEYA_TARGET", "KAKEYA_DRAFTER"):
        monkeypatch.delenv(name, raising=False)
    options = ("--set", str(prompts), "--backend", "torch", "--device", "cpu")
    assert eval_cli.main(["bounded-recall", *options, "--prompts", "1", "--max-new", "2"]) == 0
    assert eval_cli.main(["recompute", *options]) == 0
    report = json.loads((run_environment / "bounded-recall.json").read_bytes())
    again = json.loads((run_environment / "recompute.json").read_bytes())["reports"]["bounded-recall.json"]
    assert again["target"] == report["config"]["target"]["digest"]
    assert again["restoration"] == report["config"]["restoration"]
