"""Text to token ids and back, from a model folder's own tokenizer files.

Uses the `tokenizers` library alone: no array library, and no code from the checkpoint except its chat templates, which
``engine.chat`` renders in a sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.added_tokens import added_tokens
from engine.chat import Message, render_chat
from engine.errors import ModelConfigError


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
        found = Implementation.from_file(str(path))
    except Exception as error:
        raise ModelConfigError(f"cannot read {path}: {error}; fetch the file again") from error
    # Those that the file holds already stay as they are.
    found.add_tokens(added_tokens(folder))
    # A trainer may have left the length of its batches in the file; transformers does not heed it either.
    found.no_truncation()
    found.no_padding()
    return found


class Tokenizer:
    """The tokenizer of one model folder."""

    def __init__(self, folder: Path) -> None:
        """Read the folder's tokenizer.json.

        Raises:
            ModelConfigError: If there is none, or it cannot be read.
        """
        self.folder = folder
        self._implementation = read_tokenizer(folder)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return ids with the special tokens the tokenizer itself adds, such as a leading <bos>."""
        return tuple(self._implementation.encode(text).ids)

    def decode(self, ids: list[int] | tuple[int, ...]) -> str:
        """Return text without special tokens."""
        return str(self._implementation.decode(list(ids), skip_special_tokens=True))

    def chat(
        self, messages: Sequence[Message], *, template: str | None = None, thinking: bool | None = None
    ) -> tuple[int, ...]:
        """Return ids of a conversation, ready for the model's answer; see ``engine.chat.render_chat``.

        Raises:
            ModelConfigError: If the folder has no chat template, or a broken one.
            UsageError: If it has none of that name, or one that does not know thinking.
        """
        rendered = render_chat(self.folder, messages, template=template, thinking=thinking)
        return tuple(self._implementation.encode(rendered, add_special_tokens=False).ids)
