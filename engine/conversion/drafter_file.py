"""A DFlash drafter's folder as it is stored: its config read, its tensors as bytes with their dtype and shape.

Knows no array library but numpy, and no output format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine import checkpoint
from engine.drafters import dflash
from engine.drafters.affine import SCALES
from engine.drafters.dflash import DFlashConfig
from engine.errors import ModelWeightsError

FLOATS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""Stored dtypes; numpy has none for bfloat16, whose 16 bits are kept as a number."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor: its bits in an array of ``FLOATS[kind]``."""

    kind: str
    bits: np.ndarray

    def values(self) -> np.ndarray:
        """Return the values as float32, which holds every stored one exactly."""
        if self.kind == "BF16":
            return (self.bits.astype("<u4") << 16).view("<f4")
        return self.bits.astype("<f4")


@dataclass(frozen=True, slots=True)
class DrafterFile:
    """A drafter as stored: tensors by canonical name, checked against the config."""

    folder: Path
    config: DFlashConfig
    tensors: dict[str, StoredTensor]


def read_drafter(folder: Path) -> DrafterFile:
    """Read a drafter's folder.

    Raises:
        ModelConfigError: If its config cannot be honoured.
        ModelWeightsError: If tensors are missing, misshapen, quantised or of another dtype.
    """
    config = dflash.parse(checkpoint.read_config(folder))
    tensors: dict[str, StoredTensor] = {}
    for path in checkpoint.weight_files(folder):
        tensors |= _read(path)
    dflash.check_tensors(config, {name: tuple(tensor.bits.shape) for name, tensor in tensors.items()})
    odd = sorted(name for name, tensor in tensors.items() if not np.isfinite(tensor.values()).all())
    if odd:
        raise ModelWeightsError(f"{folder} holds NaN or infinite values in {odd[:4]} ({len(odd)} tensors in all)")
    return DrafterFile(folder, config, tensors)


def _read(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one safetensors file."""
    from safetensors import SafetensorError, deserialize

    try:
        entries = deserialize(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ModelWeightsError(f"cannot read {path}: {error}; fetch the file again") from error
    if any(name.endswith(SCALES) for name, _ in entries):
        raise ModelWeightsError(f"{path} holds quantised weights; convert the drafter they were made from")
    found: dict[str, StoredTensor] = {}
    for name, entry in entries:
        kind = str(entry["dtype"])
        if kind not in FLOATS:
            raise ModelWeightsError(f"tensor {name} in {path} is stored as {kind}; expected one of {', '.join(FLOATS)}")
        bits = np.frombuffer(bytes(entry["data"]), FLOATS[kind]).reshape(tuple(entry["shape"]))
        found[dflash.canonical_name(name)] = StoredTensor(kind, bits)
    return found
