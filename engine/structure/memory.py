"""Whether weights, cache and drafters fit into a device's memory, by the headers of their files alone.

Knows no array library: a backend says what its device has room for. What a header cannot tell is not counted, and
neither are towers for images and sound, which mlx-lm drops and torch drops or keeps by the family: nothing is refused
that might fit. Heads for several tokens count where one is to draft.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from engine.checkpoint import number_format, read_config, text_config, weight_files
from engine.errors import ModelConfigError, ModelMemoryError
from engine.structure.decoder import read_structure
from engine.structure.families import Config
from engine.structure.stored import beside_text, head_name

CONTEXT_POSITIONS: Final = 4096
"""Positions of a cache that has to fit; a model that holds fewer needs fewer."""
SYSTEM_BYTES: Final = 4 << 30
"""What a Mac keeps for everything else when its wired limit is raised."""
CACHE_VALUE_BYTES: Final = 2
QUANTISED_BITS: Final = (8, 4)
SCALE_BITS: Final = 0.5
"""A scale and a bias of 16 bits for each group of 64 weights, as mlx-lm quantises by default."""
_GB: Final = 1e9
_MIB: Final = 1 << 20
_FLOATS: Final = frozenset({"F64", "F32", "F16", "BF16"})
_WIDTHS: Final = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
Named = Callable[[str], str | None]
_PROJECTION: Final = re.compile(r"(?:^|\.)layers\.([0-9]{1,4})\.self_attn\.([kv])_proj\.weight$")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a device has room for.

    Attributes:
        kind: ``metal`` or ``cuda``.
        usable_bytes: Metal's recommended working set, or what is free on a card or held there by torch for later.
        total_bytes: of the machine, which a Mac's GPU shares, or of the card.
        weight_bytes: what a floating weight takes there, None for what its folder is computed in.
    """

    kind: Literal["metal", "cuda"]
    usable_bytes: int
    total_bytes: int
    weight_bytes: int | None = None

    def __str__(self) -> str:
        wording = "metal recommends a working set of" if self.kind == "metal" else "this card has free"
        return f"{wording} {_gb(self.usable_bytes)} (of {_gb(self.total_bytes)})"


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a target and its drafters take before the first token, in bytes."""

    weights: int
    cache: int
    drafters: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.drafters


def metal_memory(info: Mapping[str, Any], weight_bytes: int | None = None) -> DeviceMemory | None:
    """Return what Metal says of its memory, None where it says nothing.

    Args:
        info: ``mlx.core.device_info()``; ``max_recommended_working_set_size`` is ``recommendedMaxWorkingSetSize`` of
            MTLDevice, which follows ``iogpu.wired_limit_mb``.
        weight_bytes: What a floating weight takes.
    """
    usable, total = info.get("max_recommended_working_set_size"), info.get("memory_size")
    if not isinstance(usable, int) or not isinstance(total, int) or usable <= 0:
        return None
    return DeviceMemory("metal", usable, total, weight_bytes)


def check_memory(target: Path, drafters: Sequence[Path], device: DeviceMemory | None, *, head: bool = False) -> None:
    """Check that a target, its cache and its drafters fit, before any of them is loaded.

    ``head`` says that the target's own head for several tokens is one of them.

    Raises:
        ModelMemoryError: If they do not; the message is one line with what to do.
        ModelWeightsError: If a folder holds no weights.
    """
    if device is None:
        return
    need = memory_need(target, drafters, device.weight_bytes, head=head)
    if need.total <= device.usable_bytes:
        return
    parts = [f"weights {_gb(need.weights)}", f"cache of {CONTEXT_POSITIONS:,} positions {_gb(need.cache)}"]
    parts += [f"drafter {_gb(need.drafters)}"] if drafters or head else []
    raise ModelMemoryError(
        f"{target.name} needs {_gb(need.total)} ({', '.join(parts)}) and {device}; {_remedy(target, need, device)}"
    )


def memory_need(
    target: Path, drafters: Sequence[Path], weight_bytes: int | None = None, *, head: bool = False
) -> MemoryNeed:
    """Return what a target and its drafters take.

    Args:
        target: The target's folder.
        drafters: Those of its drafters.
        weight_bytes: What a floating weight takes on the device; None is that of float32 where the folder's config
            names it, else what its file stores.
        head: Whether the target's own head for several tokens drafts.
    """
    own = _weights(target, weight_bytes, head_name) + _cache(target, weight_bytes, head_name) if head else 0
    return MemoryNeed(
        weights=_weights(target, weight_bytes),
        cache=_cache(target, weight_bytes),
        drafters=own + sum(_weights(drafter, weight_bytes) + _cache(drafter, weight_bytes) for drafter in drafters),
    )


def _remedy(target: Path, need: MemoryNeed, device: DeviceMemory) -> str:
    """Return what makes it fit: a raised limit, a drafter less, fewer bits a weight, or another machine."""
    remedies: list[str] = []
    most = device.usable_bytes
    if device.kind == "metal":
        most = max(most, device.total_bytes - SYSTEM_BYTES)
        if need.total <= most:
            remedies.append(f"sudo sysctl iogpu.wired_limit_mb={math.ceil(need.total / _MIB)}")
    elif need.total <= device.total_bytes:
        remedies.append("end what else holds memory on the card (nvidia-smi)")
    if need.drafters and need.total - need.drafters <= device.usable_bytes:
        remedies.append("leave the drafter out (--drafter none)")
    if not remedies:
        remedies += _smaller_layout(target, most - need.cache - need.drafters)
    return "next: " + (" or ".join(remedies) or "use a smaller model, or a machine with more memory")


def _smaller_layout(target: Path, most: int) -> list[str]:
    """Return the widest quantised weights that fit; none of a folder whose weights are quantised already."""
    floats = [(kind, count) for kind, count in _tensors(target) if kind in _FLOATS]
    if 2 * sum(count * _WIDTHS[kind] for kind, count in floats) < _weights(target, None):
        return []
    for bits in QUANTISED_BITS:
        smaller = int(sum(count for _, count in floats) * (bits + SCALE_BITS) / 8)
        if smaller <= most:
            return [f"use a smaller layout: weights of {bits} bits take about {_gb(smaller)}"]
    return []


def _text_name(name: str) -> str | None:
    """Return the name of a tensor that every way to load the text keeps, None of another."""
    return None if beside_text(name) else name


def _weights(folder: Path, weight_bytes: int | None, named: Named = _text_name) -> int:
    computed = _computed_bytes(folder, weight_bytes)
    return sum(count * _width(kind, computed) for kind, count in _tensors(folder, named))


def _computed_bytes(folder: Path, weight_bytes: int | None) -> int | None:
    """Return what a floating weight takes once it is loaded, None for what its file stores."""
    if weight_bytes is None and number_format(read_config(folder)) == "float32":
        return _WIDTHS["F32"]
    return weight_bytes


def _width(kind: str, weight_bytes: int | None) -> int:
    """Return the bytes of one stored value; a type of less than a byte counts as one."""
    return weight_bytes if weight_bytes is not None and kind in _FLOATS else _WIDTHS.get(kind, 1)


def _tensors(folder: Path, named: Named = _text_name) -> Iterator[tuple[str, int]]:
    """Yield type and number of values of each tensor that has a name."""
    for name, (kind, shape) in _headers(folder).items():
        if named(name) is not None:
            yield kind, math.prod(shape)


def _cache(folder: Path, weight_bytes: int | None, named: Named = _text_name) -> int:
    """Return the bytes of the rows of keys and values, by the rows of the layers' own projections."""
    config = read_config(folder)
    text = text_config(config)
    positions = min(CONTEXT_POSITIONS, int(text.get("max_position_embeddings") or CONTEXT_POSITIONS))
    owning = int(text.get("num_hidden_layers") or 0) - int(text.get("num_kv_shared_layers") or 0)
    kinds, window = _kinds(config)
    rows: dict[int, dict[str, int]] = {}
    for name, (_, shape) in _headers(folder).items():
        if (at := _PROJECTION.search(named(name) or "")) and int(at[1]) < owning:
            rows.setdefault(int(at[1]), {})[at[2]] = shape[0]
    total = 0
    for layer, sides in rows.items():
        sliding = layer < len(kinds) and "sliding" in str(kinds[layer])
        length = min(positions, int(window)) if sliding and isinstance(window, int) else positions
        # A layer without a projection of values keeps its keys' once more.
        total += length * (sides.get("k", 0) + sides.get("v", sides.get("k", 0)))
    return total * (_computed_bytes(folder, weight_bytes) or CACHE_VALUE_BYTES)


def _kinds(config: Config) -> tuple[Sequence[Any], Any]:
    """Return the kinds of a config's layers and their window; what a target's leaves out is what its family means.

    That of a drafter need not be one that a target can have: it says what it lists.
    """
    try:
        structure = read_structure(config)
    except (ModelConfigError, LookupError, TypeError, ValueError):
        text = text_config(config)
        listed = text.get("layer_types")
        return listed if isinstance(listed, list) else (), text.get("sliding_window")
    return structure.kinds, structure.window


def _headers(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of all tensors by name; a file that cannot be read is left to who loads it."""
    from safetensors import SafetensorError, safe_open

    headers: dict[str, tuple[str, tuple[int, ...]]] = {}
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="np") as stream:
                for name in stream.keys():  # noqa: SIM118
                    part = stream.get_slice(name)
                    headers[name] = (str(part.get_dtype()), tuple(part.get_shape()))
        except (OSError, SafetensorError):
            continue
    return headers


def _gb(size: int) -> str:
    return f"{size / _GB:.1f} GB"
