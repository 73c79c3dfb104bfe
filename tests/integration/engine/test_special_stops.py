"""Special tokens around a raw prompt: one to end at ends an answer by its id, one too many at the beginning is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import ASSETS
from engine.cli.generate import main

TARGET = ASSETS / "kakeya-tiny-qwen3"
PROMPT = "class Point:\n    def __init__(self, x, y):\n"


@pytest.mark.parametrize(("beginning", "notes"), [("<bos>", 1), ("", 0)])
def test_a_prompt_that_begins_as_the_tokenizer_begins_it_is_noted(
    beginning: str, notes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([beginning + PROMPT, "--target", str(TARGET), "--drafter", "none", "--max-new", "1"]) == 0
    assert capsys.readouterr().err.count("note: the prompt begins with the token that the tokenizer puts") == notes


def answer(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    words = ["--target", str(folder), "--drafter", "none", "--max-new", "24", "--ignore-stop-tokens", "--json"]
    assert main([PROMPT, *words, *options]) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def add_special(file: Path, words: dict[str, Any], index: int, text: str) -> None:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    words["added_tokens"].append({"id": index, "content": text, "special": True} | flags)
    words["added_tokens"].sort(key=lambda token: token["id"])
    file.write_text(json.dumps(words))


def test_the_text_of_a_special_token_that_a_model_spells_out_ends_an_answer_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = answer(TARGET, capsys)["text"]
    at = next(place for place in range(1, len(text) - 12) if text[place : place + 12] not in PROMPT)
    stop = text[at : at + 12]
    folder = Path(shutil.copytree(TARGET, tmp_path / "target"))
    file = folder / "tokenizer.json"
    words = json.loads(file.read_text())
    add_special(file, words, 1 + max(words["model"]["vocab"].values()), stop)
    stopped = answer(folder, capsys, "--stop", stop)
    assert (stopped["text"], stopped["stop_reason"]) == (text[: text.index(stop)], "stop_string")


def test_a_special_token_ends_an_answer_where_it_is_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = answer(TARGET, capsys)["tokens"]
    folder = Path(shutil.copytree(TARGET, tmp_path / "target"))
    file = folder / "tokenizer.json"
    words = json.loads(file.read_text())
    texts = {index: word for word, index in words["model"]["vocab"].items()}
    # One that stands nowhere before, in the prompt neither, which would be read otherwise.
    new = [index for index, token in enumerate(tokens) if token not in tokens[:index]]
    at = next(index for index in new[1:] if texts[tokens[index]] not in PROMPT)
    text = texts[tokens[at]]
    add_special(file, words, tokens[at], text)
    stopped = answer(folder, capsys, "--stop", text)
    assert (stopped["tokens"], stopped["stop_reason"]) == (tokens[: at + 1], "eos")
    assert stopped["prompt_digest"] == answer(TARGET, capsys)["prompt_digest"]
