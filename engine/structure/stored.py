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
_HEAD: Final = re.compile(r"(?:^|\.)mtp\.")
_TABLES: Final = re.compile(r"\.rotary_emb\.inv_freq$")
"""What older checkpoints store and every library computes anew."""


def beside_text(name: str) -> bool:
    """Return whether a tensor is that of a tower for images or sound, or of heads for several tokens."""
    return _BESIDE_TEXT.search(name) is not None


def head_name(name: str) -> str | None:
    """Return what a tensor is called inside of a head for several tokens, None for one of something else."""
    match = _HEAD.search(name)
    return None if match is None else name[match.end() :]


def unused_tensors(names: Iterable[str]) -> list[str]:
    """Return, of the tensors that a library leaves out, those which are not known to stand beside the text's model."""
    return sorted(name for name in names if not beside_text(name) and not _TABLES.search(name))


def stored_tensors(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of a folder's tensors by name.

    Raises:
        ModelWeightsError: If there is no file, or one is half a file or an unfetched git-lfs pointer.
    """
    return {name: entry for file in weight_files(folder) for name, entry in _entries(file).items()}


def check_stored(folder: Path, where: str, floats: Set[str] = FLOATS, *, affine: bool = False) -> None:
    """Check the types of all tensors.

    Args:
        folder: The model's.
        where: Library and device, for the message.
        floats: Types in safetensors' words that are computed with there, beside whole numbers.
        affine: Whether whole numbers are nothing but codes of a matrix, with its scales beside.

    Raises:
        ModelWeightsError: If a tensor is of another type, such as 8-bit floats on a CPU, or a file cannot be read.
    """
    stored = {name: (kind, file) for file in weight_files(folder) for name, (kind, _) in _entries(file).items()}
    codes = {name for name in stored if not affine or f"{name.removesuffix('.weight')}.scales" in stored}
    other = {
        name: entry
        for name, entry in stored.items()
        if entry[0] not in floats and not (entry[0] in CODES and name in codes)
    }
    if other:
        name, (kind, file) = min(other.items())
        raise ModelWeightsError(
            f"{name} in {file} is of type {kind} ({len(other)} tensors are), which {where} does not compute with; "
            f"expected {', '.join(sorted(floats))}. Use a copy of the model in one of them."
        )


def _entries(file: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of a file's tensors by name."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as stream:
            slices = {name: stream.get_slice(name) for name in stream.keys()}  # noqa: SIM118
            return {name: (str(part.get_dtype()), tuple(part.get_shape())) for name, part in slices.items()}
    except (OSError, SafetensorError) as error:
        raise ModelWeightsError(f"cannot read {file}: {error}; fetch the file again") from error
