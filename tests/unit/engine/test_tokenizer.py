"""Tokens that a folder declares beside its tokenizer.json are tokens, and templates write them, as in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import named_tokens, tokenizer_settings
from engine.errors import ModelConfigError
from engine.tokenizer import Tokenizer, added_tokens
from tests.fakes.tokenizers_of_families import write_tokenizer

TEMPLATE = "{{ bos_token }}{{ image_token }}{% for m in messages %}<|turn|>{{ m.content }}<|end|>{% endfor %}"
TURN = [{"role": "user", "content": "hi"}]
END = {"content": "<|end|>", "special": True, "lstrip": False, "rstrip": True, "normalized": False}
PLACES: dict[str, dict[str, Any]] = {
    "listed by id": {
        "tokenizer_config.json": {
            "bos_token": "<s>",
            "added_tokens_decoder": {
                "130": {"content": "<|turn|>", "special": False},
                "128": {"content": "<s>"},
                "129": END,
            },
        },
        "special_tokens_map.json": {"bos_token": "<|end|>"},
        "added_tokens.json": {"<|other|>": 128},
    },
    "an older folder": {
        "tokenizer_config.json": {"bos_token": "hi"},
        "special_tokens_map.json": {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "<|end|>"},
        "added_tokens.json": {"<|turn|>": 129, "<|end|>": 128},
    },
    "names alone": {
        "tokenizer_config.json": {
            "bos_token": {"__type": "AddedToken", "content": "<s>", "special": True},
            "image_token": "<|image|>",
            "additional_special_tokens": ["<|turn|>", "<|end|>"],
        }
    },
    "names of an object": {
        "tokenizer_config.json": {"bos_token": "a", "extra_special_tokens": {"image_token": "<|turn|>"}}
    },
    "nothing": {"tokenizer_config.json": {}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from tokenizers import Tokenizer as Implementation
    from tokenizers import models, pre_tokenizers

    letters = [chr(code) for code in range(128)]
    tokenizer = Implementation(models.WordLevel({text: index for index, text in enumerate(letters)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def write(folder: Path, files: dict[str, Any]) -> None:
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))


@pytest.mark.parametrize("place", PLACES)
def test_declared_tokens_are_read_as_stock_reads_them(folder: Path, place: str) -> None:
    from transformers import PreTrainedTokenizerFast

    config = PLACES[place]["tokenizer_config.json"] | {"chat_template": TEMPLATE}
    write(folder, PLACES[place] | {"tokenizer_config.json": config})
    stock = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    mine = Tokenizer(folder)
    options = {"tokenize": True, "return_dict": False, "add_generation_prompt": True}
    ids = mine.chat(TURN)
    assert list(ids) == stock.apply_chat_template(TURN, **options)
    assert mine.decode(ids) == stock.decode(ids, skip_special_tokens=True)
    assert (max(ids) > 127) == (place != "nothing")


def test_a_file_that_lists_no_tokens_is_one_line(folder: Path) -> None:
    for name, value in (
        ("tokenizer_config.json", {"added_tokens_decoder": ["<|end|>"]}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"end": {"content": "<|end|>"}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"128": {}}}),
    ):
        write(folder, {name: value})
        with pytest.raises(
            ModelConfigError, match=rf"added tokens in .*{name} are no tokens by id: .*fetch the file again"
        ):
            added_tokens(folder)
    (folder / "tokenizer_config.json").unlink()
    write(folder, {"added_tokens.json": {"<|end|>": "last"}})
    with pytest.raises(ModelConfigError, match=r"added tokens in .*added_tokens\.json"):
        Tokenizer(folder)


def test_a_folder_with_a_tokenizer_alone_declares_nothing(folder: Path) -> None:
    assert named_tokens(tokenizer_settings(folder)) == {}
    assert added_tokens(folder) == []


@pytest.mark.parametrize("model_type", ["llama", "mistral"])
@pytest.mark.parametrize("settings", [{}, {"legacy": True}, {"legacy": False}, {"add_prefix_space": False}], ids=str)
@pytest.mark.parametrize("kind", ["byte_fallback_legacy", "byte_fallback"])
def test_a_llama_tokenizer_begins_texts_as_transformers_begins_them(
    tmp_path: Path, kind: str, settings: dict[str, bool], model_type: str
) -> None:
    from transformers import AutoTokenizer

    named = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    write_tokenizer(tmp_path, kind)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named | settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    mine, stock = Tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in (" leading space", "<s>[INST] hi [/INST]", "a </s> b", "  two", "", "\nnew", "a</s>b"):
        assert list(mine.encode(text)) == stock.encode(text)
        assert mine.decode(mine.encode(text)) == stock.decode(stock.encode(text), skip_special_tokens=True)
