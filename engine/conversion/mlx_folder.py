"""A DFlash drafter as a folder of affine codes, as mlx-lm quantises and the engine reads them."""

from __future__ import annotations

import json
from pathlib import Path

from engine import checkpoint
from engine.conversion.drafter_file import DrafterFile
from engine.conversion.scratch import scratch, sweep
from engine.drafters.affine import BIASES, BITS, GROUPS, SCALES, WEIGHT
from engine.errors import UsageError

WEIGHTS = "model.safetensors"


def write_mlx(drafter: DrafterFile, folder: Path, bits: int, group_size: int) -> list[str]:
    """Write a drafter's folder with its matrices as codes; codebooks, vectors and kernels stay as they are.

    Returns:
        The matrices that stay as they are because their rows are no multiple of the group.

    Raises:
        UsageError: If the folder is there, or there are no such codes.
    """
    import mlx.core as mx

    if bits not in BITS or group_size not in GROUPS:
        raise UsageError(f"{bits} bits in groups of {group_size}; expected {BITS} bits in groups of {GROUPS}")
    if folder.exists():
        raise UsageError(f"{folder} exists; name a new folder, or remove it first")
    kinds = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
    tensors: dict[str, mx.array] = {}
    undivided: list[str] = []
    for name, stored in drafter.tensors.items():
        value = mx.array(stored.values()).astype(kinds[stored.kind])
        matrix = value.ndim == 2 and name.endswith(WEIGHT)
        if not matrix or value.shape[-1] % group_size:
            tensors[name] = value
            undivided += [name] if matrix else []
            continue
        codes, scales, biases = mx.quantize(value, group_size=group_size, bits=bits)
        stem = name.removesuffix(WEIGHT)
        tensors |= {name: codes, stem + SCALES: scales, stem + BIASES: biases}
    config = checkpoint.read_config(drafter.folder)
    config["quantization"] = {"group_size": group_size, "bits": bits, "mode": "affine"}
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent)
    with scratch(folder.parent) as making:
        mx.save_safetensors(str(making / WEIGHTS), tensors, metadata={"format": "mlx"})
        (making / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        making.chmod(0o755)
        making.rename(folder)
    return undivided
