"""Drafter weights stored as affine codes, the format that mlx-lm writes: ``value = scale * code + bias`` per group.

Knows no tensors and no config entry: bits and group sizes follow from the shapes, tensor by tensor, so that folders
with several of them need no more. Codes are packed into 32-bit words, the lowest bits first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from engine.errors import ModelWeightsError

Array = TypeVar("Array", bound=Any)
BITS, GROUPS = (4, 8), (32, 64, 128)
SCALES, BIASES, WEIGHT = ".scales", ".biases", ".weight"


@dataclass(frozen=True, slots=True)
class AffineCodes(Generic[Array]):
    """One matrix: packed codes ``[rows, columns * bits / 32]``, scales and biases ``[rows, columns / group_size]``."""

    codes: Array
    scales: Array
    biases: Array
    bits: int
    group_size: int


def dense(
    tensors: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    dequantise: Callable[[AffineCodes[Array]], Array],
) -> dict[str, Array]:
    """Return the tensors with every matrix of codes as the values it stands for.

    Args:
        tensors: By canonical name; those of a matrix of codes end in ``.weight``, ``.scales`` and ``.biases``.
        shapes: What the config says each tensor is.
        dequantise: Returns the values of one matrix.

    Raises:
        ModelWeightsError: If scales stand alone, or codes are no affine 4- or 8-bit ones of the shape said.
    """
    stems = [name.removesuffix(SCALES) for name in tensors if name.endswith(SCALES)]
    values = {name: tensor for name, tensor in tensors.items() if not name.endswith((SCALES, BIASES))}
    for stem in stems:
        name = stem + WEIGHT if stem + WEIGHT in tensors else stem
        if name not in tensors or stem + BIASES not in tensors:
            raise ModelWeightsError(
                f"drafter tensor {stem}{SCALES} has no codes or no {BIASES[1:]} beside it; expected affine codes as "
                "mlx-lm writes them. Convert the drafter again with mode affine."
            )
        values[name] = dequantise(_codes(name, tensors[name], tensors[stem + SCALES], tensors[stem + BIASES], shapes))
    return values


def _codes(
    name: str, codes: Array, scales: Array, biases: Array, shapes: Mapping[str, tuple[int, ...]]
) -> AffineCodes[Array]:
    """Return one matrix with the bits and the group size that its shapes say, or raise ModelWeightsError."""
    expected = shapes.get(name, (0, 0))
    words, groups = int(codes.shape[-1]), int(scales.shape[-1])
    columns = expected[-1]
    bits, group = words * 32 // max(columns, 1), columns // max(groups, 1)
    whole = words * 32 == bits * columns and group * groups == columns
    if not whole or bits not in BITS or group not in GROUPS or tuple(biases.shape) != tuple(scales.shape):
        raise ModelWeightsError(
            f"drafter tensor {name} has codes {tuple(codes.shape)} and scales {tuple(scales.shape)} for {expected}; "
            f"expected affine codes of {' or '.join(map(str, BITS))} bits in groups of {', '.join(map(str, GROUPS))}"
        )
    return AffineCodes(codes, scales, biases, bits, group)
