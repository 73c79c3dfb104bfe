"""Whether a backend computes with the numbers that a folder stores, by the headers of its files alone."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from engine.checkpoint import weight_files
from engine.errors import ModelWeightsError

CODES = frozenset({"BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})
"""Whole numbers: positions, masks, and the codes of quantised weights, which each library reads by its own rules."""
FLOATS = frozenset({"F32", "F16", "BF16"})


def check_stored(folder: Path, where: str, floats: Set[str] = FLOATS) -> None:
    """Check the types of all tensors; a file that cannot be read is left to the library.

    Args:
        folder: The model's.
        where: Library and device, for the message.
        floats: Types in safetensors' words that are computed with there, beside whole numbers.

    Raises:
        ModelWeightsError: If a tensor is of another type, such as 8-bit floats on a CPU.
    """
    from safetensors import SafetensorError, safe_open

    for file in weight_files(folder):
        try:
            with safe_open(file, framework="np") as stream:
                stored = {name: str(stream.get_slice(name).get_dtype()) for name in stream.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            continue
        other = {name: kind for name, kind in stored.items() if kind not in floats | CODES}
        if other:
            name, kind = min(other.items())
            raise ModelWeightsError(
                f"{name} in {file} is of type {kind} ({len(other)} tensors are), which {where} does not compute with; "
                f"expected {', '.join(sorted(floats))}. Use a copy of the model in one of them."
            )
