"""Writing a trained target as a folder that transformers and mlx-lm both open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.training.tokenizer import BOS_ID, EOS_ID, PAD_ID, save_tokenizer


def complete_config(folder: Path) -> None:
    """Add the keys mlx-lm reads and transformers leaves out to config.json of a Gemma-4 target.

    transformers writes the full-attention layers' own head size per layer; mlx-lm reads two flat keys instead.
    """
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if config.get("model_type") != "gemma4_text":
        return
    overrides: dict[str, Any] = next(iter(config.get("per_layer_config", {}).values()), {})
    config["global_head_dim"] = overrides.get("head_dim", config["head_dim"])
    config["num_global_key_value_heads"] = overrides.get("num_key_value_heads", config["num_key_value_heads"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def export_target(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write config, weights, tokenizer, chat template and generation config of `model` into `folder`.

    Weights are rounded to bfloat16, half the bytes; the config names float32, which they are computed in.
    """
    from safetensors.torch import load_file, save_file

    folder.mkdir(parents=True, exist_ok=True)
    model.float().cpu().save_pretrained(folder, safe_serialization=True)
    file = folder / "model.safetensors"
    weights = {name: tensor.bfloat16() for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    file.chmod(0o644)
    complete_config(folder)
    save_tokenizer(tokenizer, folder)
    generation = {"bos_token_id": BOS_ID, "eos_token_id": [EOS_ID], "pad_token_id": PAD_ID, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
