"""Text to token ids and back, from a model folder's own tokenizer files.

Uses the `tokenizers` library alone: no array library, and no code from the checkpoint except its chat templates, which
``engine.chat`` renders in a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

from engine.chat import Message, render_chat
from engine.checkpoint import (
    LISTED_TOKENS,
    TOKENIZER_CONFIG,
    named_tokens,
    read_object,
    token_text,
    tokenizer_settings,
)
from engine.errors import ModelConfigError

MORE_TOKENS = "added_tokens.json"
UNNAMED = ("extra_special_tokens", "additional_special_tokens")
REPLACEMENT = "\ufffd"
LLAMA = frozenset({"LlamaTokenizer", "LlamaTokenizerFast"})
AS_WRITTEN = frozenset({"llava", "llava_next", "mistral", "mistral3", "mixtral", "olmo2", "pixtral", "vipllava"})
"""Model types whose tokenizer.json transformers takes as it is, whatever class a folder names."""
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


def read_tokenizer(folder: Path) -> Any:
    """Return what the `tokenizers` library makes of a folder's tokenizer.json and of the tokens that it adds to it.

    Texts keep their length.

    Raises:
        ModelConfigError: If there is none, or one of the files cannot be read.
    """
    from tokenizers import Tokenizer as Implementation

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelConfigError(f"no tokenizer.json in {folder}; expected one beside the weights")
    try:
        tokenizer = Implementation.from_file(str(path))
    except Exception as error:
        raise ModelConfigError(f"cannot read {path}: {error}; fetch the file again") from error
    # Those that the file holds already stay as they are.
    tokenizer.add_tokens(added_tokens(folder))
    if not _is_as_written(folder):
        _begin_as_llama(tokenizer, tokenizer_settings(folder))
    # A trainer may have left the length of its batches in the file; transformers does not heed it either.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _is_as_written(folder: Path) -> bool:
    """Return whether transformers takes a folder's tokenizer.json as it is, by the type of its model."""
    path = folder / "config.json"
    return path.is_file() and str(read_object(path).get("model_type")) in AS_WRITTEN


def _begin_as_llama(built: Any, settings: Mapping[str, Any]) -> None:
    """Put a space before a text where transformers' Llama tokenizer puts one, whatever tokenizer.json says.

    It builds such a tokenizer anew from its words; ``legacy`` puts a space behind every special token too. What puts
    none before a text takes none away either.
    """
    from tokenizers import decoders, pre_tokenizers

    if settings.get("tokenizer_class") not in LLAMA or "ByteFallback" not in repr(built.decoder):
        return
    scheme = "always" if settings.get("legacy") is True else "first"
    if settings.get("add_prefix_space") is False:
        scheme = "never"
        built.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    built.normalizer = None
    built.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme=scheme, split=False)


def added_tokens(folder: Path) -> list[Any]:
    """Return the tokens that a folder adds to its tokenizer.json, as ``tokenizers.AddedToken`` in order of their ids.

    They are read where transformers reads them.

    Raises:
        ModelConfigError: If a file of the folder cannot be read, or lists something else than tokens.
    """
    from tokenizers import AddedToken

    settings, tokens = tokenizer_settings(folder), dict[str, Any]()
    named = dict.fromkeys(named_tokens(settings).values())
    for place in UNNAMED:
        listed = settings.get(place)
        texts = map(token_text, listed if isinstance(listed, list) else [])
        named |= dict.fromkeys(text for text in texts if text is not None)
    for text, entry in _listed(folder, settings):
        flags = {flag: entry[flag] for flag in FLAGS if type(entry.get(flag)) is bool}
        tokens[text] = AddedToken(text, **({"special": text in named, "normalized": text not in named} | flags))
    rest = [AddedToken(text, special=True, normalized=False) for text in named if text not in tokens]
    return [*tokens.values(), *rest]


def _repaired(tokens: Iterable[str]) -> list[str]:
    """Return tokens with U+FFFD in the place of byte tokens that are part of no character.

    The byte-fallback decoder of `tokenizers` writes U+FFFD for each byte of a run that holds one such byte, so a text
    would change far behind its end while a character arrives; byte-level decoders and SentencePiece keep the others.
    """
    repaired: list[str] = []
    for is_byte, run in groupby(tokens, key=lambda token: BYTE_TOKEN.fullmatch(token) is not None):
        if not is_byte:
            repaired += run
            continue
        text = bytes(int(token[3:5], 16) for token in run).decode(errors="replace")
        for part in text.split(REPLACEMENT):
            repaired += [*(f"<0x{byte:02X}>" for byte in part.encode()), REPLACEMENT]
        del repaired[-1]
    return repaired


def _listed(folder: Path, settings: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return text and settings of the added tokens that are listed with their ids, in order of these."""
    listed, path = settings.get(LISTED_TOKENS), folder / TOKENIZER_CONFIG
    if listed is None and (folder / MORE_TOKENS).is_file():
        path = folder / MORE_TOKENS
        listed = {index: {"content": text} for text, index in read_object(path).items()}
    try:
        ordered = sorted(
            ((int(index), dict(entry)) for index, entry in (listed or {}).items()), key=lambda pair: pair[0]
        )
        return [(str(entry["content"]), entry) for _, entry in ordered]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelConfigError(
            f"added tokens in {path} are no tokens by id: {error!r}; fetch the file again"
        ) from error


class Tokenizer:
    """The tokenizer of one model folder.

    Attributes:
        folder: the model's.
        special: ids of the tokens that are no text, by what they are called.
    """

    def __init__(self, folder: Path) -> None:
        """Read the folder's tokenizer.json.

        Raises:
            ModelConfigError: If there is none, or it cannot be read.
        """
        self.folder = folder
        self._implementation = read_tokenizer(folder)
        # Only such a decoder gives up a whole run of bytes for one that makes no character.
        self._falls_back = "ByteFallback" in repr(self._implementation.decoder)
        added = self._implementation.get_added_tokens_decoder()
        self.special: dict[str, int] = {token.content: index for index, token in added.items() if token.special}
        self._hidden = frozenset(self.special.values())

    def encode(self, text: str) -> tuple[int, ...]:
        """Return ids with the special tokens the tokenizer itself adds, such as a leading <bos>."""
        return tuple(self._implementation.encode(text).ids)

    def decode(self, ids: list[int] | tuple[int, ...], written: frozenset[int] = frozenset()) -> str:
        """Return text; bytes that make no character are one U+FFFD, and the rest is text.

        Args:
            ids: Of the tokens.
            written: Special tokens that are text here; all others write nothing.
        """
        hidden = self._hidden - written
        tokens = map(self._implementation.id_to_token, [index for index in ids if index not in hidden])
        texts = [token for token in tokens if token is not None]
        decoder = self._implementation.decoder
        if decoder is None:
            return " ".join(texts)
        return str(decoder.decode(_repaired(texts) if self._falls_back else texts))

    def chat(
        self,
        messages: Sequence[Message],
        *,
        template: str | None = None,
        thinking: bool | None = None,
        arguments: Mapping[str, Any] | None = None,
        day: date | None = None,
    ) -> tuple[int, ...]:
        """Return ids of a conversation, ready for the model's answer; see ``engine.chat.render_chat``.

        Raises:
            ModelConfigError: If the folder has no chat template, or a broken one.
            UsageError: If it has none of that name, or one that does not read what it is told.
        """
        rendered = render_chat(
            self.folder, messages, template=template, thinking=thinking, arguments=arguments, day=day
        )
        return tuple(self._implementation.encode(rendered, add_special_tokens=False).ids)
