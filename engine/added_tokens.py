"""Tokens that a model folder declares beside its tokenizer.json: named ones for templates, and ones that it adds.

Reads them where transformers does: tokenizer_config.json, and special_tokens_map.json and added_tokens.json of older
folders, which count only where tokenizer_config.json does not list added tokens itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.checkpoint import read_object
from engine.errors import ModelConfigError

CONFIG = "tokenizer_config.json"
NAMES = "special_tokens_map.json"
MORE = "added_tokens.json"
LISTED = "added_tokens_decoder"
UNNAMED = ("extra_special_tokens", "additional_special_tokens")
FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


def named_tokens(folder: Path) -> dict[str, str]:
    """Return the special tokens that have a name, such as ``bos_token``, as text.

    Raises:
        ModelConfigError: If a file of the folder cannot be read.
    """
    said = _said(folder)
    extra = said.get(UNNAMED[0])
    places = {name: value for name, value in said.items() if name.endswith("_token")}
    texts = {name: _text(value) for name, value in {**places, **(extra if isinstance(extra, Mapping) else {})}.items()}
    return {name: text for name, text in texts.items() if text is not None}


def added_tokens(folder: Path) -> list[Any]:
    """Return the tokens that a folder adds to its tokenizer.json, as ``tokenizers.AddedToken`` in order of their ids.

    Raises:
        ModelConfigError: If a file of the folder cannot be read, or lists something else than tokens.
    """
    from tokenizers import AddedToken

    said, found = _said(folder), dict[str, Any]()
    named = dict.fromkeys(named_tokens(folder).values())
    for place in UNNAMED:
        value = said.get(place)
        listed = value if isinstance(value, list) else []
        named |= dict.fromkeys(text for text in map(_text, listed) if text is not None)
    for text, entry in _listed(folder, said):
        flags = {flag: entry[flag] for flag in FLAGS if type(entry.get(flag)) is bool}
        found[text] = AddedToken(text, **({"special": text in named, "normalized": text not in named} | flags))
    return list(found.values()) + [
        AddedToken(text, special=True, normalized=False) for text in named if text not in found
    ]


def _listed(folder: Path, said: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return text and settings of the added tokens that are listed with their ids, in order of these."""
    listed, path = said.get(LISTED), folder / CONFIG
    if listed is None and (folder / MORE).is_file():
        path = folder / MORE
        listed = {index: {"content": text} for text, index in read_object(path).items()}
    try:
        ordered = sorted((int(index), dict(entry)) for index, entry in (listed or {}).items())
        return [(str(entry["content"]), entry) for _, entry in ordered]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelConfigError(
            f"added tokens in {path} are no tokens by id: {error!r}; fetch the file again"
        ) from error


def _said(folder: Path) -> dict[str, Any]:
    """Return tokenizer_config.json with what older folders keep elsewhere."""
    said = read_object(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if LISTED not in said and (folder / NAMES).is_file():
        said |= read_object(folder / NAMES)
    return said


def _text(value: Any) -> str | None:
    """Return a token's text, which stands alone or among its settings; None for something else."""
    text = value.get("content") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) else None
