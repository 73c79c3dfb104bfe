"""Drafter folders as mlx-lm quantises them: affine codes in place of every matrix but the codebooks' few."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def write_quantised(source: Path, folder: Path, bits: int, group_size: int = 64) -> Path:
    """Write a drafter's folder with its matrices as codes of ``bits`` bits."""
    import mlx.core as mx

    shutil.copytree(source, folder)
    tensors: dict[str, mx.array] = {}
    for name, value in dict(mx.load(str(source / "model.safetensors"))).items():
        if value.ndim != 2 or not name.endswith(".weight"):
            tensors[name] = value
            continue
        codes, scales, biases = mx.quantize(value.astype(mx.float32), group_size=group_size, bits=bits)
        stem = name.removesuffix(".weight")
        tensors |= {name: codes, f"{stem}.scales": scales, f"{stem}.biases": biases}
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = {"group_size": group_size, "bits": bits}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
