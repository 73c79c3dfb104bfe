"""What a training cannot be made of: one line, an exit code that says whose fault it is, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cli import train
from tests.fakes import tiny_torch
from tests.fakes.tokenizers_of_families import write_tokenizer
from tests.integration.training.conftest import ASSETS


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run ``train``; return its exit code and the last line it says."""
    try:
        code = train.main(list(arguments))
    except SystemExit as ended:
        code = int(str(ended.code))
    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    return code, output.err.strip().splitlines()[-1]


def test_a_target_that_is_nowhere_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("dflash", "--target", "/nowhere", "--out", str(tmp_path / "made"), "--steps", "2")
    code, error = refused(capsys, *arguments)
    assert code == 3
    assert error.startswith("error: no model '/nowhere': looked for config.json in /nowhere. Put the folder there")
    assert list(tmp_path.iterdir()) == []


def test_a_target_in_this_folder_comes_before_a_shipped_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `train target --out NAME` leaves it; the shipped one has a tokenizer, this one has none."""
    tiny_torch.write_target(tmp_path / "kakeya-tiny-qwen3", "qwen3")
    monkeypatch.chdir(tmp_path)
    for target in ("kakeya-tiny-qwen3", "./kakeya-tiny-qwen3"):
        code, error = refused(capsys, "dflash", "--target", target, "--out", "made", "--steps", "2", "--rows", "1")
        assert (code, f"no tokenizer.json in {tmp_path / 'kakeya-tiny-qwen3'}" in error) == (3, True), error


def test_a_target_with_a_misshapen_tensor_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_torch.write_target(tmp_path / "target", "qwen3")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    code, error = refused(capsys, "dflash", "--target", str(folder), "--out", str(tmp_path / "made"), "--steps", "2")
    assert code == 3
    assert "tensor model.norm.weight" in error
    assert "has shape (31,); expected (32,)" in error


def test_a_card_is_not_made_of_tensors_that_are_none(tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    from engine.cards.loading import load_drafter, load_target
    from engine.errors import ModelWeightsError

    for name, load in (("kakeya-tiny-qwen3", load_target), ("kakeya-tiny-qwen3-dflash", load_drafter)):
        folder = shutil.copytree(ASSETS / name, tmp_path / name)
        tensors = load_file(folder / "model.safetensors")
        spoilt = next(name for name in tensors if name.endswith("norm.weight"))  # not one of three that make codes
        tensors[spoilt].view(-1)[0] = float("nan")
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelWeightsError, match="NaN or infinite"):
            load(folder)
        del tensors[spoilt]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelWeightsError, match=r"lacks|missing"):
            load(folder)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, steps = ("--out", str(tmp_path / "made")), ("--steps", "2")
    folder = tiny_torch.write_target(tmp_path / "target", "qwen3")
    for arguments in (
        ("dflash", "--target", str(folder), *out, *steps),
        ("target", "--family", "qwen3", "--tokenizer", str(folder), *out, *steps),
    ):
        code, error = refused(capsys, *arguments)
        assert code == 3
        assert "no tokenizer.json in" in error


def test_a_target_of_other_words_is_not_asked_in_the_shipped_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_torch.write_target(tmp_path / "target", "qwen3")
    write_tokenizer(folder, "byte_level")
    arguments = ("dflash", "--target", str(folder), "--out", str(tmp_path / "made"), "--steps", "2")
    code, error = refused(capsys, *arguments)
    assert code == 2
    assert "target has other words than the shipped prompts are made of; expected --prompts packages" in error
    code, error = refused(capsys, *arguments, "--mask-token", "<|endoftext|>")
    assert code == 2
    assert "--mask-token '<|endoftext|>' is for prompts in other words; add --prompts packages" in error
    assert not (tmp_path / "made.work").exists()


def test_layers_that_the_target_has_not_are_named_before_data_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(ASSETS / "kakeya-tiny-qwen3")
    options = ("--out", str(tmp_path / "made"), "--steps", "2", "--layers", "1,6")
    code, error = refused(capsys, "dflash", "--target", target, *options)
    assert code == 2
    assert "--layers 1,6: the target has 6 layers, numbered from 0" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--steps", "--rows", "--threads", "--evaluate-every", "--seed"])
def test_less_than_nothing_is_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("dflash", "--target", "/nowhere", "--out", str(tmp_path / "made"), "--steps", "2", option, "-1")
    code, error = refused(capsys, *arguments)
    assert code == 2
    assert "expected a whole number" in error


def test_a_device_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--target", "/nowhere", "--out", str(tmp_path / "made"), "--steps", "2", "--device", "tpu")
    code, error = refused(capsys, "dflash", *arguments)
    assert code == 5
    assert "knows cpu and cuda" in error


@pytest.mark.slow
def test_one_row_is_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(ASSETS / "kakeya-tiny-qwen3")
    options = ("--out", str(tmp_path / "made"), "--steps", "1", "--rows", "1", "--quiet")
    code, error = refused(capsys, "dflash", "--target", target, *options)
    assert code == 2
    assert "Ask for more --rows" in error


def test_models_whose_names_differ_behind_a_dot_do_not_share_their_state() -> None:
    parser = train.build_parser()
    made = [parser.parse_args(["tokenizer", "--out", f"/made/small-{size}"]) for size in ("0.5b", "0.6b")]
    assert [train.work_folder(options).name for options in made] == ["small-0.5b.work", "small-0.6b.work"]
