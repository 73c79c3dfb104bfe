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
from engine.drafters.affine import AffineCodes
from engine.drafters.dflash import DFlashConfig
from engine.errors import ModelWeightsError

FLOATS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""Stored dtypes; numpy has none for bfloat16, whose 16 bits are kept as a number."""
KINDS: dict[str, np.dtype[Any]] = FLOATS | {"U32": np.dtype("<u4")}
"""Those, and the words that affine codes are packed into."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor: its bits in an array of ``FLOATS[kind]``."""

    kind: str
    bits: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return tuple(self.bits.shape)

    def values(self) -> np.ndarray:
        """Return the values as float32, which holds every stored one exactly."""
        if self.kind == "BF16":
            return (self.bits.astype("<u4") << 16).view("<f4")
        return self.bits.astype("<f4")


@dataclass(frozen=True, slots=True)
class DrafterFile:
    """A drafter as stored, checked against its config: tensors by canonical name, those of codes as their values."""

    folder: Path
    config: DFlashConfig
    tensors: dict[str, StoredTensor]


def read_drafter(folder: Path) -> DrafterFile:
    """Read a drafter's folder.

    Raises:
        ModelConfigError: If its config cannot be honoured.
        ModelWeightsError: If tensors are missing, misshapen, of another dtype or of codes that cannot be read.
    """
    config = dflash.parse(checkpoint.read_config(folder))
    stored: dict[str, StoredTensor] = {}
    for path in checkpoint.weight_files(folder):
        stored |= _read(path)
    tensors = dflash.dense_tensors(config, stored, _values_of)
    bare = sorted(name for name, tensor in tensors.items() if tensor.kind not in FLOATS)
    if bare:
        raise ModelWeightsError(f"{folder} holds codes without scales in {bare[:4]}; expected affine codes or floats")
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
    tensors: dict[str, StoredTensor] = {}
    for name, entry in entries:
        kind = str(entry["dtype"])
        if kind not in KINDS:
            raise ModelWeightsError(f"tensor {name} in {path} is stored as {kind}; expected one of {', '.join(FLOATS)}")
        bits = np.frombuffer(bytes(entry["data"]), KINDS[kind]).reshape(tuple(entry["shape"]))
        tensors[dflash.canonical_name(name)] = StoredTensor(kind, bits)
    return tensors


def _values_of(stored: AffineCodes[StoredTensor]) -> StoredTensor:
    """Return the values that a matrix of codes stands for, as float32."""
    shifts = np.arange(0, 32, stored.bits, dtype="<u4")
    codes = (stored.codes.bits[..., None] >> shifts) & np.uint32((1 << stored.bits) - 1)
    grouped = codes.reshape(len(codes), -1, stored.group_size).astype("<f4")
    values = grouped * stored.scales.values()[..., None] + stored.biases.values()[..., None]
    return StoredTensor("F32", values.reshape(len(codes), -1))
