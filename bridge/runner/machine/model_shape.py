"""What a model folder says of its own sizes: weights by the headers of its safetensors, caches by config.json.

The runner reads it, so that no report has to be believed how large its target is. Knows names that checkpoints in the
Hugging Face layout have; what it cannot tell from them is None, never a guess.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bridge.records.run import CacheShape, ModelShape

_HEADER_MAX_BYTES: Final = 64 << 20
_CONFIG_MAX_BYTES: Final = 1 << 20
_PROJECTION: Final = re.compile(r"(?:^|\.)layers\.([0-9]{1,4})\.self_attn\.([kv])_proj\.weight")
_OTHER_SENSES: Final = ("vision", "audio", "visual")
_DTYPES: Final = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
Tensor = Mapping[str, Any]


def read_shape(folder: Path) -> ModelShape | None:
    """Return the sizes of a folder's text model, or None when its files do not say them."""
    try:
        config = _config(folder / "config.json")
        tensors: dict[str, Tensor] = {}
        for file in sorted(folder.glob("model*.safetensors")):
            tensors |= _header(file)
        return _shape(config, tensors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # a folder of another layout: the gate then says what cannot be checked


def _shape(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ModelShape | None:
    text = config.get("text_config") or config
    mine = {name: value for name, value in tensors.items() if not any(sense in name for sense in _OTHER_SENSES)}
    if not mine:
        return None
    rows = {(int(at[1]), at[2]): value for name, value in mine.items() if (at := _PROJECTION.search(name))}
    packing = config.get("quantization") or config.get("quantization_config")
    bits = (packing or {}).get("bits")
    return ModelShape(
        parameters=sum(_values(name, value, bits) for name, value in mine.items()),
        text_only="text_config" not in config and len(mine) == len(tensors) and bits is None,
        vocabulary=int(text["vocab_size"]),
        dtype=_dtype(config, text, str(rows[0, "k"]["dtype"])) if (0, "k") in rows and not packing else None,
        caches=_caches(text, {place: int(value["shape"][0]) for place, value in rows.items()}),
    )


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any], stored: str) -> str | None:
    """Return what weights of a stored type are computed in: a model of float32 may be stored in 16 bits."""
    named = text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype")
    return "float32" if named == "float32" and stored in _DTYPES else _DTYPES.get(stored)


def _values(name: str, tensor: Tensor, bits: int | None) -> int:
    """Return how many weights a tensor holds: codes packed into words count each, their scales do not."""
    if bits is None:
        return math.prod(tensor["shape"])
    if name.endswith((".scales", ".biases")):
        return 0
    return math.prod(tensor["shape"]) * (32 // int(bits) if tensor["dtype"] == "U32" else 1)


def _caches(text: Mapping[str, Any], widths: Mapping[tuple[int, str], int]) -> tuple[CacheShape, ...] | None:
    """Return what each layer with a cache of its own keeps of a position."""
    count = int(text["num_hidden_layers"])
    kinds, window = text.get("layer_types"), text.get("sliding_window")
    if kinds is None:
        if window is not None and text.get("use_sliding_window") is not False:
            return None  # which layers slide depends on the library
        kinds = ["full_attention"] * count
    owning = range(count - int(text.get("num_kv_shared_layers") or 0))
    if len(kinds) != count or any((layer, "k") not in widths for layer in owning):
        return None
    return tuple(
        CacheShape(
            keys=widths[layer, "k"],
            # A layer without a projection of values keeps its keys' once more.
            values=widths.get((layer, "v"), widths[layer, "k"]),
            window=int(window) if "sliding" in kinds[layer] and window is not None else None,
        )
        for layer in owning
    )


def _config(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        data = stream.read(_CONFIG_MAX_BYTES + 1)
    if len(data) > _CONFIG_MAX_BYTES:
        raise ValueError(f"{path} has more than {_CONFIG_MAX_BYTES} bytes")
    value: dict[str, Any] = json.loads(data)
    return value


def _header(path: Path) -> dict[str, Tensor]:
    """Return name, dtype and shape of the tensors of a safetensors file: an 8-byte length, then that much JSON."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= _HEADER_MAX_BYTES:
            raise ValueError(f"{path} has a header of {length} bytes")
        value: dict[str, Tensor] = json.loads(stream.read(length))
    value.pop("__metadata__", None)
    return value
