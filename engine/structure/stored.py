"""What a folder stores, by the names and types in the headers of its files alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Set
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from engine.checkpoint import weight_files
from engine.errors import ModelWeightsError

CODES = frozenset({"BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})
"""Whole numbers: positions, masks, and the codes of quantised weights, which each library reads by its own rules."""
FLOATS = frozenset({"F32", "F16", "BF16"})
PART_BYTES = 1 << 20
"""How much of two tensors is compared at once."""
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


def check_stored_once(folder: Path) -> None:
    """Check that no tensor lies in two files, of which each library would take another.

    Raises:
        ModelWeightsError: If one does, or a file cannot be read.
    """
    places: dict[str, Path] = {}
    for file in weight_files(folder):
        for name in _entries(file):
            if name in places:
                raise ModelWeightsError(
                    f"tensor {name} lies in {places[name].name} and in {file.name} of {folder}; expected each in one "
                    "file. Remove the file that does not belong there"
                )
            places[name] = file


def same_values(folder: Path, first: str, second: str) -> bool:
    """Return whether two stored tensors are the same, bit for bit."""
    headers = [(file, *_header(file)) for file in weight_files(folder)]
    pair = [(file, base, header[name]) for name in (first, second) for file, base, header in headers if name in header]
    kinds = {(entry["dtype"], tuple(entry["shape"])) for _, _, entry in pair}
    if len(kinds) != 1:
        return False
    with ExitStack() as stack:
        streams = []
        for file, base, entry in pair:
            streams.append(stack.enter_context(file.open("rb")))
            streams[-1].seek(base + entry["data_offsets"][0])
        begin, end = pair[0][2]["data_offsets"]
        for left in range(end - begin, 0, -PART_BYTES):
            parts = {stream.read(min(PART_BYTES, left)) for stream in streams}
            if len(parts) > 1:
                return False
    return True


def _header(file: Path) -> tuple[int, dict[str, Any]]:
    """Return where a file's values begin, and its entries by name."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        entries: dict[str, Any] = json.loads(stream.read(size))
    return 8 + size, entries


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
