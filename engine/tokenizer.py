"""Text to token ids and back, from a model folder's own tokenizer.json.

Uses the `tokenizers` library alone: no array library, and no code from the checkpoint except its chat template, which
is rendered in a sandbox.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.checkpoint import read_object
from engine.errors import ModelConfigError


def read_tokenizer(folder: Path) -> Any:
    """Return what the `tokenizers` library makes of a folder's tokenizer.json.

    Raises:
        ModelConfigError: If there is none, or it cannot be read.
    """
    from tokenizers import Tokenizer as Implementation

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelConfigError(f"no tokenizer.json in {folder}; expected one beside the weights")
    try:
        return Implementation.from_file(str(path))
    except Exception as error:
        raise ModelConfigError(f"cannot read {path}: {error}; fetch the file again") from error


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

    def chat(self, text: str) -> tuple[int, ...]:
        """Return ids of ``text`` as one user turn, ready for the model's answer.

        Raises:
            ModelConfigError: If the folder has no chat template, or a broken one.
        """
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        path = self.folder / "chat_template.jinja"
        if not path.is_file():
            raise ModelConfigError(f"no chat_template.jinja in {self.folder}; complete raw text instead of a chat turn")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        try:
            rendered = environment.from_string(path.read_text(encoding="utf-8")).render(
                messages=[{"role": "user", "content": text}], add_generation_prompt=True, bos_token=self._beginning()
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise ModelConfigError(f"{path} cannot be rendered: {error}; complete raw text instead") from error
        return tuple(self._implementation.encode(rendered, add_special_tokens=False).ids)

    def _beginning(self) -> str:
        path = self.folder / "tokenizer_config.json"
        value = read_object(path).get("bos_token") if path.is_file() else None
        return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")
