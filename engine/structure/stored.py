"""What a folder stores, by the names and types in the headers of its files alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Final

from engine.checkpoint import weight_files
from engine.errors import ModelWeightsError

CODES = frozenset({"BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})
"""Whole numbers: positions, masks, and the codes of quantised weights, which each library reads by its own rules."""
FLOATS = frozenset({"F32", "F16", "BF16"})

_BESIDE_TEXT: Final = re.compile(
    r"(?:^|\.)(?:(?:vision|visual|audio|image|multi_modal|embed_vision|embed_audio|patch_merge)[a-z_]*|aligner|mtp)\."
)
_TABLES: Final = re.compile(r"\.rotary_emb\.inv_freq$")
"""What older checkpoints store and every library computes anew."""


def beside_text(name: str) -> bool:
    """Return whether a tensor is that of a tower for images or sound, or of heads for several tokens."""
    return _BESIDE_TEXT.search(name) is not None


def unused_tensors(names: Iterable[str]) -> list[str]:
    """Return, of the tensors that a library leaves out, those which are not known to stand beside the text's model."""
    return sorted(name for name in names if not beside_text(name) and not _TABLES.search(name))


def stored_tensors(folder: Path) -> dict[str, str]:
    """Return the types of a folder's tensors by name; those of a file that cannot be read are left to the library.

    Raises:
        ModelWeightsError: If there is no file, or one is an unfetched git-lfs pointer.
    """
    return {name: kind for file in weight_files(folder) for name, kind in _types(file).items()}


def check_stored(folder: Path, where: str, floats: Set[str] = FLOATS, *, affine: bool = False) -> None:
    """Check the types of all tensors; a file that cannot be read is left to the library.

    Args:
        folder: The model's.
        where: Library and device, for the message.
        floats: Types in safetensors' words that are computed with there, beside whole numbers.
        affine: Whether whole numbers are nothing but codes of a matrix, with its scales beside.

    Raises:
        ModelWeightsError: If a tensor is of another type, such as 8-bit floats on a CPU.
    """
    stored = {name: (kind, file) for file in weight_files(folder) for name, kind in _types(file).items()}
    codes = {name for name in stored if not affine or f"{name.removesuffix('.weight')}.scales" in stored}
    other = {
        name: found
        for name, found in stored.items()
        if found[0] not in floats and not (found[0] in CODES and name in codes)
    }
    if other:
        name, (kind, file) = min(other.items())
        raise ModelWeightsError(
            f"{name} in {file} is of type {kind} ({len(other)} tensors are), which {where} does not compute with; "
            f"expected {', '.join(sorted(floats))}. Use a copy of the model in one of them."
        )


def _types(file: Path) -> dict[str, str]:
    """Return the types of a file's tensors by name, none of a file that cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as stream:
            return {name: str(stream.get_slice(name).get_dtype()) for name in stream.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return {}
