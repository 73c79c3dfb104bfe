"""Make a small draft model from a target's own first layers.

`python -m benchmarks.engine_peers.first_layers TARGET FOLDER`

Embedding, final norm and head stay; only the layers after the first few are left out. What it proposes is cruder than
what a trained draft model would, and every contestant that drafts with it gets the same one.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file  # numpy has no bfloat16


def first_layers(target: Path, folder: Path, layers: int) -> None:
    """Write a checkpoint folder with the first ``layers`` layers of a Qwen3 ``target``."""
    shutil.copytree(target, folder)
    config = json.loads((target / "config.json").read_text())
    config["num_hidden_layers"], config["layer_types"] = layers, config["layer_types"][:layers]
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tensors = load_file(target / "model.safetensors")
    shallow = {name: tensor for name, tensor in tensors.items() if _layer(name) < layers}
    save_file(shallow, folder / "model.safetensors", metadata={"format": "pt"})


def _layer(name: str) -> int:
    """Return the layer a tensor belongs to, -1 for those of the whole model."""
    parts = name.split(".")
    return int(parts[parts.index("layers") + 1]) if "layers" in parts else -1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_peers.first_layers", description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    given = parser.parse_args()
    first_layers(given.target, given.folder, given.layers)
